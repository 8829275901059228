"""The beginning and the end of a stream of any length."""

from __future__ import annotations

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
