"""What DRMAA says of a cluster task, and what is remembered of one: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gridengine.errors import GridEngineError, TimeoutError
from gridengine.schedulers.grid_engine.drmaa_systems import GRID_ENGINE
from gridengine.schedulers.grid_engine.request import Request, ran_for
from gridengine.schedulers.grid_engine.time_limits import Limit
from gridengine.schedulers.launcher import Report, WorkerStatus, failed

STATES = {
    **dict.fromkeys(
        ("queued_active", "system_on_hold", "user_on_hold", "user_system_on_hold"),
        WorkerStatus.QUEUED,
    ),
    "running": WorkerStatus.RUNNING,
    **dict.fromkeys(
        ("system_suspended", "user_suspended", "user_system_suspended"), WorkerStatus.SUSPENDED
    ),
}
"""DRMAA's states of jobs that have not ended (GFD.22); of "undetermined" nothing is known."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, as DRMAA told: a report, whether it had started, and, of one that a signal
    ended, what it had used.
    """

    report: Report
    started: bool = True
    usage: Mapping[str, str] | None = None


def ending_of(told: Mapping[str, Any], kind: str = GRID_ENGINE) -> Ending:
    """Return what DRMAA's exit information means, as told by a library for this kind of system.

    Grid Engine's `wait` says only "aborted" of a job that was deleted and of one that failed to
    start; but it gives the time of the start of the first, none for the second, and no usage at all
    for one that was deleted while it waited. Others say less.
    """
    if "status" in told:
        status = WorkerStatus.FAILED if told["status"] else WorkerStatus.ENDED
        return Ending(Report(status, f"exit status {told['status']}"))
    usage = told.get("usage") or {}
    if "signal" in told:
        return Ending(failed(f"killed by {told['signal']}"), usage=usage)
    if not told.get("aborted"):
        return Ending(failed(told.get("words") or "the batch system does not say how it ended"))
    if kind != GRID_ENGINE:
        return Ending(failed("aborted: deleted, killed, or not even started"))
    if not usage:
        return Ending(failed("deleted while it waited", deleted=True), started=False)
    if float(usage.get("start_time") or 0) > 0:
        return Ending(failed("deleted while it ran", deleted=True))
    return Ending(failed("could not be started"), started=False)


@dataclass(slots=True)
class DrmaaTask:
    """What is remembered of a task: what it was asked for, when it was last asked about, whether it
    waits, how it ended and since when that is known, and since when it is only known to have ended;
    how often it was looked whether it is in the error state; since when nothing is known of it;
    how long it may run, once that is known.
    """

    request: Request
    asked_at: float = 0.0
    queued: bool = True
    ending: Ending | None = None
    ended_at: float = 0.0
    ending_since: float | None = None
    looks: int = 0
    unknown_since: float | None = None
    limit: Limit | None = None

    def fault(self, usage: Mapping[str, str]) -> type[GridEngineError] | None:
        """Return which of its limits one that was killed had reached; None when none is known."""
        at_its_end = self.limit is not None and ran_for(usage) >= self.limit.seconds
        return self.request.fault(usage) or (TimeoutError if at_its_end else None)

    def running(self, status: WorkerStatus) -> Report:
        """Return the report on it while it has not ended."""
        limit = self.limit or Limit()
        return Report(status, lasts_seconds=limit.seconds, limited_by=limit.words)
