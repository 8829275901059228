"""A progress bar on the terminal, for a map that takes its time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gridengine.settings.values import settings

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from gridengine.dispatcher.core.snapshot import Snapshot

APPEARS_SECONDS = 2.0
REFRESH_SECONDS = 0.25


class ProgressBar:
    """A bar on standard error: done, failed, running, workers, time left.

    It appears after two seconds, on a terminal alone, unless `shown` is False, or None and the
    setting `progress` is off. It is drawn by `update` and by nothing else, so there is no thread,
    and the cursor is never hidden: whatever ends the process leaves the terminal as it was. Use it
    in a `with`.

    Args:
        snapshot: called at each drawing for what runs now.
        shown: whether the bar may appear; None is as the setting says.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        shown: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        wanted = settings().progress if shown is None else shown
        self.wanted = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._snapshot = snapshot
        self._clock = clock
        self._due = clock() + APPEARS_SECONDS
        self._bar: Progress | None = None
        self._line: TaskID | None = None

    def patience(self) -> float | None:
        """Return after how many seconds `update` should be called even if nothing happens; None is
        never.
        """
        return max(self._due - self._clock(), 0.001) if self.wanted else None

    def update(self, done: int, failed: int, total: int | None) -> None:
        """Draw, when it is time to. `done` counts the failed calls too; `total` is None while it is
        not known.
        """
        if not self.wanted or self._clock() < self._due:
            return
        self._due = self._clock() + REFRESH_SECONDS
        if self._bar is None:
            self._bar = _make_bar()
            self._line = self._bar.add_task("", total=total, failed=0, running=0, workers=0)
            self._bar.start()
        assert self._line is not None
        snapshot = self._snapshot()
        self._bar.update(
            self._line,
            completed=done,
            total=total,
            failed=failed,
            running=snapshot.running,
            workers=snapshot.workers,
        )
        self._bar.refresh()

    def close(self) -> None:
        """Take the bar away; the line it stood on is free again. May be called twice."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self.wanted = False


def _make_bar() -> Progress:
    # rich takes a tenth of a second to import: only those who see a bar pay for it.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    class SteadyConsole(Console):
        def show_cursor(self, show: bool = True) -> bool:
            return False

    return Progress(
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn(
            "done, {task.fields[failed]} failed, {task.fields[running]} running on "
            "{task.fields[workers]} workers,"
        ),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=SteadyConsole(stderr=True),
        auto_refresh=False,
        transient=True,
        expand=True,
        # Standard output is left alone, so that it may be a pipe or belong to a debugger; log lines
        # go above the bar.
        redirect_stdout=False,
        redirect_stderr=True,
    )
