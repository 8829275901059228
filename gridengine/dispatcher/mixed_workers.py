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
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.messages import Message


class MixedWorkers:
    """Agents in this thread, and workers that call over TCP. All methods are for one thread.

    Args:
        wake: wakes that thread when it may be asleep; called by others.
        home: the dispatcher's folder, and the keys that workers have who connect.

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
    ) -> None:
        self._local = LocalWorkers(scheduler, run_id=run_id, settings=settings, wake=wake)
        self._remote = RemoteWorkers(
            scheduler,
            run_id=run_id,
            settings=settings,
            wake=wake,
            home=home,
            streams=self._local.streams,
        )
        self.context = self._local.context._replace(epoch=home.epoch)
        self.streams = self._local.streams
        self.take_receipts = self._remote.take_receipts
        self.acknowledge = self._remote.acknowledge

    @property
    def keys(self) -> ServerKeys:
        """The keys, and the port, by which workers connect."""
        return self._remote.keys

    @property
    def deadline(self) -> float:
        """When `receive` must be called though nothing polls: at once when something has come by
        TCP, which is polled as readable only once.
        """
        return 0.0 if self._remote.pending else self._local.deadline

    def poller(self) -> select.poll:
        """Return what wakes when there is something to receive; more may be registered."""
        poller = self._local.poller()
        poller.register(self._remote.fd, select.POLLIN)
        return poller

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterable[tuple[bytes, Message, Payload]]:
        """Return messages of workers, at most so many of each kind, each with its sender."""
        came = self._remote.fd in ready or self._remote.pending
        return itertools.chain(
            self._local.receive(ready, now, most),
            self._remote.receive(ready, now, most if came else 0),
        )

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        """Send a message to a worker; to one that is gone nothing is sent."""
        link = self._local if self._local.has(peer) else self._remote
        link.send(peer, message, buffers)

    def forget(self, peer: bytes) -> None:
        """Drop what is kept for a worker."""
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
