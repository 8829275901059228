"""The outcomes of futures: phases of calls without one, results that are still pickled, errors."""

from __future__ import annotations

import threading
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, PENDING
from concurrent.futures._base import RUNNING as FUTURE_RUNNING
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import Struct

from gridengine.client.hand_in import TaskMaker
from gridengine.client.outcomes import ONE_CALL, outcomes_of
from gridengine.requests import CallsFinished
from gridengine.serialize.argument_snapshot import given_words
from gridengine.serialize.exceptions import note_on
from gridengine.serialize.payload import FULL, PayloadAtWorker


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
    its result unpickles all values, and each future takes its own. `call` is the argument of a
    single failed call: an error of the package, unlike an exception of the call, does not show it.
    """

    __slots__ = ("_call", "_values", "event", "failed", "is_at_worker", "lock", "recalled")

    def __init__(self, event: CallsFinished, call: Any = None) -> None:
        self._call = call
        self.failed = event.raised or event.payload is None
        self.recalled = event.recalled
        self.is_at_worker = type(event.payload) is PayloadAtWorker
        self.event: CallsFinished | None = event
        """None once it has been unpickled."""
        self.lock = threading.Lock()
        self._values: dict[int, Any] = {}

    def take(self, index: int, maker: TaskMaker) -> Any:
        """Take the value, or the `Failed`, of the call with this index in its task, under `lock`.
        `maker` has made the task.
        """
        event = self.event
        if event is not None:
            self._name_arguments(event, maker)
            for outcome in outcomes_of(event, maker.function.name, ONE_CALL):
                self._values.update(
                    zip(range(outcome.start, outcome.stop), outcome.values, strict=True)
                    if outcome.error is None
                    else dict.fromkeys(
                        range(outcome.start, outcome.stop), Failed(outcome.error, event)
                    )
                )
            self.event = None
        return self._values.pop(index)

    def _name_arguments(self, event: CallsFinished, maker: TaskMaker) -> None:
        """Note the argument on the error of a single call."""
        # Without attempts, other calls share the error.
        if event.error is not None and event.attempts:
            call, form = self._call, maker.form
            if maker.options.seed is not None and type(call) in (int, tuple):
                from gridengine.call_context.random_streams import without_number  # few need it

                call, form = without_number(call, form), FULL
            note_on(event.error, list(filter(None, [given_words(call, form)])))
            self._call = None


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
