"""Launched workers: how each is recognised when it connects, which could not be started, and the
hosts that later requests leave out because a worker could not be started there.
"""

from __future__ import annotations

import math
from collections import deque

from msgspec import Struct, field

from gridengine.dispatcher.core.policy import Policy
from gridengine.errors import (
    UNREACHABLE,
    UNSHARED,
    GridEngineError,
    JobDeleted,
    SubmissionRefused,
    WorkerNotStarted,
)
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus

MOST_FAILED_HOSTS = 2
"""When workers could not be started on so many hosts in a row, the hosts are not the cause."""
LEFT_OUT_SECONDS = 3600.0
"""For how long a host is left out after the last worker that could not be started there."""


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


class Pace(Struct, eq=False):
    """How many workers have been requested in the last minute. `allowed` looks at their number
    alone: `requested` has the time and the number of each request.
    """

    requested: deque[tuple[float, int]] = field(default_factory=deque)

    def allowed(self, count: int, per_minute: int, now: float) -> int:
        """Return how many of so many workers may be requested now, without those requested since
        a minute ago; 0 `per_minute` is no limit.
        """
        if not per_minute:
            return count
        while self.requested and now - self.requested[0][0] >= 60.0:
            self.requested.popleft()
        return max(0, min(count, per_minute - sum(one for _, one in self.requested)))


def _how(one: LaunchedWorker) -> str:
    """Return, for people, how a launched worker ended before it connected."""
    report = one.report
    if one.ended_at is None:
        return "it ran and never connected"
    if report is None:
        return "no reason is given"
    if report.error is not None:
        return report.error.message.partition(": ")[2] or report.error.message
    return report.reason


class BadHost(Struct):
    """A host on which a worker could not be started: when that was seen last, and for which demand
    the worker was.
    """

    seen_at: float
    demand: Demand


class FailedStarts(Struct, eq=False):
    """The failed starts of workers of one demand.

    left_out: the hosts that all demands' requests leave out, see `CoreState`.
    count: how many failed in a row. failed_hosts: on which hosts, and what happened there, for
        people. error: that of the last one on a host that can be left out.
    asked_without: the hosts that the last request left out.
    needed: hosts without which a request was refused, though none of its own failed there.
    deleted_at: when a deletion was seen last.
    unanswered: the addresses that workers have tried in vain, and why; empty once a worker has
        connected.
    """

    demand: Demand = ANY
    left_out: dict[str, BadHost] = field(default_factory=dict)
    count: int = 0
    failed_hosts: dict[str, str] = field(default_factory=dict)
    error: GridEngineError | None = None
    asked_without: tuple[str, ...] = ()
    needed: set[str] = field(default_factory=set)
    deleted_at: float = 0.0
    unanswered: str = ""

    def reset(self) -> None:
        """Forget the failures in a row: a worker has connected."""
        self.count, self.failed_hosts, self.error, self.unanswered = 0, {}, None, ""

    def forget_hosts(self) -> None:
        """Leave the hosts out no more that are left out because of this demand's workers."""
        for host in [host for host, one in self.left_out.items() if one.demand == self.demand]:
            del self.left_out[host]
        self.needed.clear()

    def hosts_to_leave_out(self, now: float) -> tuple[str, ...]:
        """Return the hosts that the next request leaves out."""
        for host, one in list(self.left_out.items()):
            if now - one.seen_at >= LEFT_OUT_SECONDS:
                del self.left_out[host]
        self.asked_without = (*(host for host in self.left_out if host not in self.needed),)
        return self.asked_without

    def note(
        self, one: LaunchedWorker, policy: Policy, now: float, *, none_connected: bool
    ) -> GridEngineError | None:
        """Count a worker that ended before it connected; return the error if it is one too many.

        Deleting an array is one act: workers launched before a deletion was seen, and deleted too,
        do not count again. Nor do workers that were launched before their host was left out.
        """
        report = one.report
        if report is not None and report.blameless:
            return None
        deleted = report is not None and report.deleted
        if deleted and one.launched_at < self.deleted_at:
            return None
        self.deleted_at = now if deleted else self.deleted_at
        host = one.bad_host
        if host in self.left_out and host not in one.left_out:
            return None
        self.count += 1
        error = report.error if report is not None else None
        error = error or self._error(one, policy)
        if host:
            self.failed_hosts[host], self.error = f"on {host}: {_how(one)}", error
        can_never_start = isinstance(error, SubmissionRefused)
        is_enough = can_never_start or (none_connected and bool(self.unanswered))
        too_often = self.count >= policy.failed_starts
        if not (too_often or is_enough or len(self.failed_hosts) >= MOST_FAILED_HOSTS):
            return None
        if len(self.failed_hosts) > 1:
            error.attempts = (*self.failed_hosts.values(),)
        self.count, self.failed_hosts = 0, {}
        return error

    def leave_out(self, one: LaunchedWorker, now: float) -> str:
        """Leave out the host on which a worker could not be started; return a warning if that is
        new, else an empty text.
        """
        host = one.bad_host
        if not host:
            return ""
        is_known, self.left_out[host] = host in self.left_out, BadHost(now, self.demand)
        self.needed.discard(host)
        if is_known:
            return ""
        if host in self.failed_hosts:
            self.failed_hosts[host] += f"; {host} was left out of the next requests"
        return (
            f"no worker could be started on {host} (cluster job {one.handle.id}: "
            f"{_how(one)}); {host} is left out of the next requests"
        )

    def refused(self, error: GridEngineError) -> GridEngineError | None:
        """Return the error of a request that can never be served; None if it is to be made again
        with the hosts that it left out. If these are the only hosts that there are, and this
        demand's own workers failed there, the error is why.
        """
        if not self.asked_without:
            return error
        if self.error is None:
            self.needed.update(self.asked_without)
            return None
        found, hosts = self.error, ", ".join(self.asked_without)
        found.attempts = *self.failed_hosts.values(), f"without {hosts}: {error.message}"
        return found

    def _error(self, one: LaunchedWorker, policy: Policy) -> GridEngineError:
        """Return the error of the failed starts in a row, of which `one` is the last."""
        report, count = one.report, self.count
        deleted, failed = report is not None and report.deleted, one.ended_at is not None
        reason = (report.reason if report is not None else "") or "no reason is given"
        hint = (
            "check that the interpreter and the package are there on the node, and the prologue; "
            "its log may tell"
        )
        if deleted:
            text = f"was deleted: {reason}"
        elif failed:
            text = f"ended before its worker connected: {reason}"
        else:
            seconds = policy.start_seconds
            places = self.unanswered or " or ".join(policy.addresses)
            text = f"ran, but its worker never connected within {seconds:g} s to {places}"
            is_by_files = places.startswith("file:")
            remedy = UNSHARED if is_by_files else UNREACHABLE
            hint = f"{remedy}; or is the prologue slow? Give it GRIDENGINE_START_SECONDS"
        which = (
            f"{count} workers in a row could not be started; the last"
            if count > 1
            else "the cluster job"
        )
        return (JobDeleted if deleted else WorkerNotStarted)(
            f"{which} {text}", job=one.handle.id, log=one.handle.log or None, hint=hint
        )
