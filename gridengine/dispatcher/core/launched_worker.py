"""A worker that the scheduler has started, and by what it is recognised when it connects."""

from __future__ import annotations

import math

from msgspec import Struct

from gridengine.schedulers.launcher import Handle, Report, WorkerStatus


class LaunchedWorker(Struct):
    """A launched worker. `worker`: its id once it has connected. `earlier`: an earlier dispatcher
    process launched it. `ends_at`: when the batch system will end it, if it has said so;
    `lasts_seconds`: how long after its start that is, where only this is known. `left_out`: the
    hosts that it could not run on.
    """

    handle: Handle
    launched_at: float
    state: WorkerStatus = WorkerStatus.QUEUED
    running_since: float | None = None
    ended_at: float | None = None
    report: Report | None = None
    worker: bytes | None = None
    earlier: bool = False
    ends_at: float = math.inf
    lasts_seconds: float = math.inf
    left_out: tuple[str, ...] = ()

    @property
    def bad_host(self) -> str:
        """The host that is to blame for the end of this worker before it connected, if any is."""
        report = self.report
        if report is None or report.blameless or report.deleted or self.earlier:
            return ""
        return report.host


def keys_of(log: str, pid: int) -> list[str]:
    """Return the keys by which a connecting worker may be recognised."""
    return [key for key in (log_key(log), str(pid)) if key]


def key_of(handle: Handle) -> str:
    """Return the key by which a connecting worker is recognised: its log, or its process id."""
    return log_key(handle.log) or handle.id


def log_key(path: str) -> str:
    """Return the part of a log's path that is the same on every machine."""
    return "/".join(path.rsplit("/", 2)[-2:])


def how_it_ended(one: LaunchedWorker) -> str:
    """Return, for people, how a launched worker ended before it connected."""
    report = one.report
    if one.ended_at is None:
        return "it ran and never connected"
    if report is None:
        return "no reason is given"
    if report.error is not None:
        return report.error.message.partition(": ")[2] or report.error.message
    return report.reason
