"""The links of a stand-alone dispatcher that has workers on its own machine, beside workers that
people start by hand elsewhere.
"""

from __future__ import annotations

import itertools
import select
from collections.abc import Callable, Iterable

from gridengine.dispatcher.remote_workers import RemoteWorkers
from gridengine.dispatcher.run_directory import Home
from gridengine.dispatcher.worker_links import LocalWorkers
from gridengine.schedulers.base import Scheduler
from gridengine.serialize.payload import Payload
from gridengine.settings.values import Settings
from gridengine.wire.clock import Clock
from gridengine.wire.messages import Message


class MixedWorkers:
    """A `WorkersLink` to agents in this thread and to workers that connect over TCP.

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
        """Return messages of workers, at most `most` from each link, each with its sender."""
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
        """Return whether a worker outlives this process: only workers that connect over TCP do."""
        return not self._local.has(peer)

    def stop_workers(self) -> None:
        """Stop the workers of this process, before the launcher kills their fork servers."""
        self._local.stop_workers()

    def close(self, *, failed: bool = False) -> None:
        """Close both links for good. `failed`: whether any call has failed."""
        try:
            self._local.close(failed=failed)
        finally:
            self._remote.close(failed=failed)
