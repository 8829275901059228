"""The link of a stand-alone dispatcher whose own workers are on its machine: these are in its
process, and others may connect, which are started by hand wherever its file can be read.
"""

from __future__ import annotations

import itertools
import select
from collections.abc import Callable, Iterable

from gridengine.dispatcher.local_workers import LocalWorkers
from gridengine.dispatcher.remote_workers import RemoteWorkers
from gridengine.dispatcher.standalone_files import Home
from gridengine.schedulers.base import Scheduler
from gridengine.serialize.payload import Payload
from gridengine.settings.values import Settings
from gridengine.wire.clock import Clock
from gridengine.wire.messages import Message


class MixedWorkers:
    """Agents in this thread, and workers that call over TCP. All methods are for one thread.

    Args:
        wake: wakes that thread when it may be asleep; called by others.
        home: the dispatcher's folder, and the keys that workers have who connect.
        clock: that thread's.

    Raises:
        ConfigurationError: no socket can be made, or too few files may be open.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        run_id: str,
        settings: Settings,
        wake: Callable[[], None],
        home: Home,
        clock: Clock,
    ) -> None:
        self._local = LocalWorkers(
            scheduler, run_id=run_id, settings=settings, wake=wake, home=home, clock=clock
        )
        self._remote = RemoteWorkers(
            scheduler, run_id=run_id, settings=settings, wake=wake, home=home, clock=clock
        )
        self.context = self._local.context._replace(epoch=home.epoch, directory=home.folder)
        self.streams, self.keys = self._local.streams, self._remote.keys
        self.poller = self._local.poller
        self.poller.register(self._remote.fd, select.POLLIN)
        self.take_receipts = self._remote.take_receipts
        self.acknowledge = self._remote.acknowledge

    @property
    def deadline(self) -> float:
        return min(self._local.deadline, self._remote.deadline)

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterable[tuple[bytes, Message, Payload]]:
        """Return messages of workers, at most so many of each kind, each with its sender."""
        return itertools.chain(
            self._local.receive(ready, now, most), self._remote.receive(ready, now, most)
        )

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        link = self._local if self._local.has(peer) else self._remote
        link.send(peer, message, buffers)

    def forget(self, peer: bytes) -> None:
        self._local.forget(peer)
        self._remote.forget(peer)

    def lasts(self, peer: bytes) -> bool:
        """Return whether a worker outlives this process: those that call by TCP do."""
        return not self._local.has(peer)

    def stop_workers(self) -> None:
        """Stop those of this process, before the launcher kills their fork servers."""
        self._local.stop_workers()

    def close(self, *, failed: bool = False) -> None:
        """Close both for good; `failed` is whether any call has."""
        try:
            self._local.close(failed=failed)
        finally:
            self._remote.close(failed=failed)
