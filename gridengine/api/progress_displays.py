"""Displays of progress: a terminal, a notebook, a log, or a bar of the user's own."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TextIO, TypeAlias

from msgspec import Struct

from gridengine.api.terminal_line import TerminalLine, is_terminal
from gridengine.resources.units import format_seconds

FIRST_SECONDS, LINE_SECONDS = 10.0, 60.0
"""When the first line in a log comes, and the least time between two lines, except the last."""
WIDEST, NARROWEST = 40, 13
"""How wide a bar is, at most, and how wide it should be at least."""


class BarLike(Protocol):
    """A bar with the methods of `tqdm`."""

    def update(self, n: int, /) -> object: ...
    def close(self) -> object: ...


ProgressSpec: TypeAlias = bool | BarLike | Callable[..., BarLike] | None
"""Whether progress is shown (None follows the setting); or a bar like those of `tqdm`, which its
owner closes; or a callable that makes one, given `total=`.
"""


def check_progress(progress: Any) -> None:
    """Check a user's argument `progress`.

    Raises:
        TypeError: it is not True, False, None or a bar.
    """
    if not (
        progress is None
        or isinstance(progress, bool)
        or callable(progress)
        or hasattr(progress, "update")
    ):  # refuse other values: "no" would be true
        raise TypeError(f"progress must be True, False, None, or a bar, not {progress!r}")


class BarText(Struct, frozen=True):
    """The text beside a bar: phrases. Those whose indices are in `left_out_first` are left out, in
    this order, where there is no room for all.
    """

    phrases: Sequence[str]
    left_out_first: Sequence[int] = ()
    label: str = ""

    @property
    def text(self) -> str:
        """The whole text."""
        return self._joined(())

    def within(self, width: int) -> str:
        """Return the text with as few phrases left out as fit into this width."""
        text = self.text
        for count in range(1, len(self.left_out_first) + 1):
            if len(text) <= width:
                break
            text = self._joined(self.left_out_first[:count])
        return text

    def _joined(self, left_out: Sequence[int]) -> str:
        phrases = (one for place, one in enumerate(self.phrases) if place not in left_out)
        return (f"{self.label}: " if self.label else "") + ", ".join(phrases)


class Display(Protocol):
    """A place where progress is shown. Each text replaces the previous one; `part` is the share of
    the calls that are done, None if their number is unknown.
    """

    def show(self, said: BarText, part: float | None) -> None: ...
    def close(self, said: BarText) -> None: ...


class UsersBar:
    """A bar of the user's own, like those of `tqdm`, or a callable that makes one."""

    def __init__(self, bar: BarLike | Callable[..., BarLike]) -> None:
        self._made = isinstance(bar, type) or not hasattr(bar, "update")
        self._make = bar
        self._bar: Any = None if self._made else bar
        self._done = 0

    def count(self, done: int, failed: int, total: int | None) -> None:
        """Update the bar with how many calls have ended."""
        if self._bar is None:
            self._bar = self._make(total=total)  # type: ignore[operator]
        if self._made and total is not None and getattr(self._bar, "total", total) != total:
            self._bar.total = total  # the number of calls has grown
        if done > self._done:
            if failed and hasattr(self._bar, "set_postfix"):
                self._bar.set_postfix(failed=failed, refresh=False)
            self._bar.update(done - self._done)
            self._done = done

    def show(self, said: BarText, part: float | None) -> None:
        """Do nothing: the bar has its own text."""

    def close(self, said: BarText) -> None:
        """Close the bar if it was made here."""
        if self._made and self._bar is not None:
            self._bar.close()


class Bar(Struct, eq=False):
    """A line at the foot of a terminal."""

    _stream: TextIO
    _line: TerminalLine | None = None

    def show(self, said: BarText, part: float | None) -> None:
        """Draw the bar and the text, as wide as there is room for."""
        self._line = self._line or TerminalLine(self._stream)
        width = self._line.width
        words = said.within(width - NARROWEST)
        self._line.show(f"{_bar(part, width - len(words) - 1)}{words}"[:width])

    def close(self, said: BarText) -> None:
        if self._line is not None:
            self._line.close()


class NotebookCell(Struct, eq=False):
    """An output of the running cell, which is updated in place and stays at the end."""

    _display: Callable[..., Any]
    _handle: Any = None

    def show(self, said: BarText, part: float | None) -> None:
        words = said.text
        content = {
            "text/plain": f"{_bar(part, WIDEST)}{words}",
            "text/html": _html(words, part),
        }
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def close(self, said: BarText) -> None:
        """Leave the last text there, if there was a bar."""
        if self._handle is not None:
            content = {"text/plain": said.text, "text/html": _html(said.text, None)}
            self._handle.update(content, raw=True)
            self._handle = None


class LogLines:
    """Lines on a stream that is no terminal, such as a batch job's log."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._due = self._began + FIRST_SECONDS
        self._tenths = -1

    def show(self, said: BarText, part: float | None) -> None:
        """Write a first line; later one whenever another tenth is done and the last line is old
        enough.
        """
        tenths = self._tenths + 1 if part is None else int(10 * part)
        if tenths > self._tenths and part != 1 and self._clock() >= self._due:
            self._tenths, self._due = tenths, self._clock() + LINE_SECONDS
            self._write(said.text)

    def close(self, said: BarText) -> None:
        """Write a last line, if there was a first one and the log of the run does not say
        the same.
        """
        if self._tenths >= 0 and not logging.getLogger("gridengine").isEnabledFor(logging.INFO):
            self._write(f"{said.text}, in {format_seconds(self._clock() - self._began)}")
        self._tenths = -1

    def _write(self, words: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the disk is full, or the stream closed
            print(f"gridengine: {words}", file=self._stream, flush=True)


def _bar(part: float | None, room: int) -> str:
    cells = min(room, WIDEST) - 2
    if part is None or cells < 1:
        return ""
    full = int(part * cells)
    return f"[{'#' * full}{'.' * (cells - full)}] "


def _html(words: str, part: float | None) -> str:
    """Return a bar and text without colours of their own, for light and dark pages."""
    import html  # here: only notebooks need it, and everybody would wait for it

    bar = "" if part is None else f'<progress max="1" value="{part:.4f}"></progress> '
    return f'<div style="font-family: monospace">{bar}{html.escape(words)}</div>'


def in_notebook() -> bool:
    """Return whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def display_here(clock: Callable[[], float]) -> Display | None:
    """Return the display of this process; None when it has no standard error."""
    if in_notebook():
        return NotebookCell(importlib.import_module("IPython.display").display)
    if sys.stderr is None:
        return None
    if is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
        return Bar(sys.stderr)
    return LogLines(sys.stderr, clock)
