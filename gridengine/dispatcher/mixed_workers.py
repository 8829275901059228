"""The links of a stand-alone dispatcher that has workers on its own machine, beside workers that
people start by hand elsewhere.
"""

from __future__ import annotations

import itertools
import select
from collections.abc import Iterable

from gridengine.dispatcher.remote_workers import RemoteWorkers
from gridengine.dispatcher.run_directory import Home
from gridengine.dispatcher.worker_links import LocalWorkers
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Message


class MixedWorkers:
    """Agents in this thread, and workers that connect over TCP. All methods are for one thread.
    `home` is the dispatcher's folder.
    """

    def __init__(self, local: LocalWorkers, remote: RemoteWorkers, home: Home) -> None:
        self._local = local
        self._remote = remote
        self.context = local.context._replace(epoch=home.epoch, directory=home.folder)
        self.streams, self.keys = local.streams, remote.keys
        self.poller = local.poller
        self.poller.register(remote.fd, select.POLLIN)
        self.take_receipts = remote.take_receipts
        self.acknowledge = remote.acknowledge
        self.stop_workers = local.stop_workers

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

    def close(self, *, failed: bool = False) -> None:
        """Close both links for good. `failed`: whether any call has failed."""
        try:
            self._local.close(failed=failed)
        finally:
            self._remote.close(failed=failed)
