"""What is told while it happens: lines of the log, and events for who follows a dispatcher. Of what
happens in bulk a part is told, and the rest is counted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from gridengine.dispatcher.core.calls import Span
from gridengine.dispatcher.core.events import Inform, Launched, Warn
from gridengine.dispatcher.core.failures import name_of
from gridengine.dispatcher.core.model import Worker
from gridengine.dispatcher.core.states import Phase
from gridengine.dispatcher.core.status import Status, WatchEvent
from gridengine.dispatcher.core.tasks import Effect
from gridengine.display import plural
from gridengine.schedulers.launcher import Handle, compress

MOST_LINES, BULK_SECONDS = 5, 10.0
"""How many lines of one kind there are at most in so many seconds; the others are counted."""
FIGURES_SECONDS = 10.0
"""For how long calls must have run for their figures to be told before the end."""


class Tally(Struct):
    """The lines of one kind since `since`: how many were told and left out."""

    since: float = -math.inf
    told: int = 0
    left_out: int = 0


class RunLog(Struct):
    """What has been told of a run. Each method returns the lines that are due."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    figures: tuple[int, int, int] = (0, 0, 0)
    """How many calls were done, failed and run again when figures were last told."""
    busy_since: float | None = None
    busy_seconds: float = 0.0
    connected_workers: int = 0
    lost_workers: int = 0
    warned_of_killed: bool = False
    """Whether a call was warned of that runs again because its process was killed."""
    events: EventRecorder | None = None
    """What takes in what happens, while somebody follows."""

    def note(self, kind: str, count: int = 1, **facts: str) -> None:
        """Tell followers of something; see `WatchEvent`."""
        if self.events is not None:
            self.events.note(WatchEvent(kind, count, **facts))  # type: ignore[arg-type]

    def worker(self, kind: str, worker: Worker, reason: str = "") -> None:
        """Tell followers of a worker."""
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
        """Count a worker; tell of the first, and of each next one that is alone."""
        self.connected_workers += 1
        self.worker(CONNECTED, worker)
        launch = worker.launch
        if launch is None or worker.provisioner.workers > 1:
            return []
        after = f"{max(now - launch.launched_at, 0.0):.1f} s"
        return self._line("first worker", f"{_where(worker)} connected after {after}", now)

    def lost(self, worker: Worker, reason: str, now: float) -> list[Effect]:
        """Tell of a lost worker, unless it was to leave and had nothing left to do."""
        calls = sum(run.rest.calls for run in worker.runs.values())
        if worker.phase is Phase.STOPPING and not calls:
            self.worker(LEFT, worker, reason)
            return []
        self.lost_workers += 1
        self.worker(LOST, worker, reason)
        text = f"lost {_where(worker)}, which {reason}; {plural(calls, 'call')} had not ended on it"
        return self._line("lost worker", text, now)

    def retried(self, span: Span) -> list[Effect]:
        """Tell that calls run again, and why: their last attempt was just recorded. The first call
        whose process was killed is warned of, since it does again whatever it had done.
        """
        one = span.open_task
        last = (one.attempts or {})[span.start][-1]
        name = name_of(span, span.start)
        function, where = one.function.function.name, {"host": last.host, "job": last.job}
        self.note(RETRIED, span.calls, function=function, call=name, reason=str(last), **where)
        others = f" and {span.calls - 1} more" if span.calls > 1 else ""
        which = f"attempt {span.attempt + 1} of {one.task.retries + 1}"
        text = f"{name}{others} is run again ({which}): {last}"
        if (last.exitcode or 0) < 0 and not self.warned_of_killed:
            self.warned_of_killed = True
            return [Warn(text)]
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
    """Return the ids of workers, compressed; processes of this machine have no log."""
    names = compress(handle.id for handle in handles)
    one, several = ("cluster job", "cluster jobs") if handles[0].log else ("process", "processes")
    return f"{one if len(names) == 1 else several} {', '.join(names)}"


def _where(worker: Worker) -> str:
    job = f" (cluster job {worker.job}, log {worker.hello.log})" if worker.job else ""
    return f"worker {worker.hello.pid} on {worker.hello.host}{job}"


MOST_KEPT = 1000
"""How many events are kept for who has not been told of them."""
MOST_OF_KIND, WINDOW_SECONDS = 20, 0.25
"""How many events of one kind are kept at most that happen within so many seconds."""

WAITING, STARTED, DONE, FAILED, RETRIED = (
    f"call {word}" for word in ("waiting", "started", "done", "failed", "retried")
)
REQUESTED, QUEUED, RUNNING, CONNECTED = (
    f"worker {word}" for word in ("requested", "queued", "running", "connected")
)
IDLE, SILENT, LEAVING, LEFT, LOST = (
    f"worker {word}" for word in ("idle", "silent", "leaving", "left", "lost")
)
SCHEDULER = "scheduler"


class Position(Struct, frozen=True):
    """Up to where a follower was told: events seen, the number of the last kept one, and counts by
    kind.
    """

    seen: int
    last: int
    counts: Mapping[str, int]


class Kind(Struct):
    """Events of one kind: how many calls or workers; since when they are counted, and how many of
    these are kept.
    """

    count: int = 0
    since: float = 0.0
    kept: int = 0


class EventRecorder(Struct):
    """Records events while somebody follows. An event costs some tenths of a microsecond once
    enough of its kind are kept.
    """

    now: float = 0.0
    """When the event of the core came that is being handled."""
    seen: int = 0
    last: int = 0
    ticked_at: float = math.inf
    """When it was last seen who is idle; nobody is told of those that were before."""
    kinds: defaultdict[str, Kind] = field(default_factory=lambda: defaultdict(Kind))
    kept: deque[tuple[int, float, WatchEvent]] = field(
        default_factory=lambda: deque(maxlen=MOST_KEPT)
    )

    def takes(self, kind: str, count: int) -> bool:
        """Count calls or workers; return whether the event is to be kept, by `add`."""
        known = self.kinds[kind]
        known.count += count
        self.seen += 1
        if known.kept >= MOST_OF_KIND:
            if self.now - known.since < WINDOW_SECONDS:
                return False
            known.kept = 0
        if not known.kept:
            known.since = self.now
        known.kept += 1
        return True

    def add(self, event: WatchEvent) -> None:
        """Keep an event that has just happened."""
        self.last += 1
        self.kept.append((self.last, self.now, event))

    def note(self, event: WatchEvent) -> None:
        """Count an event, and keep it unless there are enough of its kind."""
        if self.takes(event.kind, event.count):
            self.add(event)

    @property
    def position(self) -> Position:
        """Where a follower that begins now begins."""
        counts = {kind: known.count for kind, known in self.kinds.items()}
        return Position(self.seen, self.last, counts)

    def since(self, told: Position, now: float) -> tuple[list[WatchEvent], dict[str, int]]:
        """Return the kept events since a position, and how many more there were by kind."""
        events = [
            replace(event, seconds_ago=now - at)
            for number, at, event in self.kept
            if number > told.last
        ]
        left_out = {
            kind: known.count - told.counts.get(kind, 0) for kind, known in self.kinds.items()
        }
        for one in events:
            left_out[one.kind] -= one.count
        return events, {kind: count for kind, count in left_out.items() if count}


def merged(before: Status, after: Status) -> Status:
    """Return the later status with the last events and all left-out counts of both."""
    passed = after.elapsed_seconds - before.elapsed_seconds
    events = [replace(one, seconds_ago=one.seconds_ago + passed) for one in before.events]
    events += after.events
    left_out = Counter(before.left_out) + Counter(after.left_out)
    for one in events[:-MOST_KEPT]:
        left_out[one.kind] += one.count
    return replace(after, events=events[-MOST_KEPT:], left_out=dict(left_out))
