"""How far a map is: a bar on the terminal or in a notebook, lines in a batch job's log."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from gridengine.resources.units import format_seconds, plural
from gridengine.settings.values import settings
from gridengine.worker.terminal_line import TerminalLine, is_terminal

if TYPE_CHECKING:
    from gridengine.dispatcher.core.snapshot import Snapshot

APPEARS_SECONDS = 2.0
REFRESH_SECONDS = 0.25
FIRST_SECONDS, LINE_SECONDS = 10.0, 60.0
"""When the first line in a log comes, and how long there is at least between two but for the
last.
"""
WIDEST = 40


class ProgressBar:
    """Shows the calls that are done, failed and running, slots and time left.

    On a terminal and in a notebook it is a bar, after two seconds; elsewhere it is lines on
    standard error: one after ten seconds, one for each tenth, one a minute at most, and one at the
    end. There is none if `shown` is False, or None
    and the setting `progress` is off. It is drawn by `update` and by nothing else, so there is no
    thread. Use it in a `with`, or close it.

    Args:
        snapshot: called at each drawing for what runs now.
        shown: whether it may appear; None is as the setting says.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        shown: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        wanted = settings().progress if shown is None else shown
        self._snapshot = snapshot
        self._clock = clock
        self._display = _display(clock) if wanted else None
        self._estimate = Estimate()
        self._appears = clock() + APPEARS_SECONDS
        self._due = clock() + REFRESH_SECONDS
        self._counts: tuple[int, int, int | None] = 0, 0, None

    def patience(self) -> float | None:
        """Return after how many seconds `update` should be called even if nothing happens; None is
        never.
        """
        return None if self._display is None else max(self._due - self._clock(), 0.001)

    def update(self, done: int, failed: int, total: int | None) -> None:
        """Draw, when it is time to. `done` counts the failed calls too; `total` is None while it is
        not known.
        """
        if self._display is None:
            return
        self._counts = done, failed, total
        now = self._clock()
        if now < self._due:
            return
        self._due = now + REFRESH_SECONDS
        snapshot = self._snapshot()
        left = self._estimate.left(done, total, snapshot, now)
        if now >= self._appears:
            running = min(snapshot.running, snapshot.slots)
            words = [self._words(), f"{running} running on {plural(snapshot.slots, 'slot')}"]
            if not snapshot.slots:
                words[1] = "waiting for a worker"
            if left is not None:
                words.append(f"about {format_seconds(left)} left")
            self._display.show(", ".join(words), done / total if total else None)

    def close(self) -> None:
        """Take the bar away; a notebook keeps how far it came. May be called twice."""
        if self._display is not None:
            self._display.close(self._words())
            self._display = None

    def _words(self) -> str:
        done, failed, total = self._counts
        of = plural(done, "call") if total is None else f"{done:,} of {plural(total, 'call')}"
        return f"{of} done, {failed:,} failed"


class Estimate:
    """When all calls will have ended, by how long they take that began when workers were there.

    The start-up is left out: what went before the first calls ran, and, once each slot has ended
    one and then one more, the first calls too, which import what the others find loaded.
    """

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None
        self._steady: tuple[float, int] | None = None
        self._slots = 0

    def left(self, done: int, total: int | None, snapshot: Snapshot, now: float) -> float | None:
        """Return the seconds that are left, None while that cannot be told."""
        if self._first is None and (snapshot.running or done):
            self._first = now, done
        if self._first is None or total is None:
            return None
        slots = max(snapshot.slots, 1)
        # With many more workers than before what was measured before tells nothing.
        if slots >= 2 * self._slots and done - self._first[1] >= slots:
            self._steady, self._slots = (now, done), slots
        since, before = self._first
        if self._steady is not None and done - self._steady[1] >= slots:
            since, before = self._steady
        return None if done == before else (total - done) * (now - since) / (done - before)


class Display(Protocol):
    """Where progress is shown."""

    def show(self, words: str, part: float | None) -> None: ...
    def close(self, words: str) -> None: ...


class Bar:
    """The foot of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line: TerminalLine | None = None

    def show(self, words: str, part: float | None) -> None:
        """Draw the bar, as wide as there is room for, and the words."""
        self._line = self._line or TerminalLine(self._stream)
        width = self._line.width
        self._line.show(f"{_bar(part, width - len(words) - 1)}{words}"[:width])

    def close(self, words: str) -> None:
        """Take it away."""
        if self._line is not None:
            self._line.close()


class NotebookCell:
    """An output of the cell that runs, which is changed in its place and stays at the end."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, words: str, part: float | None) -> None:
        """Show a bar and the words."""
        content = {"text/plain": f"{_bar(part, WIDEST)}{words}"}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def close(self, words: str) -> None:
        """Leave the words there, if there was a bar."""
        if self._handle is not None:
            self._handle.update({"text/plain": words}, raw=True)


class LogLines:
    """Lines on a stream that is no terminal: a batch job's log."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._due = self._began + FIRST_SECONDS
        self._tenths = -1

    def show(self, words: str, part: float | None) -> None:
        """Write a first line, and then one if another tenth is done and the last is long enough
        ago.
        """
        tenths = self._tenths + 1 if part is None else int(10 * part)
        if tenths > self._tenths and part != 1 and self._clock() >= self._due:
            self._tenths, self._due = tenths, self._clock() + LINE_SECONDS
            self._write(words)

    def close(self, words: str) -> None:
        """Write the last line, if there was one, and the log of the run does not tell as much."""
        if self._tenths >= 0 and not logging.getLogger("gridengine").isEnabledFor(logging.INFO):
            self._write(f"{words}, in {format_seconds(self._clock() - self._began)}")
        self._tenths = -1

    def _write(self, words: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # its disk is full, or it was closed
            print(f"gridengine: {words}", file=self._stream, flush=True)


def _bar(part: float | None, room: int) -> str:
    cells = min(room, WIDEST) - 2
    if part is None or cells < 1:
        return ""
    full = int(part * cells)
    return f"[{'#' * full}{'.' * (cells - full)}] "


def _display(clock: Callable[[], float]) -> Display | None:
    """Return where this process shows progress; None when it has no standard error."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return NotebookCell(importlib.import_module("IPython.display").display)
    if sys.stderr is None:
        return None
    if is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
        return Bar(sys.stderr)
    return LogLines(sys.stderr, clock)
