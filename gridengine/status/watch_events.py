"""The events of calls and workers, recorded while somebody follows a dispatcher. Of many events of
one kind at a time some are kept, and the others are counted.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace


class WatchEvent(Struct, frozen=True):
    """Something that has happened to calls or workers, told to those who follow a dispatcher.

    kind: `call waiting` (submitted), `call started` (assigned), `call done`, `call failed`, `call
    retried`; `worker requested`, `worker queued` and `worker running` (by the batch system),
    `worker connected`, `worker idle`, `worker silent`, `worker leaving`, `worker left`, `worker
    lost`; `scheduler` (its words). count: how many calls or workers. call: what people call the
    first of the calls. function: whose they are. seconds: how long they took, or None. reason: why,
    or with what, in words.
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
    recorded: int = 0


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
    recorded: deque[tuple[int, float, WatchEvent]] = field(
        default_factory=lambda: deque(maxlen=MOST_EVENTS)
    )

    def takes(self, kind: str, count: int) -> bool:
        """Count calls or workers; return whether the event is to be kept, by `add`."""
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
        """Where a follower that begins now begins."""
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
