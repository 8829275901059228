"""Write the output that workers send for jobs to this process's own streams, and tell the workers
how much the streams have taken (`worker/runner_output` is the other end).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from gridengine.output.stream_writer import StandardStreams, StreamWriter
from gridengine.wire.messages import Output, OutputTaken


class JobsOutput:
    """The caller's side: writes workers' output, and counts how much of each run was taken."""

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
        """Yield, for each worker, the `OutputTaken` messages that are due since the last call."""
        for stream, under_way in self._streams:
            if under_way:
                stream.awaited = True  # set before looking, so that later progress wakes us
            while under_way and under_way[0][0] <= stream.passed:
                _, worker, run, count = under_way.popleft()
                yield worker, OutputTaken(count, run)
