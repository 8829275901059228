"""Forwards what jobs print to the standard output and error of their caller, no more at a time
than is taken there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct

from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Message, Output
from gridengine.worker.stream_writer import StandardStreams, StreamWriter

WINDOW_BYTES = 64 * 1024
"""How much of a worker's output may be on its way."""


class Relay(Struct, eq=False):
    """A worker's side: sends output, no more than a window ahead of what the caller's streams have
    taken.
    """

    _send: Callable[[Message, Payload], None]
    _under_way: int = 0

    @property
    def full(self) -> bool:
        """Whether to send no more for now."""
        return self._under_way >= WINDOW_BYTES

    def send(self, run: int, stream: int, data: bytes) -> None:
        """Send what a run wrote to its standard output (1) or error (2)."""
        if data:
            self._under_way += len(data)
            self._send(Output(run, stream), [data])

    def begin_again(self, under_way: int) -> None:
        """Note that so many bytes are on their way to a new dispatcher, and no others."""
        self._under_way = under_way

    def taken(self, count: int) -> None:
        """Note that so many bytes have been taken."""
        self._under_way -= count


class RunOutput(Struct, frozen=True):
    """A `Sink`: where what one run writes to one of its streams is passed on to."""

    relay: Relay
    run: int
    stream: int

    @property
    def full(self) -> bool:
        return self.relay.full

    def write(self, data: bytes) -> None:
        self.relay.send(self.run, self.stream, data)


class JobsOutput:
    """The caller's side: passes on what workers send, and counts how much of whose is taken."""

    def __init__(self, streams: StandardStreams) -> None:
        self._streams: list[tuple[StreamWriter, deque[tuple[int, bytes, int]]]] = [
            (stream, deque()) for stream in streams
        ]

    def take(self, worker: bytes, message: Output, data: bytes) -> None:
        """Pass on what a worker sent."""
        stream, under_way = self._streams[message.stream - 1]
        stream.write(data)
        under_way.append((stream.accepted, worker, len(data)))

    def taken(self) -> Iterator[tuple[bytes, int]]:
        """Yield how many bytes of which worker have been taken since."""
        for stream, under_way in self._streams:
            if under_way:
                stream.awaited = True  # before looking: what is taken after that wakes us
            while under_way and under_way[0][0] <= stream.passed:
                _, worker, count = under_way.popleft()
                yield worker, count
