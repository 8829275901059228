"""The progress of a map: a bar on the terminal or in a notebook, lines in a batch job's log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gridengine.api.progress_displays import (
    BarText,
    Display,
    ProgressSpec,
    UsersBar,
    display_here,
)
from gridengine.display import plural
from gridengine.resources.units import format_seconds
from gridengine.settings.values import settings

if TYPE_CHECKING:
    from gridengine.status.snapshot import Snapshot

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
        label: what is in progress, for people.
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

    def wait_seconds(self) -> float | None:
        """Return after how many seconds `update` should be called even if nothing happens; None is
        never.
        """
        return None if self._display is None else max(self._due - self._clock(), 0.001)

    def update(self, done: int, failed: int, total: int | None) -> None:
        """Draw if it is time to. `done` counts the failed calls too; `total` is None while it is
        unknown.
        """
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
        rate = self._estimate.rate(done, snapshot, now)
        if now >= self._appears:
            self._display.show(self._said(snapshot, rate), done / total if total else None)

    def close(self) -> None:
        """Remove the bar; a notebook keeps its last state. May be called twice."""
        display, self._display = self._display, None
        if display is not None:
            if self._own is not None:
                self._own.count(*self._counts)
            display.close(BarText(self._phrases(), label=self._label))

    def _phrases(self) -> list[str]:
        done, failed, total = self._counts
        of = plural(done, "call") if total is None else f"{done:,} of {plural(total, 'call')}"
        return [f"{of} done", f"{failed:,} failed"]

    def _said(self, snapshot: Snapshot, rate: float | None) -> BarText:
        """Return the text for calls under way. Where there is little room, the rate is left out
        first, then that none has failed, and then, if the time left is known, the running calls.
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
        slots = max(snapshot.slots, 1)
        # With many more workers than before, earlier measurements do not count.
        if slots >= 2 * self._slots and done - self._first[1] >= slots:
            self._steady, self._slots = (now, done), slots
        since, before = self._first
        if self._steady is not None and done - self._steady[1] >= slots:
            since, before = self._steady
        return None if done == before or now <= since else (done - before) / (now - since)


def _running(snapshot: Snapshot) -> list[str]:
    """Return how many calls run, and on how many slots; nothing where only another process
    knows.
    """
    slots, workers = snapshot.slots, snapshot.workers
    if workers and not snapshot.demands:
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
