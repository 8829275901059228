"""The lines at the foot of the terminal on which progress bars are drawn. All other output appears
above them.

Rejected: rich's live display. It replaces `sys.stderr`, so that handlers made before it and the
output of calls bypass it; in notebooks it wants ipywidgets. This module replaces the `write` of the
streams themselves.
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

from gridengine.output.stream_writer import writing

STALE_SECONDS = 2.0
"""A line that was last drawn longer ago is the first to be left out when there is no room for all.
An example is the line of an iterator whose next result nobody waits for.
"""
MOST_LINES = 8
"""How many lines are shown, at most; and never more than half of the terminal."""
_ERASE, _ERASE_ABOVE = "\r\x1b[2K", "\x1b[1A\x1b[2K"


class TerminalLine(Struct, eq=False):
    """A line at the foot of the terminal of a stream. Lines stand in the order in which they were
    first shown.
    """

    stream: TextIO
    text: str = ""
    shown_at: float = 0.0

    @property
    def width(self) -> int:
        """How many characters fit on the line."""
        # Leave the last column free: after writing it, the cursor would go to the next line.
        return _size(self.stream)[0] - 1

    def show(self, text: str) -> None:
        """Draw the line anew."""
        self.shown_at = time.monotonic()
        _foot_of(os.getpid()).show(self, text)

    def close(self) -> None:
        """Remove the line. May be called twice."""
        _foot_of(os.getpid()).remove(self)


class Foot:
    """The foot of the terminal. Everything that this process writes to the terminal by `sys.stdout`
    and `sys.stderr`, in whatever code, and the output of calls, appears above it.

    The foot is not drawn while a line above it is incomplete. There is no thread, and the cursor is
    never hidden: however the process ends, the terminal is left in order.
    """

    def __init__(self) -> None:
        self.lines: list[TerminalLine] = []
        self._drawn = 0
        """How many rows of the terminal the foot occupies now."""
        self.is_at_start = True
        """Whether the last output ended with a whole line."""
        self._owner = os.getpid()
        # Reentrant: a finalizer or a signal handler may print while the lock is held.
        self._lock = threading.RLock()
        self._hooks: dict[TextIO, Callable[[str], int]] = {}
        self._stream: TextIO | None = None
        self._put: Callable[[str], object] = len

    def show(self, line: TerminalLine, text: str) -> None:
        """Draw a line anew, together with the others."""
        with self._lock:
            if not self.lines:
                self._hook(line.stream)
                writing().write = self.write_above
            if line not in self.lines:
                self.lines.append(line)
            if text != line.text:
                with self.lifted():
                    line.text = text

    def remove(self, line: TerminalLine) -> None:
        """Remove a line if it is there. After the last one, restore the streams."""
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
                writing().write = os.write
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
        """Remove the foot within the block, while something is written in its place."""
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
        """Return the texts to draw. When there is no room for all, leave out stale lines first."""
        shown = [line for line in self.lines if line.text]
        room = 1 if self._stream is None else max(min(_size(self._stream)[1] // 2, MOST_LINES), 1)
        if len(shown) > room:
            latest = max(line.shown_at for line in shown)
            shown.sort(key=lambda line: latest - line.shown_at > STALE_SECONDS)
            shown = [line for line in self.lines if line in shown[:room]]
        return [line.text for line in shown]

    def write_above(self, fd: int, data: memoryview) -> int:
        """Write to a descriptor as `os.write` does; above the foot if it is a terminal."""
        if os.getpid() != self._owner or not self.lines or not os.isatty(fd):
            return os.write(fd, data)
        with self.lifted():
            count = os.write(fd, data)
            self.is_at_start = bytes(data[count - 1 : count]) == b"\n"
        return count

    def _write(self, write: Callable[[str], int], text: str) -> int:
        """Write other code's text to one of the streams."""
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
        # The terminal is gone or closed: go on without it.
        except (OSError, ValueError):
            self._drawn = 0
            for line in self.lines:
                line.text = ""


def is_terminal(stream: Any) -> TypeGuard[TextIO]:
    """Return whether a stream, or an object that stands for one, is an open terminal."""
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):
        return False


def _size(stream: TextIO) -> tuple[int, int]:
    """Return the columns and rows of a terminal."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # no terminal of this system
        columns = rows = 0
    return columns or 80, rows or 24


FEET: dict[int, Foot] = {}
"""The foot of each process, by its id: a forked process has its own."""


def _foot_of(pid: int) -> Foot:
    """Return the one foot of this process, which threads of several bars may want at once."""
    return FEET.get(pid) or FEET.setdefault(pid, Foot())
