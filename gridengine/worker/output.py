"""What runners write to their standard output and error: read, passed on whole, line by line, and
kept within bounds.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
from functools import partial
from typing import Protocol

from gridengine.worker.output_excerpt import OutputExcerpt
from gridengine.worker.poller import Poller
from gridengine.worker.stream_writer import StandardStreams

_READ = 64 * 1024
_HOLD_SECONDS = 0.1
"""How long the beginning of a line waits for its end, lest what another runner writes comes
between.
"""


class Sink(Protocol):
    """What takes what runners write. It never waits; while it is `full` no more is to be read for
    it.
    """

    @property
    def full(self) -> bool: ...
    def write(self, data: bytes) -> None: ...


class CallersSink(Sink, Protocol):
    """One for the caller of a run; if that is `alone`, nobody else has what the run writes."""

    @property
    def alone(self) -> bool: ...


class OutputReader:
    """The read end of a runner's output pipe: drained, passed on line by line, and kept while
    somebody wants it kept.
    """

    def __init__(self, fd: int, sink: Sink) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._sink = sink
        self._line = b""
        self._pass_at: float | None = None
        """When the beginning of a line is passed on; None before anybody has looked at it."""
        self.also: CallersSink | None = None
        """Where else it is passed on to, or there alone, for now."""
        self.excerpt: OutputExcerpt | None = None
        self.ended = False

    def fileno(self) -> int:
        return self._fd

    @property
    def full(self) -> bool:
        """Whether to read no more for now."""
        return self._sink.full or (self.also is not None and self.also.full)

    def drain(self) -> None:
        """Read what has been written up to now, and not what a process that never stops writing
        adds meanwhile.
        """
        left = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)
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
        """Pass on the whole lines; a line that has no end yet waits for it, if it is not too
        long.
        """
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
        """Pass on the beginning of a line that has waited for its end for long enough since this
        was first called for it; return after how many seconds to be called again.
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
        """Whether the beginning of a line waits for its end."""
        return bool(self._line)

    def pass_line(self) -> None:
        """Pass on the beginning of a line, whether or not its end is still to come."""
        line, self._line = self._line, b""
        self._pass(line)

    def take_excerpt(self) -> bytes:
        """Return what was kept of all that has been written up to now, and keep no more."""
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
    """The readers of an agent: each reads when there is something, while those who take it have
    room.

    Args:
        streams: of those who take it, those whose room wakes whoever calls `tick`.
    """

    def __init__(self, streams: StandardStreams, poller: Poller) -> None:
        self.streams = streams
        self._poller = poller
        self._full: dict[OutputReader, None] = {}
        self._with_line: dict[OutputReader, None] = {}

    def add(self, reader: OutputReader) -> None:
        """Read from here on."""
        self._poller.register(reader.fileno(), partial(self._drain, reader))

    def remove(self, reader: OutputReader) -> None:
        """Read no more."""
        self._poller.unregister(reader.fileno())
        self._full.pop(reader, None)
        self._with_line.pop(reader, None)

    def tick(self, now: float) -> float:
        """Go on with what could not be read before, and with lines that wait; return after how many
        seconds to be called again.
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
        """Read again what was not read for want of room, where there is room now."""
        for stream in self.streams:
            stream.awaited = True  # before looking: room that comes after that wakes us
        for reader in [reader for reader in self._full if not reader.full]:
            del self._full[reader]
            self.add(reader)
