"""What the log tells of a run: what was launched, who connected, what was lost or is run again, and
figures at the end. What happens in bulk is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct, field

from gridengine.dispatcher.core.calls import Span
from gridengine.dispatcher.core.events import Effect, Inform, Launched
from gridengine.dispatcher.core.failures import name_of
from gridengine.dispatcher.core.model import Worker
from gridengine.dispatcher.core.states import Phase
from gridengine.dispatcher.core.status import WatchEvent
from gridengine.dispatcher.core.watch_events import (
    CONNECTED,
    LEFT,
    LOST,
    QUEUED,
    RETRIED,
    RUNNING,
    EventRecorder,
)
from gridengine.resources.units import plural
from gridengine.schedulers.launcher import Handle, compress

MOST_LINES, BULK_SECONDS = 5, 10.0
"""How many lines of one kind there are at most in so many seconds; the others are counted."""
FIGURES_SECONDS = 10.0
"""For how long calls must have run for their figures to be told before the end."""


class Tally(Struct):
    """The lines of one kind: since when they are counted, and how many were told and left out."""

    since: float = -math.inf
    told: int = 0
    left_out: int = 0


class RunLog(Struct):
    """What has been told of a run, and what is still to be: each method returns the lines that are
    due.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    figures: tuple[int, int, int] = (0, 0, 0)
    """How many calls were done, failed and run again when figures were last told."""
    busy_since: float | None = None
    busy_seconds: float = 0.0
    connected_workers: int = 0
    lost_workers: int = 0
    events: EventRecorder | None = None
    """What takes in what happens, while somebody follows."""

    def note(self, kind: str, count: int = 1, **facts: str) -> None:
        """Have who follows told of something; see `WatchEvent`."""
        if self.events is not None:
            self.events.note(WatchEvent(kind, count, **facts))  # type: ignore[arg-type]

    def worker(self, kind: str, worker: Worker, reason: str = "") -> None:
        """Have who follows told of a worker."""
        self.note(kind, host=worker.hello.host, job=worker.job, reason=reason)

    def launched(self, event: Launched, label: str, now: float) -> list[Effect]:
        """Tell what was submitted to the scheduler, and for which calls."""
        if not event.handles:
            return []
        kind, job = (QUEUED, event.handles[0].id) if event.handles[0].log else (RUNNING, "")
        self.note(kind, len(event.handles), function=label, job=job, reason=event.asked)
        for_whom = f" for {label}" if label else ""
        asked = f": {event.asked}" if event.asked else ""
        text = f"{plural(len(event.handles), 'worker')}{for_whom}, {_names(event.handles)}{asked}"
        return self._line("launch request", f"launched {text}", now)

    def connected(self, worker: Worker, now: float) -> list[Effect]:
        """Count a worker; tell of the first, and of the next that is the only one."""
        self.connected_workers += 1
        self.worker(CONNECTED, worker)
        launch = worker.launch
        if launch is None or worker.provisioner.workers > 1:
            return []
        after = f"{max(now - launch.launched_at, 0.0):.1f} s"
        return self._line("first worker", f"{_where(worker)} connected after {after}", now)

    def lost(self, worker: Worker, reason: str, now: float) -> list[Effect]:
        """Tell of a worker that is gone, unless it was to leave and had nothing left to do."""
        calls = sum(run.rest.calls for run in worker.runs.values())
        if worker.phase is Phase.STOPPING and not calls:
            self.worker(LEFT, worker, reason)
            return []
        self.lost_workers += 1
        self.worker(LOST, worker, reason)
        text = f"lost {_where(worker)}, which {reason}; {plural(calls, 'call')} had not ended on it"
        return self._line("lost worker", text, now)

    def retried(self, span: Span) -> list[Effect]:
        """Tell that calls whose last attempt has just been noted are run again, and why."""
        one = span.open_task
        last = (one.attempts or {})[span.start][-1]
        name = name_of(span, span.start)
        function, where = one.function.function.name, {"host": last.host, "job": last.job}
        self.note(RETRIED, span.calls, function=function, call=name, reason=str(last), **where)
        others = f" and {span.calls - 1} more" if span.calls > 1 else ""
        which = f"attempt {span.attempt + 1} of {one.task.retries + 1}"
        text = f"{name}{others} is run again ({which}): {last}"
        return self._line("repeated call", text, last.ended)

    def tick(self, figures: tuple[int, int, int], now: float, *, busy: bool) -> list[Effect]:
        """Tell what was left out, and figures when all calls have ended."""
        lines = [line for kind in self.tallies for line in self._left_out(kind, now)]
        if busy:
            self.busy_since = now if self.busy_since is None else self.busy_since
        elif self.busy_since is not None:
            self._pause(now)
            if self.busy_seconds >= FIGURES_SECONDS:
                lines += self._told(figures)
        return lines

    def closed(self, figures: tuple[int, int, int], now: float) -> list[Effect]:
        """Tell what has not been told yet."""
        self._pause(now)
        return [line for kind in self.tallies for line in self._left_out(kind, math.inf)] + (
            self._told(figures)
        )

    def _pause(self, now: float) -> None:
        if self.busy_since is not None:
            self.busy_seconds += now - self.busy_since
            self.busy_since = None

    def _told(self, figures: tuple[int, int, int]) -> list[Effect]:
        done, failed, retried = (
            new - told for new, told in zip(figures, self.figures, strict=True)
        )
        if not done and not failed:
            return []
        seconds, self.busy_seconds, self.figures = self.busy_seconds, 0.0, figures
        text = (
            f"{plural(done, 'call')} done, {failed} failed or cancelled, {retried} run again, in "
            f"{seconds:.1f} s; {plural(self.connected_workers, 'worker')} connected so far, "
            f"{self.lost_workers} lost"
        )
        return [Inform(text)]

    def _line(self, kind: str, text: str, now: float) -> list[Effect]:
        tally = self.tallies.setdefault(kind, Tally())
        before = self._left_out(kind, now)
        if now - tally.since >= BULK_SECONDS:
            tally.since, tally.told = now, 0
        if tally.told == MOST_LINES:
            tally.left_out += 1
            return before
        tally.told += 1
        return [*before, Inform(text)]

    def _left_out(self, kind: str, now: float) -> list[Effect]:
        tally = self.tallies[kind]
        if not tally.left_out or now - tally.since < BULK_SECONDS:
            return []
        count, tally.left_out = tally.left_out, 0
        return [Inform(f"{plural(count, f'more {kind}')} within {BULK_SECONDS:.0f} s")]


def _names(handles: Sequence[Handle]) -> str:
    """Return the ids of workers, few words for many; a process of this machine has no log."""
    names = compress(handle.id for handle in handles)
    one, several = ("cluster job", "cluster jobs") if handles[0].log else ("process", "processes")
    return f"{one if len(names) == 1 else several} {', '.join(names)}"


def _where(worker: Worker) -> str:
    job = f" (cluster job {worker.job}, log {worker.hello.log})" if worker.job else ""
    return f"worker {worker.hello.pid} on {worker.hello.host}{job}"
