"""The verdict on a call after a fault: an error, or another attempt, which may count as a retry and
may get more memory. `TABLE` has all verdicts; `docs/reliability.md` shows it.
"""

from __future__ import annotations

from collections.abc import Set
from enum import Enum
from typing import NamedTuple

from gridengine.errors import (
    Cancelled,
    GridEngineError,
    JobDeleted,
    OutOfMemory,
    TimeoutError,
    WorkerCrashed,
    WorkerLost,
)


class Fault(Enum):
    """What has happened to a call, or to the process or worker that had it."""

    RAISED = "the call raises an exception"
    RETRY_ON = "the call raises an exception of `retry_on`"
    MEMORY_ERROR = "the call raises a `MemoryError` under its limit"
    INTERRUPTED = "the call stops, as it was told: its worker is to leave"
    CRASHED = "its process dies in the call"
    OUT_OF_MEMORY = "its process dies in the call for lack of memory"
    OVER_TIME = "the call runs over its time"
    ENDED = "its process is ended for the sake of a cancelled call before it"
    UNANSWERED = "the call has returned, and its result is lost with its process"
    LEFT_OUT = "the call has returned, and its result is lost with the dispatcher"
    LOST = "its worker is killed, ends or falls silent"
    DELETED = "its worker is deleted"
    MADE_ROOM = "its worker makes room for another job"
    WORKER_OUT_OF_MEMORY = "its worker is ended for lack of memory"
    WORKER_OVER_TIME = "the walltime of its worker is over"


class Fact(Enum):
    """What a verdict may depend on besides the fault."""

    CANCELLED = "it is cancelled"
    ONCE = "`retries=0`"
    LEFT = "it has a retry left"
    MORE = "`escalate_memory` has more for it"
    STUCK = "no worker has more for it"
    SAVED = "it has saved its state, and its worker was told to end"
    WHOLE_LIFE = "it had its worker's whole life and has saved nothing"
    IN_PROGRESS = "it was in progress"


class Verdict(NamedTuple):
    """Whether a call runs again, whether that counts as a retry, and whether it has more memory
    then; otherwise the class of its error, None for the exception that it raised.
    """

    again: bool = False
    charged: bool = False
    grows: bool = False
    error: type[GridEngineError] | None = None


FREE = Verdict(again=True)
CHARGED = Verdict(again=True, charged=True)
GROWN = Verdict(again=True, charged=True, grows=True)
OWN = Verdict()
ENDED = Verdict(error=Cancelled)
CRASHED = Verdict(error=WorkerCrashed)
LOST = Verdict(error=WorkerLost)
DELETED = Verdict(error=JobDeleted)
TOO_LONG = Verdict(error=TimeoutError)
TOO_LARGE = Verdict(error=OutOfMemory)

_CANCELLED, _ONCE, _LEFT, _MORE, _STUCK, _SAVED, _WHOLE_LIFE, _IN_PROGRESS = Fact
TABLE: dict[Fault, dict[tuple[Fact, ...], Verdict]] = {
    Fault.RAISED: {(): OWN},
    Fault.RETRY_ON: {(_CANCELLED,): OWN, (_LEFT,): CHARGED, (): OWN},
    Fault.MEMORY_ERROR: {(_CANCELLED,): OWN, (_LEFT, _MORE): GROWN, (): OWN},
    Fault.INTERRUPTED: {(_CANCELLED,): ENDED, (_WHOLE_LIFE,): OWN, (): FREE},
    Fault.CRASHED: {(_CANCELLED,): ENDED, (_LEFT,): CHARGED, (): CRASHED},
    Fault.OUT_OF_MEMORY: {
        (_CANCELLED,): ENDED,
        (_LEFT, _MORE): GROWN,
        (_STUCK,): TOO_LARGE,
        (_LEFT,): CHARGED,
        (): TOO_LARGE,
    },
    Fault.OVER_TIME: {(_CANCELLED,): ENDED, (): TOO_LONG},
    Fault.ENDED: {(_CANCELLED,): ENDED, (_ONCE,): ENDED, (): FREE},
    Fault.UNANSWERED: {(_CANCELLED,): ENDED, (_ONCE,): CRASHED, (): FREE},
    Fault.LEFT_OUT: {(_CANCELLED,): ENDED, (_ONCE,): LOST, (): FREE},
    Fault.LOST: {
        (_CANCELLED,): ENDED,
        (_ONCE,): LOST,
        (_SAVED,): FREE,
        (_LEFT,): CHARGED,
        (): LOST,
    },
    Fault.DELETED: {
        (_CANCELLED,): ENDED,
        (_ONCE,): DELETED,
        (_SAVED,): FREE,
        (_LEFT,): CHARGED,
        (): DELETED,
    },
    Fault.MADE_ROOM: {(_CANCELLED,): ENDED, (_ONCE,): LOST, (): FREE},
    Fault.WORKER_OUT_OF_MEMORY: {
        (_CANCELLED,): ENDED,
        (_LEFT, _MORE): GROWN,
        (_STUCK, _IN_PROGRESS): TOO_LARGE,
        (_LEFT,): CHARGED,
        (_IN_PROGRESS,): TOO_LARGE,
        (): LOST,
    },
    Fault.WORKER_OVER_TIME: {
        (_CANCELLED,): ENDED,
        (_ONCE, _IN_PROGRESS): TOO_LONG,
        (_ONCE,): LOST,
        (_WHOLE_LIFE, _IN_PROGRESS): TOO_LONG,
        (): FREE,
    },
}
"""For each fault, the verdicts by what holds; the first whose facts all hold is the verdict."""


def judge(fault: Fault, facts: Set[Fact]) -> Verdict:
    """Return the verdict on a call that had this fault, by the facts that hold of it."""
    rows = TABLE[fault].items()
    return next(verdict for needed, verdict in rows if all(one in facts for one in needed))
