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
    """The way to the workers: `RemoteWorkers`, or `LocalWorkers` for those on this machine.

    context: how the launcher lets workers connect.
    streams: the destination of what calls print.
    poller: wakes when there is something to receive; other descriptors may be registered too.
    deadline: the monotonic time at which `receive` must be called even if nothing polls.
    keys: the keys, and the port, by which workers connect; None if they need none.
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
        """Return at most `most` messages of workers, each with its sender. `ready` are the
        descriptors that polled as readable.
        """

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        """Send a message to a worker. Do nothing if the worker is gone."""

    def forget(self, peer: bytes) -> None:
        """Drop everything that is stored for a worker."""

    def stop_workers(self) -> None:
        """Stop the workers that the link itself can stop, before the launcher is closed."""

    def close(self, *, failed: bool = False) -> None:
        """Close the link for good, after the launcher. `failed`: whether any call has failed."""


class LastingLink(Link, Protocol):
    """A link of which some workers outlive this process and go on with the next."""

    def lasts(self, peer: bytes) -> bool:
        """Return whether a worker outlives this process."""

    def take_receipts(self) -> dict[bytes, int]:
        """Return, per worker, the number of the latest message that has arrived since the previous
        call.
        """

    def acknowledge(self, receipts: Mapping[bytes, int]) -> None:
        """Acknowledge messages to workers, which then need not store them any more."""
