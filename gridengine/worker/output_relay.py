"""Forward the output of jobs to their caller's standard output and error, no faster than the caller
takes it.

The caller gives credit when its streams have taken output; without that, a slow terminal would fill
the dispatcher's memory. Each run has a window of its own, not each worker: on a dispatcher's own
machine one worker serves all clients, and a client that is suspended must not keep the others' jobs
waiting. A stand-alone dispatcher forwards `Output` to the client and the client's credit to the
worker. It waits for no client that is gone, and keeps no more than the windows for clients that may
come back. Logs get the output of jobs, too, because errors show a log's end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Message, Output, OutputTaken
from gridengine.worker.stream_writer import StandardStreams, StreamWriter

WINDOW_BYTES = 64 * 1024
"""How much of a run's output may be under way. The window is per run, so that a slow caller keeps
no job of another caller waiting.
"""


class Relay(Struct, eq=False):
    """The worker's side: sends the output of each run at most one window ahead of what its caller's
    streams have taken.

    Args:
        alone: whether the output of watched runs goes nowhere else, because there is no log.
    """

    _send: Callable[[Message, Payload], None]
    alone: bool = False
    _under_way: dict[int, int] = {}

    def is_full(self, run: int) -> bool:
        """Whether a run's output must wait for now."""
        return self._under_way.get(run, 0) >= WINDOW_BYTES

    def send(self, run: int, stream: int, data: bytes) -> None:
        """Send a run's standard output (1) or error (2)."""
        if data:
            self._under_way[run] = self._under_way.get(run, 0) + len(data)
            self._send(Output(run, stream), [data])

    def begin_again(self, under_way: Mapping[int, int]) -> None:
        """Set how many bytes of each run are under way to a new dispatcher; of other runs
        none are.
        """
        self._under_way = dict(under_way)

    def taken(self, run: int, count: int) -> None:
        """Note that the caller's streams have taken this many bytes of a run."""
        left = self._under_way.pop(run, 0) - count
        if left > 0:
            self._under_way[run] = left


class RunOutput(Struct, frozen=True):
    """A `Sink` for one of a run's streams, which sends to the run's caller."""

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
    """The caller's side: writes the output that workers send, and counts how much of each run was
    taken.
    """

    def __init__(self, streams: StandardStreams) -> None:
        self._streams: list[tuple[StreamWriter, deque[tuple[int, bytes, int, int]]]] = [
            (stream, deque()) for stream in streams
        ]

    def take(self, worker: bytes, message: Output, data: bytes) -> None:
        """Write output that a worker sent."""
        stream, under_way = self._streams[message.stream - 1]
        stream.write(data)
        under_way.append((stream.accepted, worker, message.run, len(data)))

    def taken(self) -> Iterator[tuple[bytes, OutputTaken]]:
        """Yield, for each worker, the `OutputTaken` messages that it must be sent since the last
        call.
        """
        for stream, under_way in self._streams:
            if under_way:
                stream.awaited = True  # set before looking, so that later progress wakes us
            while under_way and under_way[0][0] <= stream.passed:
                _, worker, run, count = under_way.popleft()
                yield worker, OutputTaken(count, run)
