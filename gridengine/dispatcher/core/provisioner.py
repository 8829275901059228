"""The workers that were asked for: how many there should be, which have called home, which never
will. Sans-I/O, a part of the core.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from gridengine.dispatcher.core.events import Effect, Explain, Launch, Withdraw
from gridengine.dispatcher.core.policy import Policy
from gridengine.errors import GridEngineError, JobDeleted, WorkerNotStarted
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus

EXPLAIN_SECONDS = 60.0
FIRST_BACKOFF, LAST_BACKOFF = 1.0, 60.0
KEPT_WITHDRAWN = 10_000


class LaunchedWorker(Struct):
    """A launched worker. `worker` is set when it has called home."""

    handle: Handle
    launched_at: float
    state: WorkerStatus = WorkerStatus.QUEUED
    running_since: float | None = None
    ended_at: float | None = None
    report: Report | None = None
    worker: bytes | None = None


def keys_of(log: str, pid: int) -> list[str]:
    """Return what a worker that calls home may be recognised by."""
    return [key for key in (log_key(log), str(pid)) if key]


def key_of(handle: Handle) -> str:
    """Return what a worker that calls home is recognised by: its log, or its process id."""
    return log_key(handle.log) or handle.id


def log_key(path: str) -> str:
    """Return the part of a log's path that is the same on every machine: a home may be mounted
    elsewhere on the node.
    """
    return "/".join(path.rsplit("/", 2)[-2:])


class Provisioner(Struct):
    """Decides how many workers of one demand to ask for and to withdraw, and recognises them when
    they call.

    `strangers` and `withdrawn`, who called before they were known and who may call no more, are
    shared by all fleets of a dispatcher.
    """

    policy: Policy
    demand: Demand = ANY
    started: dict[str, LaunchedWorker] = field(default_factory=dict)
    expected: dict[str, LaunchedWorker] = field(default_factory=dict)
    strangers: dict[str, bytes] = field(default_factory=dict)
    withdrawn: dict[str, None] = field(default_factory=dict)
    asked: int = 0
    failures: int = 0
    backoff: float = FIRST_BACKOFF
    ask_again_at: float = 0.0
    demand_since: float | None = None
    explain_at: float | None = None
    surplus_since: float | None = None
    deleted_at: float = 0.0
    unserved_since: float | None = None
    reason: str = ""

    def launched(self, handles: Iterable[Handle], now: float) -> list[tuple[bytes, LaunchedWorker]]:
        """Note launched workers; return those that have called home already."""
        self.asked = 0
        early = []
        for handle in handles:
            key = key_of(handle)
            self.withdrawn.pop(key, None)
            one = self.started[key] = LaunchedWorker(handle, now)
            worker = self.strangers.pop(key, None)
            if worker is None:
                self.expected[key] = one
            else:
                one.worker = worker
                early.append((worker, one))
        return early

    def hold_back(self, now: float) -> None:
        """Something went wrong: wait before asking again, longer each time until a worker is
        welcomed. What fails together counts once.
        """
        if now >= self.ask_again_at:
            self.ask_again_at = now + self.backoff
            self.backoff = min(2 * self.backoff, LAST_BACKOFF)

    def welcomed(self) -> None:
        """A worker has come and may work: what failed before is forgiven."""
        self.failures = 0
        self.backoff = FIRST_BACKOFF

    def give_up(self, now: float) -> list[Effect]:
        """Withdraw all that is expected, since nobody waits for it any more; who comes next may ask
        at once.
        """
        self.welcomed()
        self.ask_again_at = now
        for one in [
            one for one in self.started.values() if one.worker is None and one.ended_at is not None
        ]:
            self.drop(one)
        return self.withdraw(list(self.expected.values()))

    def called_home(self, worker: bytes, keys: Iterable[str]) -> LaunchedWorker | None:
        """Return the launched worker that this one is, None when it is not of this fleet or not
        known yet.
        """
        for key in keys:
            one = self.started.get(key)
            if one is not None and one.worker is None:
                self.expected.pop(key, None)
                one.worker = worker
                return one
        return None

    def knows(self, one: LaunchedWorker) -> bool:
        """Return whether this launched worker is still counted on."""
        return self.started.get(key_of(one.handle)) is one

    def drop(self, one: LaunchedWorker) -> None:
        """Forget a launched worker."""
        self.started.pop(key_of(one.handle), None)
        self.expected.pop(key_of(one.handle), None)

    def may_ask(self, now: float) -> bool:
        """Return whether more workers could be asked for at this moment."""
        return not self.asked and now >= self.ask_again_at

    def scale(
        self,
        now: float,
        *,
        calls_waiting: int,
        workers_busy: int,
        workers_idle: int,
        others: int = 0,
    ) -> list[Effect]:
        """Ask for workers when calls wait for them; withdraw those that still queue when nothing
        has waited for a while.

        `others` is how many workers of other demands there are, or are asked for.
        """
        # Who waits for others' workers to leave does not wait for the batch system.
        if not calls_waiting or workers_busy + workers_idle or others >= self.policy.max_workers:
            self.unserved_since = None
        elif self.unserved_since is None:
            self.unserved_since, self.reason = now, ""
        wanted = min(
            self.policy.max_workers - others, -(-calls_waiting // self.policy.slots) + workers_busy
        )
        have = workers_busy + workers_idle + len(self.expected) + self.asked
        if calls_waiting and wanted > have:
            self.demand_since = now if self.demand_since is None else self.demand_since
            self.surplus_since = None
            gathering = (
                0.0
                if self.policy.start_at_once and not self.started
                else self.policy.gather_seconds
            )
            if not self.may_ask(now) or now - self.demand_since < gathering:
                return []
            self.asked = wanted - have
            return [Launch(self.asked, self.demand)]
        self.demand_since = None
        if have <= wanted or not self.expected:
            self.surplus_since = None
        elif self.surplus_since is None:
            self.surplus_since = now
        elif now - self.surplus_since >= self.policy.idle_seconds:
            self.surplus_since = None
            return self.withdraw(
                [one for one in self.expected.values() if one.state is WorkerStatus.QUEUED][
                    wanted - have :
                ]
            )
        return []

    def withdraw(self, which: Iterable[LaunchedWorker]) -> list[Effect]:
        """Take workers back from the scheduler."""
        handles = []
        for one in which:
            handles.append(one.handle)
            self._turn_away(one)
            self.drop(one)
        return [Withdraw(tuple(handles))] if handles else []

    def _turn_away(self, one: LaunchedWorker) -> None:
        """Should this worker still call home, it is told to leave. The oldest are forgotten: by now
        they will not.
        """
        self.withdrawn[key_of(one.handle)] = None
        if len(self.withdrawn) > KEPT_WITHDRAWN:
            del self.withdrawn[next(iter(self.withdrawn))]

    def polled(self, reports: Mapping[Handle, Report], now: float) -> list[LaunchedWorker]:
        """Note the scheduler's word; return the workers that it says have ended just now."""
        ended = []
        for handle, report in reports.items():
            one = self.started.get(key_of(handle))
            if one is None:
                continue
            one.state, one.report = report.state, report
            if report.state is not WorkerStatus.RUNNING:
                self.reason = report.reason or self.reason
            if report.state is not WorkerStatus.RUNNING:
                one.running_since = None
            elif one.running_since is None:
                one.running_since = now
            if report.state in (WorkerStatus.ENDED, WorkerStatus.FAILED) and one.ended_at is None:
                one.ended_at = now
                self.expected.pop(key_of(handle), None)
                ended.append(one)
        return ended

    def start_failed(self, one: LaunchedWorker, now: float) -> GridEngineError | None:
        """Note that a launched worker ended without a call home; return the error when that has
        happened too often.

        To delete an array is one act: of what was launched before a deletion was seen, what is
        deleted too does not count again.
        """
        self.drop(one)
        self._turn_away(one)
        self.hold_back(now)
        report = one.report
        if report is not None and report.blameless:
            return None
        deleted, failed = report is not None and report.deleted, one.ended_at is not None
        if deleted and one.launched_at < self.deleted_at:
            return None
        self.deleted_at = now if deleted else self.deleted_at
        self.failures += 1
        if self.failures < self.policy.failed_starts:
            return None
        self.failures = 0
        if report is not None and report.error is not None:
            return report.error
        text = (
            "was deleted"
            if deleted
            else "ended before its worker called home"
            if failed
            else "ran, but its worker never called home"
        )
        return (JobDeleted if deleted else WorkerNotStarted)(
            f"{self.policy.failed_starts} workers in a row could not be started; the last {text}: "
            f"{(report.reason if report is not None else '') or 'no reason is given'}",
            job=one.handle.id,
            log=one.handle.log or None,
            hint="read the log; check that the interpreter and the package are there on the node, "
            "and the prologue",
        )

    def overdue(self, now: float) -> list[LaunchedWorker]:
        """Return the workers that run, the scheduler says, and have not called home in time."""
        limit = self.policy.start_seconds
        return [
            one
            for one in self.expected.values()
            if one.running_since is not None
            and now - one.running_since > limit
            and one.state is WorkerStatus.RUNNING
        ]

    def explain(self, now: float, *, calls_waiting: int, workers: int) -> list[Effect]:
        """Once a minute, when calls wait and no worker has come, have it said why."""
        queued = [one for one in self.expected.values() if one.state is WorkerStatus.QUEUED]
        if workers or not calls_waiting or not queued:
            self.explain_at = None
            return []
        if self.explain_at is None:
            self.explain_at = queued[0].launched_at + min(
                EXPLAIN_SECONDS / 6, self.policy.start_timeout / 2
            )
        if now < self.explain_at:
            return []
        self.explain_at = now + EXPLAIN_SECONDS
        return [Explain(tuple(one.handle for one in queued[:1]), now - queued[0].launched_at)]

    def explained(self, handle: Handle, words: str) -> None:
        """Note what the batch system says that a worker waits for."""
        if key_of(handle) in self.expected:
            self.reason = words or self.reason

    def impossible(self) -> GridEngineError | None:
        """Return why a worker that waits can never start, as the scheduler says; None when any
        may.
        """
        reports = (one.report for one in self.expected.values() if one.state is WorkerStatus.QUEUED)
        return next(
            (report.error for report in reports if report is not None and report.error is not None),
            None,
        )

    def start_timed_out(self, now: float) -> GridEngineError | None:
        """Return the error when calls have waited for their first worker for longer than they
        may.
        """
        limit = self.policy.start_timeout
        if self.unserved_since is None or now - self.unserved_since < limit:
            return None
        first = next(iter(self.expected.values()), None)
        return WorkerNotStarted(
            f"no worker has started within {limit:g} s (start_timeout): "
            f"{self.reason or 'the batch system gives no reason'}",
            job=first.handle.id if first is not None else None,
            hint="ask for less, or for another partition or queue; or give start_timeout= more "
            "seconds",
        )
