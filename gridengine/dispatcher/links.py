"""`Link`: the I/O thread's interface to workers, which `local_workers` and `remote_workers`
implement.
"""

from __future__ import annotations

import select
from collections.abc import Iterable, Mapping
from typing import Protocol

from gridengine.schedulers.launcher import LaunchContext
from gridengine.serialize.payload import Payload
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.messages import Message
from gridengine.worker.stream_writer import StandardStreams


class Link(Protocol):
    """The way to the workers: `RemoteWorkers`, or `LocalWorkers` for those of this machine.

    `context` is how the launcher has workers connect to it, and `streams` are where what calls
    print is passed on to. `poller` is what wakes when there is something to receive; more may be
    registered. `deadline` is the monotonic time at which `receive` must be called though nothing
    polls; `keys` are those, and the port, by which workers connect, None where they need none.
    """

    @property
    def context(self) -> LaunchContext: ...
    @property
    def streams(self) -> StandardStreams: ...
    @property
    def poller(self) -> select.poll: ...
    @property
    def deadline(self) -> float: ...
    @property
    def keys(self) -> ServerKeys | None: ...

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterable[tuple[bytes, Message, Payload]]:
        """Return messages of workers, at most so many, each with its sender. `ready` is what polled
        as readable.
        """

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        """Send a message to a worker; to one that is gone nothing is sent."""

    def forget(self, peer: bytes) -> None:
        """Drop what is kept for a worker."""

    def stop_workers(self) -> None:
        """Stop those workers that the link itself can, before the launcher is closed."""

    def close(self, *, failed: bool = False) -> None:
        """Close the link for good, after the launcher; `failed` is whether any call has."""


class LastingLink(Link, Protocol):
    """One to workers of which some outlive this process, and go on with the next."""

    def lasts(self, peer: bytes) -> bool:
        """Return whether a worker does."""

    def take_receipts(self) -> dict[bytes, int]:
        """Return what has come since this was last asked and is not acknowledged yet."""

    def acknowledge(self, receipts: Mapping[bytes, int]) -> None:
        """Let workers know that they need not keep what they have sent."""
