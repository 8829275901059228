"""What runners print, on its way to this process's own standard output and error.

Where the reader is slow nothing is dropped: from a pipe of a runner no more is read, and the runner
waits in its `write`, as a process that writes to the reader itself would. The agent never waits: a
thread for each stream does.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import select
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic

from gridengine.worker.output_excerpt import OutputExcerpt
from gridengine.worker.terminal_line import write_above

log = logging.getLogger("gridengine")

_STEP = 4096
"""How much is written at a time: of this much, whole lines, nothing that others write comes in
between (pipe(7), PIPE_BUF).
"""
_MOST_PENDING = 256 * 1024
PATIENCE_SECONDS = 5.0
"""At the end, after how long of taking nothing a reader is not waited for any more."""
_WRITE_SECONDS = 1.0
"""How long a write may take for which the descriptor had room."""


class StreamWriter:
    """A thread that writes to a descriptor of this process what runners print, as fast as its
    reader takes it.

    Args:
        fd: the descriptor; others may share it, so it is not made non-blocking. None is nowhere.
        name: for people.
        wake: called in the thread when there is room again, or something was passed on, after
            `awaited` was set.
        kept: what of it can be looked at later.
    """

    def __init__(
        self,
        fd: int | None,
        name: str,
        wake: Callable[[], None],
        kept: OutputExcerpt | None = None,
    ) -> None:
        self._fd = fd
        self._name = name
        self._wake = wake
        self._kept = kept
        self.awaited = False
        self.accepted = 0
        """How many bytes were written to it."""
        self.passed = 0
        """How many of them need not be waited for any more: the descriptor has taken them, or they
        are lost.
        """
        self._is_writing = False
        """Whether a write is under way that is about to return, or has, and is not counted yet."""
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
                    target=self._run,
                    name=f"gridengine-{self._name.replace(' ', '-')}",
                    daemon=True,
                )
                self._thread.start()

    def write(self, data: bytes) -> None:
        """Pass this on when the reader has taken what was written before."""
        if not data:
            return
        if self._kept is not None:
            self._kept.add(data)
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
        """Write nothing more: the thread ends when the reader has taken what there is, and
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
            self._changed.wait_for(lambda: not self._is_writing, _WRITE_SECONDS)
            if self._thread is not None:
                self._lost += self.accepted - self.passed
                self.passed = self.accepted
                self._why, self._failed, self._thread = why, False, None
                self._pending.clear()
        atexit.unregister(self.close)
        self._log_lost()

    def _run(self) -> None:
        while data := self._take_pending():
            for piece in _pieces(data):
                self._write_all(piece)
                if self._is_dropped():
                    return
            if self.awaited:
                self.awaited = False
                self._wake()
        atexit.unregister(self.close)

    def _is_dropped(self) -> bool:
        """Whether what this thread was to write is not waited for any more: all about it has been
        logged.
        """
        return self._thread is not threading.current_thread()

    def _take_pending(self) -> bytes:
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
            self._log_lost()  # before the end: who waits for it may be the interpreter's

    def _write_all(self, piece: memoryview) -> None:
        """Write what is left to be written, however long its reader takes."""
        assert self._fd is not None
        room = select.poll()  # unlike select(2) it takes any descriptor
        room.register(self._fd, select.POLLOUT)
        while piece:
            lost = 0
            try:
                room.poll()
                if not self._begin_write():
                    return
                count = write_above(self._fd, piece)
            except BlockingIOError:  # somebody else has made it non-blocking, and filled it
                count = 0
            except OSError as error:  # closed, full or gone; later there may be room again
                if self._is_dropped():
                    return
                count = lost = len(piece)
                self._log_error(error)
            piece = piece[count:]
            with self._changed:
                self._is_writing = False
                if not self._is_dropped():
                    self.passed += count
                    self._lost += lost
                self._changed.notify_all()

    def _begin_write(self) -> bool:
        """Note that a write begins; return False when it is not to, since all was dropped."""
        with self._changed:
            self._is_writing = not self._is_dropped()
            return self._is_writing

    def _log_error(self, error: OSError) -> None:
        why = error.strerror or str(error)
        if self._why != why:
            self._why, self._failed = why, True
            log.error("what runners print cannot be written to %s: %s", self._name, why)

    def _log_lost(self) -> None:
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
                _print_lost(self._fd, lost)


def _print_lost(fd: int | None, lost: int) -> None:
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


def _pieces(data: bytes) -> Iterator[memoryview]:
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


def standard_descriptors() -> tuple[int | None, int | None]:
    """Return those of this process's standard output and error; None for one that was closed when
    Python began.
    """
    return None if sys.__stdout__ is None else 1, None if sys.__stderr__ is None else 2


class StandardStreams:
    """The standard output and error of this process, or what has their place. What is for one that
    was closed when Python began goes nowhere, as with `print`.

    Args:
        wake: see `StreamWriter`.
        descriptors: what has their place.
        kept: what of both can be looked at later.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        descriptors: tuple[int | None, int | None] | None = None,
        kept: OutputExcerpt | None = None,
    ) -> None:
        stdout, stderr = descriptors or standard_descriptors()
        self.stdout = StreamWriter(stdout, "standard output", wake, kept)
        self.stderr = StreamWriter(stderr, "standard error", wake, kept)
        self.kept = kept

    def __iter__(self) -> Iterator[StreamWriter]:
        return iter((self.stdout, self.stderr))

    def flush(self, seconds: float | None = None) -> None:
        """Wait until what was written up to now is passed on, or so many seconds, at most
        `PATIENCE_SECONDS`.
        """
        until = monotonic() + (
            PATIENCE_SECONDS if seconds is None else min(seconds, PATIENCE_SECONDS)
        )
        for stream, mark in [(stream, stream.accepted) for stream in self]:
            stream.wait(mark, max(0.0, until - monotonic()))

    def end(self) -> None:
        for stream in self:
            stream.end()

    def drop(self, why: str) -> None:
        for stream in self:
            stream.drop(why)

    def close(self) -> None:
        """Wait for the readers, within reason (see `StreamWriter.close`). May be called twice."""
        for stream in self:
            stream.close()
