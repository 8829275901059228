"""The lines that the log has of a run. If too many lines of one kind come at a time, the rest are
counted instead of written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct, field

from gridengine.display import plural
from gridengine.schedulers.launcher import Handle, compress
from gridengine.status.watch_events import (
    CONNECTED,
    LEFT,
    LOST,
    QUEUED,
    RUNNING,
    EventRecorder,
    WatchEvent,
)
from gridengine.wire.messages import Hello

MOST_LINES, BULK_SECONDS = 5, 10.0
"""Within `BULK_SECONDS`, `MOST_LINES` lines of one kind are written; others are only counted."""
FIGURES_SECONDS = 10.0
"""The figures of calls are logged at their end if the calls ran for at least this long."""


Figures: TypeAlias = tuple[int, int, int, int]
"""How many calls are done, have failed, were cancelled, and were run again."""


class LineTally(Struct):
    """The lines of one kind since `since`: how many were written, and how many left out."""

    since: float = -math.inf
    told: int = 0
    left_out: int = 0


class RunLog(Struct):
    """The lines that the log has of a run. Each method returns the lines that are due."""

    tallies: dict[str, LineTally] = field(default_factory=dict)
    figures: Figures = (0, 0, 0, 0)
    """What `CoreState.figures` was when figures were last logged."""
    output: str = ""
    """Says where workers' logs have what calls print; empty where calls print elsewhere."""
    busy_since: float | None = None
    busy_seconds: float = 0.0
    connected_workers: int = 0
    lost_workers: int = 0
    warned_of_killed: bool = False
    """Whether there was a warning that a call runs again because its process was killed."""
    events: EventRecorder | None = None
    """Records events while somebody follows."""

    def note(self, kind: str, count: int = 1, **facts: str) -> None:
        """Record an event for watchers; see `WatchEvent`."""
        if self.events is not None:
            self.events.note(WatchEvent(kind, count, **facts))  # type: ignore[arg-type]

    def launched(self, handles: Sequence[Handle], asked: str, label: str, now: float) -> list[str]:
        """Return the line that says which workers were requested, and for which calls."""
        if not handles:
            return []
        kind, job = (QUEUED, handles[0].id) if handles[0].log else (RUNNING, "")
        self.note(kind, len(handles), function=label, job=job, reason=asked)
        for_whom = f" for {label}" if label else ""
        asked = f": {asked}" if asked else ""
        text = f"{plural(len(handles), 'worker')}{for_whom}, {_names(handles)}{asked}"
        return self._line("launch request", f"launched {text}", now)

    def connected(self, hello: Hello, job: str, after: float | None, now: float) -> list[str]:
        """Count a worker that has connected `after` this many seconds since its launch. Return a
        line for the first worker, and for each later one that comes alone; `after` is None for the
        others.
        """
        self.connected_workers += 1
        self.note(CONNECTED, host=hello.host, job=job)
        if after is None:
            return []
        text = f"{_where(hello, job)} connected after {max(after, 0.0):.1f} s"
        return self._line("first worker", text, now)

    def lost(self, hello: Hello, job: str, reason: str, calls: int | None, now: float) -> list[str]:
        """Return the line for a lost worker that had `calls` unended calls; no line for a worker
        that left in order (`calls` is None).
        """
        self.note(LEFT if calls is None else LOST, host=hello.host, job=job, reason=reason)
        if calls is None:
            return []
        self.lost_workers += 1
        left = f"{plural(calls, 'call')} had not ended on it"
        return self._line("lost worker", f"lost {_where(hello, job)}, which {reason}; {left}", now)

    def no_way(self, source: str, puller: str, now: float) -> list[str]:
        """Return the line that says that results cannot go straight between two hosts."""
        text = f"{puller} cannot connect to workers on {source}: results go through this process"
        return self._line("no way", text, now)

    def retried(self, text: str, now: float) -> list[str]:
        """Return the line that says that calls run again."""
        return self._line("repeated call", text, now)

    def tick(self, figures: Figures, now: float, *, busy: bool) -> list[str]:
        """Return how many lines were left out and, when all calls have ended, the figures."""
        lines = [line for kind in self.tallies for line in self._left_out(kind, now)]
        if busy:
            self.busy_since = now if self.busy_since is None else self.busy_since
        elif self.busy_since is not None:
            self._pause(now)
            if self.busy_seconds >= FIGURES_SECONDS:
                lines += self._told(figures)
        return lines

    def closed(self, figures: Figures, now: float) -> list[str]:
        """Return all lines that are still due."""
        self._pause(now)
        return [line for kind in self.tallies for line in self._left_out(kind, math.inf)] + (
            self._told(figures)
        )

    def _pause(self, now: float) -> None:
        if self.busy_since is not None:
            self.busy_seconds += now - self.busy_since
            self.busy_since = None

    def _told(self, figures: Figures) -> list[str]:
        done, failed, cancelled, retried = (
            new - told for new, told in zip(figures, self.figures, strict=True)
        )
        if not done and not failed and not cancelled:
            return []
        seconds, self.busy_seconds, self.figures = self.busy_seconds, 0.0, figures
        text = (
            f"{plural(done, 'call')} done, {failed} failed, {cancelled} cancelled, {retried} run "
            f"again, in {seconds:.1f} s; {plural(self.connected_workers, 'worker')} connected so "
            f"far, {self.lost_workers} lost"
        )
        return [f"{text}; {self.output}" if self.output else text]

    def _line(self, kind: str, text: str, now: float) -> list[str]:
        tally = self.tallies.setdefault(kind, LineTally())
        before = self._left_out(kind, now)
        if now - tally.since >= BULK_SECONDS:
            tally.since, tally.told = now, 0
        if tally.told == MOST_LINES:
            tally.left_out += 1
            return before
        tally.told += 1
        return [*before, text]

    def _left_out(self, kind: str, now: float) -> list[str]:
        tally = self.tallies[kind]
        if not tally.left_out or now - tally.since < BULK_SECONDS:
            return []
        count, tally.left_out = tally.left_out, 0
        return [f"{plural(count, f'more {kind}')} within {BULK_SECONDS:.0f} s"]


def _names(handles: Sequence[Handle]) -> str:
    """Return the ids of workers, compressed; empty for local processes, which have no log."""
    names = compress(handle.id for handle in handles)
    one, several = ("cluster job", "cluster jobs") if handles[0].log else ("process", "processes")
    return f"{one if len(names) == 1 else several} {', '.join(names)}"


def _where(hello: Hello, job: str) -> str:
    cluster_job = f" (cluster job {job}, log {hello.log})" if job else ""
    return f"worker {hello.pid} on {hello.host}{cluster_job}"
