"""A line at the foot of the terminal, which a progress bar is drawn on, and how all others write
above it.
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

STALE_SECONDS = 2.0
"""After how long another may take the place of one that nobody draws: of an iterator, say, whose
next result nobody waits for.
"""
_ERASE = "\r\x1b[2K"


class TerminalLine:
    """The foot of the terminal that a stream is. What this process writes to the terminal, by
    `sys.stdout` and `sys.stderr`, whoever holds them, or of what calls print, goes above it.

    While somebody's line is not finished nothing is drawn. There is no thread, and the cursor is
    never hidden: whatever ends the process leaves the terminal as it was.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._put = stream.write
        self._text = ""
        self._is_drawn = False
        self._is_at_start = True
        self._owner = os.getpid()
        # Reentrant: what is collected, or a signal's handler, may print in the midst of it.
        self._lock = threading.RLock()
        self._hooks: dict[TextIO, Callable[[str], int]] = {}
        self._shown_at = 0.0

    @property
    def width(self) -> int:
        """How many characters fit on it."""
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):  # it is none of this system's
            columns = 0
        # The last column is left free: behind it the cursor would go to the next line.
        return (columns or 80) - 1

    def show(self, text: str) -> None:
        """Draw it anew, unless another one of this process stands there that is drawn too."""
        self._shown_at = time.monotonic()
        self._take_place()
        if text != self._text:
            with self.lifted():
                self._text = text if self._is_shown else ""

    def close(self) -> None:
        """Take it away. May be called twice."""
        with self.lifted():
            self._text = ""
            for one, hook in self._hooks.items():
                if vars(one).get("write") is hook:
                    del vars(one)["write"]
            self._hooks.clear()
            if self._is_shown:
                _lines().clear()

    @property
    def _is_shown(self) -> bool:
        return _lines()[:1] == [self]

    def _take_place(self) -> None:
        """Stand at the foot of the terminal if no other line does, or nobody draws that any
        more.
        """
        lines = _lines()
        for other in lines[:1]:
            is_stale = self._shown_at - other._shown_at > STALE_SECONDS
            if other is not self and is_stale and other._owner == self._owner:
                self._is_at_start = other._is_at_start
                other.close()
        if lines:
            return
        lines.append(self)
        streams = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__, self._stream
        for one in dict.fromkeys(streams):
            if hasattr(one, "__dict__") and is_terminal(one):
                self._hooks[one] = hook = functools.partial(self._write, one.write)
                vars(one)["write"] = hook

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Have it taken away for as long as something is written in its place."""
        with self._lock:
            if self._is_drawn:
                self._is_drawn = False
                self._print(_ERASE)
            try:
                yield
            finally:
                if self._text and self._is_at_start and not self._is_drawn:
                    self._is_drawn = True
                    self._print(self._text)

    def written(self, ends_line: bool) -> None:
        """Note whether what was written last ends with a whole line."""
        self._is_at_start = ends_line

    def _write(self, write: Callable[[str], int], text: str) -> int:
        """Write for somebody else to one of the streams."""
        if os.getpid() != self._owner or not text:
            return write(text)
        with self.lifted():
            count = write(text)
            self.written(text.endswith("\n"))
        return count

    def _print(self, text: str) -> None:
        try:
            self._put(text)
            self._stream.flush()
        # The terminal is gone, or closed, which is no reason to end what is under way.
        except (OSError, ValueError):
            self._text = ""


def is_terminal(stream: Any) -> TypeGuard[TextIO]:
    """Return whether a stream, or what stands for one, is a terminal; not if it was closed."""
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):
        return False


@functools.cache
def _lines() -> list[TerminalLine]:
    """Return the line that this process shows, if any."""
    return []


def write_above(fd: int, data: memoryview) -> int:
    """Write to a descriptor as `os.write` does, above the line if it is a terminal that shows
    one.
    """
    for line in _lines():
        if os.isatty(fd):
            with line.lifted():
                count = os.write(fd, data)
                line.written(bytes(data[count - 1 : count]) == b"\n")
            return count
    return os.write(fd, data)
