"""What is kept of a stream that may be of any length: its beginning and its end."""

from __future__ import annotations

_SLACK = 64 * 1024
"""By how much the end may grow before it is cut."""


class OutputExcerpt:
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
        if len(self._tail) > 2 * self._tail_limit + _SLACK:
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
