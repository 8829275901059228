"""The last events of calls and workers, for the message of a broken invariant and for who asks. It
is kept while checks are on.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TypeAlias

from gridengine.dispatcher.core.calls import OpenTask, Span
from gridengine.dispatcher.core.events import Received
from gridengine.dispatcher.core.states import CALL_MOVES, CallState

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
