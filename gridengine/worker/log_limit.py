"""Limit the size of a cluster worker's log: its beginning and its end stay."""

from __future__ import annotations

import fcntl
import os
import stat


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
