"""Keeps the log of a cluster worker within bounds: its beginning and its end."""

from __future__ import annotations

import fcntl
import os
import stat


class LogLimit:
    """Cuts the middle out of the file that a descriptor writes to whenever it has grown beyond
    `limit` bytes. A descriptor of anything else is left alone.

    What is written while it is cut may be lost.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        self._limit = limit
        self._left_out = 0
        # Where what is left out stood, and where that line ends now which says so.
        self._gap = self._gap_end = 0
        self._descriptor = descriptor
        try:
            self._bounded = stat.S_ISREG(os.fstat(descriptor).st_mode)
            if self._bounded:
                # Else whoever shares it would write on where the end was, and leave a hole.
                flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)
        except OSError:  # it is closed
            self._bounded = False

    def check(self) -> None:
        """Cut the file, if it is too long."""
        if not self._bounded:
            return
        try:
            size = os.fstat(self._descriptor).st_size
            if size > self._limit:
                self._cut(size)
        except OSError:  # it is no longer there, say, on a file system that was lost
            self._bounded = False

    def _cut(self, size: int) -> None:
        part = self._limit // 4
        # The descriptor itself cannot be read by, nor written to but at the end.
        file = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDWR | os.O_CLOEXEC)
        try:
            if not self._gap_end:
                self._gap = self._gap_end = os.pread(file, part, 0).rfind(b"\n") + 1
            tail = os.pread(file, part, size - part)
            tail = tail[tail.find(b"\n", 0, -1) + 1 :]  # of one long line the end
            self._left_out += size - self._gap_end - len(tail)
            gap = f"[... {self._left_out} bytes left out, by the setting log_bytes ...]\n".encode()
            os.pwrite(file, gap + tail, self._gap)
            self._gap_end = self._gap + len(gap)
            os.ftruncate(file, self._gap_end + len(tail))
        finally:
            os.close(file)
