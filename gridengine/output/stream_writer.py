"""Write the runners' output to this process's own standard output and error, and bound how much of
it is stored: in memory (`OutputExcerpt`), or in the log of a cluster worker (`LogLimit`).

Nothing is dropped when the reader is slow. The agent stops reading the runner's pipe, and the
runner blocks in its `write`, like a process that writes to the reader itself. The agent never
waits: a thread for each stream does.

Rejected: polling the descriptor in the I/O thread. A terminal or a full pipe can block although it
polled as writable, and a pipe promises 4 KB at a time. Pieces of whole lines of at most 4 KB keep
lines whole.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import io
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic

from gridengine.display import log
from gridengine.system.machine import own_path
from gridengine.threads import once

_SLACK = 64 * 1024
"""By how much the end may grow before it is cut."""


class OutputExcerpt:
    """The first and last bytes of a stream, `limit` in all, and how many were left out."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit + _SLACK:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]
            self._left_out += excess

    def content(self) -> bytes:
        """Return the excerpt; in the gap, a line says how many bytes were left out."""
        self._trim()
        gap = f"\n[... {self._left_out} bytes left out ...]\n".encode() if self._left_out else b""
        return bytes(self._head) + gap + bytes(self._tail)


class LogLimit:
    """Cuts the middle out of the file of a descriptor whenever the file is larger than `limit`
    bytes. A descriptor that is not a regular file is left alone.

    Data that is written during a cut may be lost.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        self._limit = limit
        self._left_out = 0
        # Where the first gap began, and where the line that describes the gap ends now.
        self._gap = self._gap_end = 0
        self._descriptor = descriptor
        try:
            self._bounded = stat.S_ISREG(os.fstat(descriptor).st_mode)
            if self._bounded:
                # Without O_APPEND, a process that shares the descriptor would write on at the old
                # end, and leave a hole.
                flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)
        except OSError:  # the descriptor is closed
            self._bounded = False

    def check(self) -> None:
        """Cut the file if it is too long."""
        if not self._bounded:
            return
        try:
            size = os.fstat(self._descriptor).st_size
            if size > self._limit:
                self._cut(size)
        except OSError:  # the file is gone, such as on a lost file system
            self._bounded = False

    def _cut(self, size: int) -> None:
        part = self._limit // 4
        # Open the file anew: the descriptor itself cannot be read, and writes only at the end.
        file = os.open(own_path(self._descriptor), os.O_RDWR | os.O_CLOEXEC)
        try:
            if not self._gap_end:
                self._gap = self._gap_end = os.pread(file, part, 0).rfind(b"\n") + 1
            tail = os.pread(file, part, size - part)
            tail = tail[tail.find(b"\n", 0, -1) + 1 :]  # whole lines, or the end of one long line
            self._left_out += size - self._gap_end - len(tail)
            gap = f"[... {self._left_out} bytes left out, by the setting log_bytes ...]\n".encode()
            os.pwrite(file, gap + tail, self._gap)
            self._gap_end = self._gap + len(gap)
            os.ftruncate(file, self._gap_end + len(tail))
        finally:
            os.close(file)


_STEP = 4096
"""How much is written at a time. A write of this much is atomic (pipe(7), PIPE_BUF), and consists
of whole lines.
"""
_MOST_PENDING = 256 * 1024
PATIENCE_SECONDS = 5.0
"""At the end, a reader that takes nothing for so long is not waited for any more."""
_WRITE_SECONDS = 1.0
"""How long a write may take for which the descriptor had room."""


class Writing:
    """How this process writes to descriptors; progress bars replace it while they are shown."""

    write: Callable[[int, memoryview], int] = staticmethod(os.write)


@once
def writing() -> Writing:
    """Return how this process writes to descriptors."""
    return Writing()


class StreamWriter:
    """A thread that writes runners' output to a descriptor of this process, as fast as its reader
    takes it.

    Args:
        fd: the descriptor. Others may share it, so it is not made non-blocking. None discards the
            output.
        name: for people.
        wake: called in the thread when there is room again, or bytes were passed on, if `awaited`
            was set.
        excerpt: records a part of the output, to be read later.
    """

    def __init__(
        self,
        fd: int | None,
        name: str,
        wake: Callable[[], None],
        excerpt: OutputExcerpt | None = None,
    ) -> None:
        self._fd = fd
        self._name = name
        self._wake = wake
        self._excerpt = excerpt
        self.awaited = False
        self.accepted = 0
        """How many bytes were written to this object."""
        self.passed = 0
        """How many of the accepted bytes are done with: the descriptor has taken them, or they are
        lost.
        """
        self._is_writing = False
        """Whether a write is in progress, or has returned and is not counted yet."""
        self._lost = 0
        self._why = ""
        self._failed = False
        """Whether bytes were lost because they could not be written. False if they were dropped
        because their reader was too slow.
        """
        self._pending = bytearray()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False

    @property
    def full(self) -> bool:
        """Whether too much waits for the reader."""
        return self.accepted - self.passed > _MOST_PENDING

    def start(self) -> None:
        """Start the thread if it does not run. From Python 3.12 on no thread starts once the
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
        """Queue data for the reader."""
        if not data:
            return
        if self._excerpt is not None:
            self._excerpt.add(data)
        with self._changed:
            self.accepted += len(data)
            if self._fd is None:
                self.passed = self.accepted
                return
            self._pending += data
            self.start()
            self._changed.notify_all()

    def wait(self, mark: int, seconds: float | None) -> bool:
        """Wait until the first `mark` bytes are passed on, at most this many seconds. Return
        whether they are.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self.passed >= mark, seconds)

    def end(self) -> None:
        """Accept nothing more. The thread ends when the reader has taken everything. `close` runs
        when the interpreter ends.
        """
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            if self._thread is not None:
                atexit.register(self.close)

    def close(self) -> None:
        """Wait for the reader as long as it takes something. Drop the rest when it takes nothing
        for `PATIENCE_SECONDS`. May be called twice.

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
        """Drop the data that the reader has not taken; log how much, and why."""
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
        """Whether this thread's remaining data was dropped, which has been logged."""
        return self._thread is not threading.current_thread()

    def _take_pending(self) -> bytes:
        """Wait for data and return it; empty at the end."""
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
            self._log_lost()  # before the thread ends: the interpreter's end may wait for it

    def _write_all(self, piece: memoryview) -> None:
        """Write a piece, however long its reader takes."""
        assert self._fd is not None
        room = select.poll()  # unlike select(2) it takes any descriptor
        room.register(self._fd, select.POLLOUT)
        while piece:
            lost = 0
            try:
                room.poll()
                if not self._begin_write():
                    return
                count = writing().write(self._fd, piece)
            except BlockingIOError:  # another process made the descriptor non-blocking, and full
                count = 0
            except OSError as error:  # closed, full or gone; later writes may succeed again
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
        """Note that a write begins; return False if it must not, as everything was dropped."""
        with self._changed:
            self._is_writing = not self._is_dropped()
            return self._is_writing

    def _log_error(self, error: OSError) -> None:
        why = error.strerror or str(error)
        if self._why != why:
            self._why, self._failed = why, True
            log().error("the output of runners cannot be written to %s: %s", self._name, why)

    def _log_lost(self) -> None:
        with self._changed:
            lost, self._lost = self._lost, 0
        if lost:
            log().error(
                "%d bytes that runners printed were not written to %s: %s",
                lost,
                self._name,
                self._why,
            )
            if self._failed:
                _print_lost(self._fd, lost)


def _print_lost(fd: int | None, lost: int) -> None:
    """Print how many bytes are missing, by Python's own stream: if that cannot be written either,
    Python's exit status is 120, as for a script.
    """
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(OSError, ValueError):  # the stream is closed, or not writable
            if isinstance(stream, io.TextIOWrapper) and stream.fileno() == fd:
                # With `python -u` the text would be lost before the flush at the end.
                stream.reconfigure(write_through=False)
                stream.write(f"[... {lost} bytes lost ...]\n")


def _pieces(data: bytes) -> Iterator[memoryview]:
    """Cut data into pieces that are written at once, of whole lines where these are short."""
    start, view = 0, memoryview(data)
    while start < len(data):
        stop = min(start + _STEP, len(data))
        if stop < len(data):
            stop = data.rfind(b"\n", start, stop) + 1 or stop
        yield view[start:stop]
        start = stop


class StandardStreams:
    """The standard output and error of this process, or descriptors in their place. Output for a
    stream that was closed when Python began is discarded, as by `print`.

    Args:
        wake: see `StreamWriter`.
        descriptors: the descriptors in their place.
        excerpt: records a part of both, to be read later.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        descriptors: tuple[int | None, int | None] | None = None,
        excerpt: OutputExcerpt | None = None,
    ) -> None:
        ours = None if sys.__stdout__ is None else 1, None if sys.__stderr__ is None else 2
        stdout, stderr = descriptors or ours
        self.stdout = StreamWriter(stdout, "standard output", wake, excerpt)
        self.stderr = StreamWriter(stderr, "standard error", wake, excerpt)
        self.excerpt = excerpt

    def __iter__(self) -> Iterator[StreamWriter]:
        return iter((self.stdout, self.stderr))

    def flush(self, seconds: float | None = None) -> None:
        """Wait until everything written up to now is passed on, at most this many seconds and never
        more than `PATIENCE_SECONDS`.
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
        """Wait for the readers, within limits (see `StreamWriter.close`). May be called twice."""
        for stream in self:
            stream.close()
