"""What runners write to their standard output and error: kept within bounds, and passed on whole,
line by line.

Where the reader is slow nothing is dropped: from a pipe of a runner no more is read, and the runner
waits in its `write`, as a process that writes to the reader itself would. The agent never waits: a
thread for each stream does.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import io
import logging
import math
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import Protocol

log = logging.getLogger("gridengine")

_READ = 64 * 1024
_STEP = 4096
"""How much is written at a time: of this much, whole lines, nothing that others write comes in
between (pipe(7), PIPE_BUF).
"""
_MOST_PENDING = 256 * 1024
_HOLD_SECONDS = 0.1
"""How long the beginning of a line waits for its end, lest what another runner writes comes
between.
"""
PATIENCE_SECONDS = 5.0
"""At the end, after how long of taking nothing a reader is not waited for any more."""


class Kept:
    """The first and the last of a stream of bytes, `limit` of them in all, and how many were left
    out between.
    """

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        """Add what was written next."""
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit + _READ:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]
            self._left_out += excess

    def content(self) -> bytes:
        """Return what is kept, with a line that says how much was left out, where it was."""
        self._trim()
        gap = f"\n[... {self._left_out} bytes left out ...]\n".encode() if self._left_out else b""
        return bytes(self._head) + gap + bytes(self._tail)


class Sink(Protocol):
    """What takes what runners write. It never waits; while it is `full` no more is to be read for
    it.
    """

    @property
    def full(self) -> bool: ...
    def write(self, data: bytes) -> None: ...


class Outlet:
    """A descriptor of our own to which a thread passes on what runners write, as fast as its reader
    takes it.

    Args:
        fd: the descriptor; others may share it, so it is not made non-blocking. None is nowhere.
        name: for people.
        wake: called in the thread when there is room again, or something was passed on, after
            `awaited` was set.
    """

    def __init__(self, fd: int | None, name: str, wake: Callable[[], None]) -> None:
        self._fd = fd
        self._name = name
        self._wake = wake
        self.awaited = False
        self.accepted = 0
        """How many bytes were written to it."""
        self.passed = 0
        """How many of them need not be waited for any more: the descriptor has taken them, or they
        are lost.
        """
        self._lost = 0
        self._why = ""
        self._failed = False
        """Whether bytes were lost since they could not be written, and not since their reader was
        waited for in vain.
        """
        self._pending = bytearray()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False

    @property
    def full(self) -> bool:
        """Whether more waits for the reader than should."""
        return self.accepted - self.passed > _MOST_PENDING

    def start(self) -> None:
        """Start the thread, if it is not there. From Python 3.12 on none starts once the
        interpreter ends, and jobs may print then.
        """
        with self._changed:
            if self._fd is not None and self._thread is None:
                self._ended = False
                self._thread = threading.Thread(
                    target=self._work,
                    name=f"gridengine-{self._name.replace(' ', '-')}",
                    daemon=True,
                )
                self._thread.start()

    def write(self, data: bytes) -> None:
        """Pass this on when the reader has taken what was written before."""
        if not data:
            return
        with self._changed:
            self.accepted += len(data)
            if self._fd is None:
                self.passed = self.accepted
                return
            self._pending += data
            self.start()
            self._changed.notify_all()

    def wait(self, mark: int, seconds: float | None) -> bool:
        """Wait until the first `mark` bytes are passed on, or so many seconds; return whether they
        are.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self.passed >= mark, seconds)

    def end(self) -> None:
        """Say that no more will come: the thread ends when the reader has taken what there is, and
        the interpreter's end is a `close`.
        """
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            if self._thread is not None:
                atexit.register(self.close)

    def close(self) -> None:
        """Wait for the reader as long as it takes something; what it leaves for `PATIENCE_SECONDS`
        is dropped. May be called twice.

        How much was dropped, or could not be written, is logged.
        """
        self.end()
        with self._changed:
            before = -1
            while self._thread is not None and self.passed > before:
                before = self.passed
                over = partial(self._is_over, before)
                self._changed.wait_for(over, PATIENCE_SECONDS)
        self.drop(f"its reader took nothing for {PATIENCE_SECONDS:g} s")

    def _is_over(self, before: int) -> bool:
        return self._thread is None or self.passed > before

    def drop(self, why: str) -> None:
        """Drop what the reader has not taken; how much, and why, is logged."""
        with self._changed:
            if self._thread is not None:
                self._lost += self.accepted - self.passed
                self.passed = self.accepted
                self._why, self._failed, self._thread = why, False, None
                self._pending.clear()
        atexit.unregister(self.close)
        self._tell()

    def _work(self) -> None:
        while data := self._next():
            for step in _steps(data):
                self._put(step)
                if self._is_dropped():
                    return
            if self.awaited:
                self.awaited = False
                self._wake()
        atexit.unregister(self.close)

    def _is_dropped(self) -> bool:
        """Whether what this thread was to write is not waited for any more: all about it has been
        said.
        """
        return self._thread is not threading.current_thread()

    def _next(self) -> bytes:
        """Return what there is to pass on, nothing at the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._ended)
                if self._pending:
                    data, self._pending = bytes(self._pending), bytearray()
                    return data
                if not self._lost:
                    self._thread = None
                    self._changed.notify_all()
                    return b""
            self._tell()  # before the end: who waits for it may be the interpreter's

    def _put(self, step: memoryview) -> None:
        """Write what is left to be written, however long its reader takes."""
        assert self._fd is not None
        while step and not self._is_dropped():
            lost = 0
            try:
                count = os.write(self._fd, step)
            except BlockingIOError:  # somebody else has made it non-blocking
                select.select([], [self._fd], [])
                continue
            except OSError as error:  # closed, full or gone; later there may be room again
                if self._is_dropped():
                    return
                count = lost = len(step)
                self._complain(error)
            step = step[count:]
            with self._changed:
                if not self._is_dropped():
                    self.passed += count
                    self._lost += lost
                    self._changed.notify_all()

    def _complain(self, error: OSError) -> None:
        why = error.strerror or str(error)
        if self._why != why:
            self._why, self._failed = why, True
            log.error("what runners print cannot be written to %s: %s", self._name, why)

    def _tell(self) -> None:
        """Say how much was lost."""
        with self._changed:
            lost, self._lost = self._lost, 0
        if lost:
            log.error(
                "%d bytes that runners printed were not written to %s: %s",
                lost,
                self._name,
                self._why,
            )
            if self._failed:
                _leave_mark(self._fd, lost)


def _leave_mark(fd: int | None, lost: int) -> None:
    """Print how much is missing, as a script prints: where that cannot be written either, Python's
    status at its end is 120.
    """
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(OSError, ValueError):  # it cannot be written, or is closed
            if isinstance(stream, io.TextIOWrapper) and stream.fileno() == fd:
                stream.reconfigure(
                    write_through=False
                )  # `python -u` would forget what it cannot write before the flush at the end
                stream.write(f"[... {lost} bytes lost ...]\n")


def _steps(data: bytes) -> Iterator[memoryview]:
    """Cut data into pieces that are written at once: of whole lines, where they are not too
    long.
    """
    start, view = 0, memoryview(data)
    while start < len(data):
        stop = min(start + _STEP, len(data))
        if stop < len(data):
            stop = data.rfind(b"\n", start, stop) + 1 or stop
        yield view[start:stop]
        start = stop


class Outlets:
    """The standard output and error of this process. What is for one that was closed when Python
    began goes nowhere, as with `print`.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.stdout = Outlet(None if sys.__stdout__ is None else 1, "standard output", wake)
        self.stderr = Outlet(None if sys.__stderr__ is None else 2, "standard error", wake)

    def __iter__(self) -> Iterator[Outlet]:
        return iter((self.stdout, self.stderr))

    def flush(self, seconds: float | None = None) -> None:
        """Wait until what was written up to now is passed on, or so many seconds, at most
        `PATIENCE_SECONDS`.
        """
        until = monotonic() + (
            PATIENCE_SECONDS if seconds is None else min(seconds, PATIENCE_SECONDS)
        )
        for outlet, mark in [(outlet, outlet.accepted) for outlet in self]:
            outlet.wait(mark, max(0.0, until - monotonic()))

    def end(self) -> None:
        """Say that no more will come."""
        for outlet in self:
            outlet.end()

    def drop(self, why: str) -> None:
        """Drop what the readers have not taken; how much, and why, is logged."""
        for outlet in self:
            outlet.drop(why)

    def close(self) -> None:
        """Wait for the readers, within reason (see `Outlet.close`). May be called twice."""
        for outlet in self:
            outlet.close()


class Tap:
    """The read end of a runner's output pipe: drained, passed on line by line, and kept while
    somebody wants it kept.
    """

    def __init__(self, fd: int, sink: Sink) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._sink = sink
        self._line = b""
        self._pass_at = 0.0
        self.also: Sink | None = None
        """Where else it is passed on to, for now."""
        self.kept: Kept | None = None
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
            if self.kept is not None:
                self.kept.add(data)
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
            self._pass_at = self._pass_at if self._line else monotonic() + _HOLD_SECONDS
            self._line += data[whole:]

    def _pass(self, data: bytes) -> None:
        self._sink.write(data)
        if self.also is not None:
            self.also.write(data)

    def press(self, now: float) -> float:
        """Pass on the beginning of a line that has waited for its end for long enough; return after
        how many seconds to be called again.
        """
        if not self._line:
            return math.inf
        if now >= self._pass_at:
            self.let_go()
            return math.inf
        return self._pass_at - now

    @property
    def holds(self) -> bool:
        """Whether the beginning of a line waits for its end."""
        return bool(self._line)

    def let_go(self) -> None:
        """Pass on the beginning of a line, whether or not its end is still to come."""
        line, self._line = self._line, b""
        self._pass(line)

    def close(self) -> None:
        """Close the pipe."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


class Taps:
    """The taps of an agent: each is read when there is something, while those who take it have
    room.

    Args:
        outlets: of those who take it, those whose room wakes whoever calls `tick`.
        watch: has a function called whenever a descriptor is readable.
        unwatch: undoes that.
    """

    def __init__(
        self,
        outlets: Outlets,
        watch: Callable[[int, Callable[[int], None]], None],
        unwatch: Callable[[int], None],
    ) -> None:
        self._outlets = outlets
        self._watch = watch
        self._unwatch = unwatch
        self._full: dict[Tap, None] = {}
        self._held: dict[Tap, None] = {}

    def read(self, tap: Tap) -> None:
        """Read a tap from here on."""
        self._watch(tap.fileno(), partial(self._drain, tap))

    def remove(self, tap: Tap) -> None:
        """Read a tap no more."""
        self._unwatch(tap.fileno())
        self._full.pop(tap, None)
        self._held.pop(tap, None)

    def tick(self, now: float) -> float:
        """Go on with what could not be read before, and with lines that wait; return after how many
        seconds to be called again.
        """
        if self._full:
            self._go_on()
        wait = math.inf
        for tap in list(self._held):
            wait = min(wait, tap.press(now))
            if not tap.holds:
                del self._held[tap]
        return wait

    def _drain(self, tap: Tap, events: int) -> None:
        tap.drain()
        if tap.holds:
            self._held[tap] = None
        if tap.ended:
            self._unwatch(tap.fileno())
        elif tap.full:
            self._unwatch(tap.fileno())
            self._full[tap] = None
            self._go_on()

    def _go_on(self) -> None:
        """Read again what was not read for want of room, where there is room now."""
        for outlet in self._outlets:
            outlet.awaited = True  # before looking: room that comes after that wakes us
        for tap in [tap for tap in self._full if not tap.full]:
            del self._full[tap]
            self.read(tap)
