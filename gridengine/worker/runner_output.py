"""Read the runners' standard output and error: pass it on line by line, record it within bounds,
and forward it to the jobs' caller, no faster than the caller takes it.

The caller gives credit when its streams have taken output; without that, a slow terminal would fill
the dispatcher's memory. Each run has a window of its own, not each worker: on a dispatcher's own
machine one worker serves all clients, and a client that is suspended must not keep the others' jobs
waiting. A stand-alone dispatcher forwards `Output` to the client and the client's credit to the
worker. It waits for no client that is gone, and keeps no more than the windows for clients that may
come back. Logs get the output of jobs, too, because errors show a log's end.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from gridengine.output.stream_writer import OutputExcerpt, StandardStreams, StreamWriter
from gridengine.serialize.payload import Payload
from gridengine.system.machine import pipe_bytes
from gridengine.system.polling import Poller
from gridengine.wire.messages import Message, Output

_READ = 64 * 1024
_HOLD_SECONDS = 0.1
"""How long the beginning of a line waits for its end, lest another runner's output come between."""


class OutputReader:
    """The read end of a runner's output pipe. Its data is passed on line by line, and recorded
    while `excerpt` is set.

    Args:
        sink: where the data goes. Like `also`, it never waits; while it is `full`, nothing is read.
    """

    def __init__(self, fd: int, sink: StreamWriter) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._sink = sink
        self._line = b""
        self._pass_at: float | None = None
        """When to pass on the incomplete line; None before `pass_late_line` has seen it."""
        self.also: RunOutput | None = None
        """The sink of the run's caller; the only one if it is `alone`."""
        self.excerpt: OutputExcerpt | None = None
        self.ended = False

    def fileno(self) -> int:
        return self._fd

    @property
    def full(self) -> bool:
        """Whether reading must stop for now."""
        return self._sink.full or (self.also is not None and self.also.full)

    def drain(self) -> None:
        """Read everything written up to now, but not the data that a process which never stops
        writing adds meanwhile.
        """
        left = pipe_bytes(self._fd)
        while left > 0 and not self.ended:
            try:
                data = os.read(self._fd, _READ)
            except BlockingIOError:
                return
            self.ended = not data
            left -= len(data)
            if self.excerpt is not None:
                self.excerpt.add(data)
            self._add(data)

    def _add(self, data: bytes) -> None:
        """Pass on the whole lines. An incomplete line waits for its end, unless it is too long."""
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if self.ended or len(self._line) + len(data) - whole > _READ:
            whole = len(data)
        if whole or self.ended:
            self._pass(self._line + data[:whole])
            self._line = b""
        if whole < len(data):
            self._pass_at = self._pass_at if self._line else None
            self._line += data[whole:]

    def _pass(self, data: bytes) -> None:
        if self.also is None or not self.also.alone:
            self._sink.write(data)
        if self.also is not None:
            self.also.write(data)

    def pass_late_line(self, now: float) -> float:
        """Pass on an incomplete line that has waited long enough since the first call for it.
        Return after how many seconds to call this again.
        """
        if not self._line:
            return math.inf
        if self._pass_at is None:
            self._pass_at = now + _HOLD_SECONDS
        if now >= self._pass_at:
            self.pass_line()
            return math.inf
        return self._pass_at - now

    @property
    def has_line(self) -> bool:
        """Whether an incomplete line waits for its end."""
        return bool(self._line)

    def pass_line(self) -> None:
        """Pass on the incomplete line."""
        line, self._line = self._line, b""
        self._pass(line)

    def take_excerpt(self) -> bytes:
        """Return the recorded part of everything written up to now, and stop recording."""
        self.drain()
        self.pass_line()
        content = self.excerpt.content() if self.excerpt is not None else b""
        self.excerpt = self.also = None
        return content

    def close(self) -> None:
        """Close the pipe."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


class OutputReaders:
    """The output readers of an agent. Each reads when its pipe has data and its sinks have room.

    Args:
        streams: sinks that call the agent's `tick` again when they have room.
    """

    def __init__(self, streams: StandardStreams, poller: Poller) -> None:
        self.streams = streams
        self._poller = poller
        self._full: dict[OutputReader, None] = {}
        self._with_line: dict[OutputReader, None] = {}

    def add(self, reader: OutputReader) -> None:
        """Start reading."""
        self._poller.register(reader.fileno(), partial(self._drain, reader))

    def remove(self, reader: OutputReader) -> None:
        """Stop reading."""
        self._poller.unregister(reader.fileno())
        self._full.pop(reader, None)
        self._with_line.pop(reader, None)

    def tick(self, now: float) -> float:
        """Read again from pipes whose sinks were full, and pass on incomplete lines that have
        waited. Return after how many seconds to call this again.
        """
        if self._full:
            self._go_on()
        wait = math.inf
        for reader in list(self._with_line):
            wait = min(wait, reader.pass_late_line(now))
            if not reader.has_line:
                del self._with_line[reader]
        return wait

    def _drain(self, reader: OutputReader) -> None:
        reader.drain()
        if reader.has_line:
            self._with_line[reader] = None
        if reader.ended:
            self._poller.unregister(reader.fileno())
        elif reader.full:
            self._poller.unregister(reader.fileno())
            self._full[reader] = None
            self._go_on()

    def _go_on(self) -> None:
        """Resume the readers whose sinks have room again."""
        for stream in self.streams:
            stream.awaited = True  # set before looking, so that later room wakes us
        for reader in [reader for reader in self._full if not reader.full]:
            del self._full[reader]
            self.add(reader)


WINDOW_BYTES = 64 * 1024
"""How much of a run's output may be under way. The window is per run, so that a slow caller keeps
no job of another caller waiting.
"""


class Relay(Struct, eq=False):
    """The worker's side: sends the output of each run at most one window ahead of the output that
    its caller's streams have taken.

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
        """Set how many bytes of each listed run (else none) are on the way to a new dispatcher."""
        self._under_way = dict(under_way)

    def taken(self, run: int, count: int) -> None:
        """Note that the caller's streams have taken this many bytes of a run."""
        left = self._under_way.pop(run, 0) - count
        if left > 0:
            self._under_way[run] = left


class RunOutput(Struct, frozen=True):
    """Sends one of a run's streams to the run's caller."""

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
