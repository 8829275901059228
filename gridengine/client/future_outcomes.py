"""The outcomes of futures: phases of calls without one, results that are still pickled, errors."""

from __future__ import annotations

import threading
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, PENDING
from concurrent.futures._base import RUNNING as FUTURE_RUNNING
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import Struct

from gridengine.client.outcomes import ONE_CALL, outcomes_of
from gridengine.requests import CallsFinished
from gridengine.serialize.payload import PayloadAtWorker


class Phase(Enum):
    """The phase of a call without a value or an error, with the standard library's word for it."""

    WAITING = PENDING
    RUNNING = FUTURE_RUNNING
    CANCELLED = CANCELLED_AND_NOTIFIED


WAITING: Final = Phase.WAITING
"""The call has not been handed over to the dispatcher."""
RUNNING: Final = Phase.RUNNING
"""The call has been handed over."""
CANCELLED: Final = Phase.CANCELLED


class UndecodedResult:
    """The outcome of calls that ended together, still pickled. The first future that is asked for
    its result unpickles all values, and each future takes its own.
    """

    __slots__ = ("_values", "event", "failed", "is_at_worker", "lock", "recalled")

    def __init__(self, event: CallsFinished) -> None:
        self.failed = event.raised or event.payload is None
        self.recalled = event.recalled
        self.is_at_worker = type(event.payload) is PayloadAtWorker
        self.event: CallsFinished | None = event
        """None once it has been unpickled."""
        self.lock = threading.Lock()
        self._values: dict[int, Any] = {}

    def take(self, index: int, name: str) -> Any:
        """Take the value, or the `Failed`, of the call with this index in its task, under `lock`.
        The calls have this name.
        """
        event = self.event
        if event is not None:
            for outcome in outcomes_of(event, name, ONE_CALL):
                self._values.update(
                    zip(range(outcome.start, outcome.stop), outcome.values, strict=True)
                    if outcome.error is None
                    else dict.fromkeys(
                        range(outcome.start, outcome.stop), Failed(outcome.error, event)
                    )
                )
            self.event = None
        return self._values.pop(index)


class Failed(Struct, eq=False):
    """An exception as an outcome, with the event that brought it, if one did."""

    error: BaseException
    event: CallsFinished | None = None
    failed: ClassVar = True


class Done:
    """The outcome of calls whose results are stored elsewhere."""

    __slots__ = ()
    failed = False


FutureOutcome: TypeAlias = UndecodedResult | Failed | Done


def is_failure(outcome: FutureOutcome) -> bool:
    """Return whether an outcome is an error, or stands for one."""
    return type(outcome) is Failed or (type(outcome) is UndecodedResult and outcome.failed)
