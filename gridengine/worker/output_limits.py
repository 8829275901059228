"""How much of a stream is stored: the beginning and the end of one that may have any length, in
memory (`OutputExcerpt`) or in the log of a cluster worker.
"""

from __future__ import annotations

import fcntl
import os
import stat

_SLACK = 64 * 1024
"""By how much the end may grow before it is cut."""


class OutputExcerpt:
    """The first and the last bytes of a stream, `limit` in all, and the number of bytes left out
    between.
    """

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
        """Return the excerpt, with a line in place of the gap that says how many bytes were left
        out.
        """
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
        file = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDWR | os.O_CLOEXEC)
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
