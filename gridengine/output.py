"""What runners write to their standard output and error: kept within bounds, and passed on without ever waiting."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select

_READ = 64 * 1024
_STEP = 4096
"""How much is written at a time: a pipe that polls as writable takes this much without waiting (pipe(7), PIPE_BUF)."""
_MOST_PENDING = 1 << 20


class Kept:
    """The first and the last of a stream of bytes, `limit` of them in all, and how many were left out between."""

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


class Outlet:
    """A descriptor of our own, to which what runners write is passed on; what it does not take soon is dropped.

    The descriptor is not made non-blocking, for others share it (a terminal): it is asked before each step.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pending = bytearray()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def write(self, data: bytes) -> None:
        """Pass on what is taken now, keep up to 1 MiB of the rest for `flush`."""
        self._pending += data
        self.flush()
        del self._pending[_MOST_PENDING:]

    def flush(self) -> bool:
        """Pass on what is taken now; return whether nothing is left."""
        try:
            while self._pending and self._poll.poll(0):
                del self._pending[: os.write(self._fd, self._pending[:_STEP])]
        except BlockingIOError:
            return False
        except OSError:  # closed, full or gone: there is nobody to tell
            self._pending.clear()
        return not self._pending


class Tap:
    """The read end of a runner's output pipe: drained, passed on to an outlet, and kept while somebody wants it kept."""

    def __init__(self, fd: int, outlet: Outlet) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._outlet = outlet
        self.kept: Kept | None = None
        self.ended = False

    def fileno(self) -> int:
        return self._fd

    def drain(self) -> None:
        """Read what has been written up to now, and not what a process that never stops writing adds meanwhile."""
        left = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)
        while left > 0 and not self.ended:
            try:
                data = os.read(self._fd, _READ)
            except BlockingIOError:
                return
            self.ended = not data
            left -= len(data)
            self._outlet.write(data)
            if self.kept is not None:
                self.kept.add(data)

    def close(self) -> None:
        """Close the pipe."""
        with contextlib.suppress(OSError):
            os.close(self._fd)
