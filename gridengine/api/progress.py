"""The progress of maps, executors and pools: a bar on the terminal or in a notebook, lines in a
log, or a bar of the user's own.

The thread that waits for a map draws its bar. The users of executors wait in ways that this package
cannot see, so a thread looks at their calls.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeAlias

from msgspec import Struct

from gridengine.arguments import format_seconds
from gridengine.display import plural
from gridengine.settings.schema import is_interactive
from gridengine.settings.values import settings

if TYPE_CHECKING:
    from gridengine.api.terminal_line import TerminalLine
    from gridengine.client.submitter import Submitter
    from gridengine.status.snapshot import Snapshot

FIRST_SECONDS, LINE_SECONDS = 10.0, 60.0
"""The first line in a log comes after `FIRST_SECONDS`; further lines, except the last, are at least
`LINE_SECONDS` apart.
"""
WIDEST, NARROWEST = 40, 13
"""The width of a bar: at most, and if possible at least."""


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
    this order, where there is no room for all. `output` says at the end where the output of calls
    is, unless it has come to this process.
    """

    phrases: Sequence[str]
    left_out_first: Sequence[int] = ()
    label: str = ""
    output: str = ""

    @property
    def text(self) -> str:
        """The whole text."""
        return self._joined(())

    def last(self, took: str = "") -> str:
        """Return the text for the end, with the duration and where the output is."""
        return self.text + took + (f"; {self.output}" if self.output else "")

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


class FootBar(Struct, eq=False):
    """A line at the foot of a terminal."""

    _stream: TextIO
    _line: TerminalLine | None = None

    def show(self, said: BarText, part: float | None) -> None:
        """Draw the bar and the text, as wide as there is room for."""
        from gridengine.api.terminal_line import TerminalLine

        self._line = self._line or TerminalLine(self._stream)
        width = self._line.width
        words = said.within(width - NARROWEST)
        self._line.show(f"{_bar(part, width - len(words) - 1)}{words}"[:width])

    def close(self, said: BarText) -> None:
        """Remove the bar, and say where the output of calls is, unless it stands above."""
        if self._line is not None:
            self._line.close()
            if said.output:
                _write(self._stream, said.last())


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
            content = {"text/plain": said.last(), "text/html": _html(said.last(), None)}
            self._handle.update(content, raw=True)
            self._handle = None


class LogLines:
    """Lines on a stream that is not a terminal, such as a batch job's log."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._due = self._began + FIRST_SECONDS
        self._tenths = -1

    def show(self, said: BarText, part: float | None) -> None:
        """Write a first line; then one whenever another tenth is done and the previous line is old
        enough.
        """
        tenths = self._tenths + 1 if part is None else int(10 * part)
        if tenths > self._tenths and part != 1 and self._clock() >= self._due:
            self._tenths, self._due = tenths, self._clock() + LINE_SECONDS
            _write(self._stream, said.text)

    def close(self, said: BarText) -> None:
        """Write a last line if there was a first one, and the run's log does not say the same."""
        if self._tenths >= 0 and not logging.getLogger("gridengine").isEnabledFor(logging.INFO):
            took = format_seconds(self._clock() - self._began)
            _write(self._stream, said.last(f", in {took}"))
        self._tenths = -1


def _write(stream: TextIO, words: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the disk is full, or the stream closed
        print(f"gridengine: {words}", file=stream, flush=True)


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
    from gridengine.api.terminal_line import is_terminal  # here: most maps end before they show one

    if is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
        return FootBar(sys.stderr)
    return LogLines(sys.stderr, clock)


APPEARS_SECONDS = 2.0
REFRESH_SECONDS = 0.25
LONGEST_LABEL = 20


class ProgressBar:
    """Shows the calls that are done, failed and running, slots and workers, rate and time left.

    On a terminal and in a notebook it is a bar, after two seconds. Elsewhere it is lines on
    standard error: one after ten seconds, one for each tenth, one a minute at most, and one at the
    end. There is none if `shown` is False, or None and the setting `progress` is off. Only `update`
    draws, so there is no thread. Use it in a `with`, or close it.

    Args:
        snapshot: called at each drawing for the number of running calls.
        shown: whether it may appear; None follows the setting. Or a bar of the user's, or a
            callable that makes one, which is updated from the first call on.
        label: the name of the calls in progress, for people.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        shown: ProgressSpec = None,
        label: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        own = None if shown is None or isinstance(shown, bool) else UsersBar(shown)
        wanted = settings().progress if shown is None else shown
        self._snapshot = snapshot
        self._label = label[:LONGEST_LABEL]
        self._clock = clock
        self._own = own
        self._display: Display | None = own or (display_here(clock) if wanted else None)
        self._estimate = Estimate()
        self._appears = clock() + APPEARS_SECONDS
        self._due = clock() + REFRESH_SECONDS
        self._counts: tuple[int, int, int | None] = 0, 0, None
        self._output = ""

    def wait_seconds(self) -> float | None:
        """Return after how many seconds `update` is due even if nothing happens; None is never."""
        return None if self._display is None else max(self._due - self._clock(), 0.001)

    def update(self, done: int, failed: int, total: int | None) -> None:
        """Draw if it is time to. `done` counts failed calls too; an unknown `total` is None."""
        if self._display is None:
            return
        if total is not None:
            total = max(done, total)  # an iterable may turn out to be longer
        self._counts = done, failed, total
        now = self._clock()
        if now < self._due:
            return
        self._due = now + REFRESH_SECONDS
        if self._own is not None:
            self._own.count(done, failed, total)
            return
        snapshot = self._snapshot()
        self._output = snapshot.output
        rate = self._estimate.rate(done, snapshot, now)
        if now >= self._appears:
            self._display.show(self._said(snapshot, rate), done / total if total else None)

    def close(self) -> None:
        """Remove the bar; a notebook keeps its last state. May be called twice."""
        display, self._display = self._display, None
        if display is not None:
            if self._own is not None:
                self._own.count(*self._counts)
            display.close(BarText(self._phrases(), label=self._label, output=self._output))

    def _phrases(self) -> list[str]:
        done, failed, total = self._counts
        of = plural(done, "call") if total is None else f"{done:,} of {plural(total, 'call')}"
        return [f"{of} done", f"{failed:,} failed"]

    def _said(self, snapshot: Snapshot, rate: float | None) -> BarText:
        """Return the text for calls under way. Where there is little room, the rate is left out
        first, then the remark that no call has failed, and then, if the time left is known, the
        running calls.
        """
        done, failed, total = self._counts
        running = _running(snapshot)
        said, optional = [*self._phrases(), *running], [1] * (not failed)
        if rate:
            optional.insert(0, len(said))
            said.append(_rate_words(rate))
            if total is not None:
                optional += [2] * len(running)
                said.append(f"about {format_seconds((total - done) / rate)} left")
        return BarText(said, optional, self._label)


class Estimate:
    """Estimates how many calls end in a second.

    The start-up is left out: the time before the first calls ran. Once each slot has ended one call
    and one more, the first calls are left out too, which import modules that later ones find
    loaded.
    """

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None
        self._steady: tuple[float, int] | None = None
        self._slots = 0

    def rate(self, done: int, snapshot: Snapshot, now: float) -> float | None:
        """Return how many calls end in a second, None while unknown."""
        if self._first is None and (snapshot.running or done):
            self._first = now, done
        if self._first is None:
            return None
        slots = snapshot.slots or 1
        # With many more workers than before, earlier measurements do not count.
        if slots >= 2 * self._slots and done - self._first[1] >= slots:
            self._steady, self._slots = (now, done), slots
        since, before = self._first
        if self._steady is not None and done - self._steady[1] >= slots:
            since, before = self._steady
        return None if done == before or now <= since else (done - before) / (now - since)


def _running(snapshot: Snapshot) -> list[str]:
    """Return how many calls run, on how many slots; nothing where only another process knows."""
    slots, workers = snapshot.slots, snapshot.workers
    if workers and slots is None:
        return []
    if not slots:
        return ["waiting for a worker"]
    where = plural(slots, "slot")
    if workers == slots:
        where = plural(workers, "worker")
    elif workers > 1:
        where += f" of {workers:,} workers"
    return [f"{min(snapshot.running, slots):,} running on {where}"]


def _rate_words(rate: float) -> str:
    """Return how many calls end in a second, a minute or an hour."""
    for seconds, unit in ((1, "s"), (60, "min")):
        if rate * seconds >= 1:
            return f"{rate * seconds:,.{0 if rate * seconds >= 100 else 1}f}/{unit}"
    return f"{rate * 3600:,.1f}/h"


IDLE_LOOKS = 8
"""The thread ends after this many consecutive looks without an open call."""


def show_progress(submitter: Submitter, shown: ProgressSpec, label: str) -> None:
    """Show the progress of a submitter's calls from now on, whoever waits for them."""
    dispatcher = submitter.batcher.dispatcher
    wanted = settings().progress if shown is None else shown
    # At a prompt the user types while calls run: draw nothing there unless progress= is given.
    unwanted = dispatcher.call_slot is not None or (is_interactive() and not in_notebook())
    if wanted is False or (shown is None and unwanted):
        return
    if dispatcher.at_once and wanted is True:
        return  # as with `map`, there is no bar for calls in this process
    SubmitterProgress(submitter, wanted, label)


class SubmitterProgress:
    """The bars for the calls of a submitter: each lasts from a first open call until no call is
    open. A user's own bar lasts for the submitter's life. A thread updates them while calls are
    open.
    """

    def __init__(self, submitter: Submitter, shown: ProgressSpec, label: str) -> None:
        from gridengine.client.executor_lifetime import CallTally  # a map needs none

        self._batcher = submitter.batcher
        self._shown, self._label = shown, label
        self._lock = threading.Lock()
        self._bar: ProgressBar | None = None
        self._number = 0
        self._closed = threading.Event()
        self.tally = self._batcher.tally = CallTally(
            self._watch, self.close, restarts=isinstance(shown, bool)
        )

    def _watch(self) -> None:
        """Start the thread, under the batcher's lock. None starts at the interpreter's end; then
        there is no bar.
        """
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=self._run, name="gridengine-progress", daemon=True).start()
            self.tally.watched = True

    def _run(self) -> None:
        idle_looks = 0
        while not self._closed.wait(REFRESH_SECONDS):
            idle_looks = 0 if self.look() else idle_looks + 1
            if idle_looks >= IDLE_LOOKS:
                with self._batcher.lock:  # the next call starts a thread again
                    if not self.tally.is_open:
                        self.tally.watched = False
                        return

    def look(self) -> bool:
        """Update the bar; return whether calls are open."""
        with self._lock:
            if self._closed.is_set():  # the thread may come late: a second bar would be made
                return False
            with self._batcher.lock:
                tally = self.tally
                number, is_open = tally.number, tally.is_open
                counts = tally.done, tally.failed, tally.total
            restarts = isinstance(self._shown, bool)
            if restarts and self._number != number:
                self._end_bar()
            self._number = number
            if self._bar is None and (is_open or (number and not restarts)):
                batcher = self._batcher
                self._bar = ProgressBar(
                    lambda: batcher.dispatcher.snapshot().of(batcher.submitter),
                    shown=self._shown,
                    label=self._label,
                )
            if self._bar is not None:
                self._bar.update(*counts)
                if restarts and not is_open:
                    self._end_bar()
            return is_open

    def close(self) -> None:
        """Draw a last time, and close the bar."""
        self.look()
        with self._lock:
            self._closed.set()
            self._end_bar()

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
