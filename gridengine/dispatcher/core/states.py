"""The states of calls and of workers, which may follow which, and what has happened."""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Mapping, Set
from typing import Literal, TypeAlias

from gridengine.dispatcher.core.calls import OpenTask, Span
from gridengine.dispatcher.core.events import Received

CallState: TypeAlias = Literal["waiting", "missing", "assigned", "settled"]
"""The state of one call. It is not stored: the place of a call is its state (`CoreState.state_of`),
and a million calls that wait need no field for it. `Story` stores it while checks are on.

waiting: in a queue, in a span or a block. missing: in no queue, until results that it needs are
there, or until the worker that has them has room. assigned: a worker has it, in a run. settled: its
outcome has been told.
"""
CALL_MOVES: Mapping[CallState, Set[CallState]] = {
    # A call begins here.
    "waiting": {
        "assigned",  # a batch with it is sent to a worker
        "missing",  # it needs results that are not there, or are elsewhere
        "settled",  # cancelled, recalled, or no worker can be had
    },
    "missing": {
        "waiting",  # the last result is there
        "assigned",  # in one batch with the call that makes its input, behind it
        "settled",  # cancelled, recalled, or an input has failed
    },
    "assigned": {
        "assigned",  # the worker of an earlier dispatcher is back, and goes on with it
        "waiting",  # given back, lost, or to be tried again
        "missing",  # given back, and its input was not made there
        "settled",  # answered, failed for good, cancelled, or recalled
    },
    "settled": set(),
}


class Phase(enum.Enum):
    """The state of a worker that has connected. Whether it is given calls depends on more: see the
    fields `draining`, `withheld`, `floor` and `taken` of `Worker`.

    READY: it is heard. SILENT: it has missed three beats, or its job is suspended. STOPPING: it was
    told to leave, or has said that it does. GONE: it is forgotten, its calls are back in their
    queues or settled.
    """

    READY = "ready"
    SILENT = "silent"
    STOPPING = "stopping"
    GONE = "gone"


READY, SILENT = Phase.READY, Phase.SILENT
"""Looking up a member of an enumeration takes longer than comparing it, and both are done for each
message and, each tick, for each worker.
"""

NEXT_PHASES: Mapping[Phase, Set[Phase]] = {
    Phase.READY: {Phase.SILENT, Phase.STOPPING, Phase.GONE},
    Phase.SILENT: {Phase.READY, Phase.STOPPING, Phase.GONE},
    Phase.STOPPING: {Phase.GONE},
    Phase.GONE: set(),
}


MOST_LINES, MOST_SUBJECTS = 30, 10_000
Subject: TypeAlias = int | bytes
"""A task, by its number, or a worker, by its id."""


class Broken(AssertionError):
    """Something that always holds in the core does not: a fault of this package."""


class Story:
    """The last `MOST_LINES` events of each of the `MOST_SUBJECTS` tasks and workers that had one
    last; and the state of each call that has not been settled.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[Subject, deque[str]] = OrderedDict()
        self._states: dict[int, dict[int, CallState]] = {}
        self._event = ""

    def begin(self, event: object, now: float) -> None:
        """Note which event is being handled."""
        self._event = f"{now:.3f} {type(event).__name__}"
        if isinstance(event, Received):
            self.add(event.worker, f"says {type(event.message).__name__}")

    def add(self, subject: Subject, words: str) -> None:
        """Note what has happened to a task or worker."""
        lines = self._lines.setdefault(subject, deque(maxlen=MOST_LINES))
        lines.append(f"{self._event}: {words}")
        self._lines.move_to_end(subject)
        if len(self._lines) > MOST_SUBJECTS:
            self._lines.popitem(last=False)

    def of(self, subject: Subject) -> list[str]:
        """Return the last events of a task or worker, the oldest first."""
        return list(self._lines.get(subject, ()))

    def move(self, span: Span, state: CallState, words: str = "") -> None:
        """Note that calls enter a state.

        Raises:
            Broken: `CALL_MOVES` has no such arrow.
        """
        one, number = span.open_task, span.open_task.task.id
        known = self._states.setdefault(number, {})
        for index in range(span.start, span.stop):
            before = known.get(index, "waiting")
            if state not in CALL_MOVES[before] or one.unsettled < 0:
                raise self.broken(f"call {index} of task {number} is {before}: not {state}", number)
            known[index] = state
        self.add(number, f"calls {span.start} to {span.stop} are {state} {words}".rstrip())
        if not one.unsettled:
            del self._states[number]

    def states_of(self, one: OpenTask, start: int, stop: int, but: CallState) -> list[int]:
        """Return which of these calls of a task are in another state than this."""
        known = self._states.get(one.task.id)
        if known is None:
            return [] if but == "waiting" else [start]
        return [index for index in range(start, stop) if known.get(index, "waiting") != but]

    def broken(self, text: str, subject: Subject | None = None) -> Broken:
        """Return the error that tells that something does not hold, with what led to that."""
        lines = [] if subject is None else self.of(subject)
        return Broken("\n  ".join([text, *lines]))
