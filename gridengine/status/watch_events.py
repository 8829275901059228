"""The events of calls and workers, recorded while somebody follows a dispatcher. If too many events
of one kind happen at a time, the rest are counted instead of kept.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace


class WatchEvent(Struct, frozen=True):
    """Something that has happened to calls or workers, told to the followers of a dispatcher.

    kind: `call waiting` (submitted), `call started` (assigned), `call done`, `call failed`, `call
        retried`; `worker requested`, `worker queued` and `worker running` (by the batch system),
        `worker connected`, `worker idle`, `worker silent`, `worker leaving`, `worker left`, `worker
        lost`; `scheduler` (its words).
    count: how many calls or workers.
    call: the name of the first call for people. function: the function of the calls.
    seconds: how long the calls took, or None.
    reason: the reason, or the result, in words.
    """

    kind: str
    count: int = 1
    seconds_ago: float = 0.0
    function: str = ""
    call: str = ""
    host: str = ""
    job: str = ""
    seconds: float | None = None
    reason: str = ""


MOST_EVENTS = 1000
"""This many events are kept for followers that have not been told of them."""


MOST_OF_KIND, WINDOW_SECONDS = 20, 0.25
"""Of the events of one kind within `WINDOW_SECONDS`, at most `MOST_OF_KIND` are kept."""


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
    """How far a follower has been told: the number of events seen, the number of the last kept
    event, and the counts by kind.
    """

    seen: int
    last: int
    counts: Mapping[str, int]


class Kind(Struct):
    """The events of one kind: how many calls or workers they are about, since when they are
    counted, and how many events since then are kept.
    """

    count: int = 0
    since: float = 0.0
    recorded: int = 0


class EventRecorder(Struct):
    """Records events while somebody follows. Once enough events of a kind are kept, one more is
    only counted, which takes some tenths of a microsecond.
    """

    now: float = 0.0
    """The time of the core's event that is being handled."""
    seen: int = 0
    last: int = 0
    ticked_at: float = math.inf
    """When idle workers were last looked for; workers that were idle before are not reported."""
    kinds: defaultdict[str, Kind] = field(default_factory=lambda: defaultdict(Kind))
    recorded: deque[tuple[int, float, WatchEvent]] = field(
        default_factory=lambda: deque(maxlen=MOST_EVENTS)
    )

    def takes(self, kind: str, count: int) -> bool:
        """Count the calls or workers of an event. Return whether `add` should keep the event."""
        known = self.kinds[kind]
        known.count += count
        self.seen += 1
        if known.recorded >= MOST_OF_KIND:
            if self.now - known.since < WINDOW_SECONDS:
                return False
            known.recorded = 0
        if not known.recorded:
            known.since = self.now
        known.recorded += 1
        return True

    def add(self, event: WatchEvent) -> None:
        """Keep an event that has just happened."""
        self.last += 1
        self.recorded.append((self.last, self.now, event))

    def note(self, event: WatchEvent) -> None:
        """Count an event, and keep it unless there are enough of its kind."""
        if self.takes(event.kind, event.count):
            self.add(event)

    @property
    def position(self) -> Position:
        """The position of a follower that begins now."""
        counts = {kind: known.count for kind, known in self.kinds.items()}
        return Position(self.seen, self.last, counts)

    def since(self, told: Position, now: float) -> tuple[list[WatchEvent], dict[str, int]]:
        """Return the kept events since a position, and how many more there were by kind."""
        events = [
            replace(event, seconds_ago=now - at)
            for number, at, event in self.recorded
            if number > told.last
        ]
        left_out = {
            kind: known.count - told.counts.get(kind, 0) for kind, known in self.kinds.items()
        }
        for one in events:
            left_out[one.kind] -= one.count
        return events, {kind: count for kind, count in left_out.items() if count}
