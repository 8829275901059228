"""Forwards what jobs print to the standard output and error of their caller, no more at a time
than is taken there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Message, Output, OutputTaken
from gridengine.worker.stream_writer import StandardStreams, StreamWriter

WINDOW_BYTES = 64 * 1024
"""How much of a run's output may be on its way: a caller who reads slowly keeps no job of another
caller waiting.
"""


class Relay(Struct, eq=False):
    """A worker's side: sends output, of each run no more than a window ahead of what its caller's
    streams have taken.

    Args:
        alone: whether nothing else has what watched runs write: there is no log of theirs.
    """

    _send: Callable[[Message, Payload], None]
    alone: bool = False
    _under_way: dict[int, int] = {}

    def is_full(self, run: int) -> bool:
        """Whether to send no more of a run for now."""
        return self._under_way.get(run, 0) >= WINDOW_BYTES

    def send(self, run: int, stream: int, data: bytes) -> None:
        """Send what a run wrote to its standard output (1) or error (2)."""
        if data:
            self._under_way[run] = self._under_way.get(run, 0) + len(data)
            self._send(Output(run, stream), [data])

    def begin_again(self, under_way: Mapping[int, int]) -> None:
        """Note that so many bytes of these runs are on their way to a new dispatcher, and no
        others.
        """
        self._under_way = dict(under_way)

    def taken(self, run: int, count: int) -> None:
        """Note that so many bytes of a run have been taken."""
        left = self._under_way.pop(run, 0) - count
        if left > 0:
            self._under_way[run] = left


class RunOutput(Struct, frozen=True):
    """A `Sink`: where what one run writes to one of its streams is passed on to."""

    relay: Relay
    run: int
    stream: int

    @property
    def full(self) -> bool:
        return self.relay.is_full(self.run)

    @property
    def alone(self) -> bool:
        return self.relay.alone

    def write(self, data: bytes) -> None:
        self.relay.send(self.run, self.stream, data)


class JobsOutput:
    """The caller's side: passes on what workers send, and counts how much of which run is taken."""

    def __init__(self, streams: StandardStreams) -> None:
        self._streams: list[tuple[StreamWriter, deque[tuple[int, bytes, int, int]]]] = [
            (stream, deque()) for stream in streams
        ]

    def take(self, worker: bytes, message: Output, data: bytes) -> None:
        """Pass on what a worker sent."""
        stream, under_way = self._streams[message.stream - 1]
        stream.write(data)
        under_way.append((stream.accepted, worker, message.run, len(data)))

    def taken(self) -> Iterator[tuple[bytes, OutputTaken]]:
        """Yield which worker is to be told of what has been taken since."""
        for stream, under_way in self._streams:
            if under_way:
                stream.awaited = True  # before looking: what is taken after that wakes us
            while under_way and under_way[0][0] <= stream.passed:
                _, worker, run, count = under_way.popleft()
                yield worker, OutputTaken(count, run)
