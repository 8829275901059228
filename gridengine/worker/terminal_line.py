"""Lines at the foot of the terminal, which progress bars are drawn on, and how all others write
above them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO, TypeGuard

from msgspec import Struct

STALE_SECONDS = 2.0
"""After how long one that nobody draws is the first to be left out where there is no room for all:
of an iterator, say, whose next result nobody waits for.
"""
MOST_LINES = 8
"""How many are shown at the most; and never more than half of the terminal."""
_ERASE, _ERASE_ABOVE = "\r\x1b[2K", "\x1b[1A\x1b[2K"


class TerminalLine(Struct, eq=False):
    """One of the lines at the foot of the terminal that a stream is, in the order in which they
    were shown first.
    """

    stream: TextIO
    text: str = ""
    shown_at: float = 0.0

    @property
    def width(self) -> int:
        """How many characters fit on it."""
        # The last column is left free: behind it the cursor would go to the next line.
        return _size(self.stream)[0] - 1

    def show(self, text: str) -> None:
        """Draw it anew."""
        self.shown_at = time.monotonic()
        _foot().show(self, text)

    def close(self) -> None:
        """Take it away. May be called twice."""
        _foot().remove(self)


class Foot:
    """The foot of the terminal. What this process writes to the terminal, by `sys.stdout` and
    `sys.stderr`, whoever holds them, or of what calls print, goes above it.

    While somebody's line is not finished nothing is drawn. There is no thread, and the cursor is
    never hidden: whatever ends the process leaves the terminal as it was.
    """

    def __init__(self) -> None:
        self.lines: list[TerminalLine] = []
        self._drawn = 0
        """How many rows of the terminal are its own."""
        self.is_at_start = True
        """Whether what was written last ends with a whole line."""
        self._owner = os.getpid()
        # Reentrant: what is collected, or a signal's handler, may print in the midst of it.
        self._lock = threading.RLock()
        self._hooks: dict[TextIO, Callable[[str], int]] = {}
        self._stream: TextIO | None = None
        self._put: Callable[[str], object] = len

    def show(self, line: TerminalLine, text: str) -> None:
        """Draw a line anew, and with it the others."""
        with self._lock:
            if not self.lines:
                self._hook(line.stream)
            if line not in self.lines:
                self.lines.append(line)
            if text != line.text:
                with self.lifted():
                    line.text = text

    def remove(self, line: TerminalLine) -> None:
        """Take a line away, if it is there; with the last one the streams are given back."""
        with self._lock:
            line.text = ""
            if line not in self.lines:
                return
            with self.lifted():
                self.lines.remove(line)
            if not self.lines:
                for one, hook in self._hooks.items():
                    if vars(one).get("write") is hook:
                        del vars(one)["write"]
                self._hooks.clear()
                self._stream, self.is_at_start = None, True

    def _hook(self, stream: TextIO) -> None:
        self._stream, self._put = stream, stream.write
        streams = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__, stream
        for one in dict.fromkeys(streams):
            if hasattr(one, "__dict__") and is_terminal(one):
                self._hooks[one] = hook = functools.partial(self._write, one.write)
                vars(one)["write"] = hook

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Have it taken away for as long as something is written in its place."""
        with self._lock:
            if self._drawn:
                rows, self._drawn = self._drawn, 0
                self._print(_ERASE + _ERASE_ABOVE * (rows - 1))
            try:
                yield
            finally:
                texts = self._texts() if self.is_at_start and not self._drawn else []
                if texts:
                    self._drawn = len(texts)
                    self._print("\n".join(texts))

    def _texts(self) -> list[str]:
        """Return what is to be drawn; where there is no room for all, of those that nobody draws
        the fewest.
        """
        shown = [line for line in self.lines if line.text]
        room = 1 if self._stream is None else max(min(_size(self._stream)[1] // 2, MOST_LINES), 1)
        if len(shown) > room:
            latest = max(line.shown_at for line in shown)
            shown.sort(key=lambda line: latest - line.shown_at > STALE_SECONDS)
            shown = [line for line in self.lines if line in shown[:room]]
        return [line.text for line in shown]

    def _write(self, write: Callable[[str], int], text: str) -> int:
        """Write for somebody else to one of the streams."""
        if os.getpid() != self._owner or not text:
            return write(text)
        with self.lifted():
            count = write(text)
            self.is_at_start = text.endswith("\n")
        return count

    def _print(self, text: str) -> None:
        assert self._stream is not None
        try:
            self._put(text)
            self._stream.flush()
        # The terminal is gone, or closed, which is no reason to end what is under way.
        except (OSError, ValueError):
            self._drawn = 0
            for line in self.lines:
                line.text = ""


def is_terminal(stream: Any) -> TypeGuard[TextIO]:
    """Return whether a stream, or what stands for one, is a terminal; not if it was closed."""
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):
        return False


def write_above(fd: int, data: memoryview) -> int:
    """Write to a descriptor as `os.write` does, above the lines if it is a terminal that shows
    some.
    """
    foot = _foot()
    if not foot.lines or not os.isatty(fd):
        return os.write(fd, data)
    with foot.lifted():
        count = os.write(fd, data)
        foot.is_at_start = bytes(data[count - 1 : count]) == b"\n"
    return count


def _size(stream: TextIO) -> tuple[int, int]:
    """Return the columns and rows of a terminal."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # it is none of this system's
        columns = rows = 0
    return columns or 80, rows or 24


def _foot() -> Foot:
    """Return that of this process: one that was forked writes past its parent's."""
    return _foot_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _foot_of(pid: int) -> Foot:
    return Foot()
