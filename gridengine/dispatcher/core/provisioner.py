"""Decides how many workers of one demand are needed, and follows the requested workers until they
connect or end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from gridengine.dispatcher.core.events import Explain, Launch, Warn, Withdraw
from gridengine.dispatcher.core.launches import FailedStarts, LaunchedWorker, Pace, key_of
from gridengine.dispatcher.core.policy import Policy
from gridengine.errors import GridEngineError, WorkerNotStarted
from gridengine.requests import Effect
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus

EXPLAIN_SECONDS = 60.0
NO_REASON = "the batch system gives no reason"
FIRST_BACKOFF, LAST_BACKOFF = 1.0, 60.0
MOST_WITHDRAWN = 10_000
ANNOUNCED = Demand(function="*")
"""The demand under which all workers that announce functions are counted."""


class Provisioner(Struct, eq=False):
    """Decides how many workers of one demand to request and withdraw, and recognises them.

    requested: how many workers the scheduler was asked for and has not answered.
    launched: the workers that it started; expected: of these, the ones that have neither connected
        nor ended.
    workers: how many are connected. idle: the connected workers without calls.
    suspended: the workers all of whose calls wait for their children, and whether they take no more
        calls. A suspended worker does not count against `max_workers` if it takes no more calls, or
        where other demands need workers.
    by_hand: workers that people started; they never count against `max_workers`.
    unmatched, withdrawn, pace: shared by all provisioners, see `CoreState`.
    """

    policy: Policy
    demand: Demand = ANY
    elastic: bool = True
    """Whether it requests workers, which count against `max_workers`; those that announce functions
    come by themselves.
    """
    launched: dict[str, LaunchedWorker] = field(default_factory=dict)
    expected: dict[str, LaunchedWorker] = field(default_factory=dict)
    workers: int = 0
    idle: set[bytes] = field(default_factory=set)
    by_hand: set[bytes] = field(default_factory=set)
    suspended: dict[bytes, bool] = field(default_factory=dict)
    unmatched: dict[str, bytes] = field(default_factory=dict)
    withdrawn: dict[str, None] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    requested: int = 0
    starts: FailedStarts = field(default_factory=FailedStarts)
    """Those of its workers that could not be started, and where."""
    backoff: float = FIRST_BACKOFF
    ask_again_at: float = 0.0
    demand_since: float | None = None
    explain_at: float | None = None
    look_at: float = 0.0
    surplus_since: float | None = None
    keep_again_at: float = 0.0
    unserved_since: float | None = None
    waited_long: bool = False
    """Whether its first few workers have waited too long for the rest to wait for them."""
    reason: str = ""
    label: str = ""
    """The name of the calls for which workers were last needed."""

    def add_launched(
        self, handles: Iterable[Handle], now: float
    ) -> list[tuple[bytes, LaunchedWorker]]:
        """Note launched workers; return the workers among them that have connected already."""
        self.requested = 0
        early = []
        for handle in handles:
            key = key_of(handle)
            self.withdrawn.pop(key, None)
            one = LaunchedWorker(handle, now, left_out=self.starts.asked_without)
            self.launched[key] = one
            worker = self.unmatched.pop(key, None)
            if worker is None:
                self.expected[key] = one
            else:
                one.worker = worker
                early.append((worker, one))
        return early

    def hold_back(self, now: float) -> None:
        """Delay the next request, twice as long each time until a worker connects. Failures during
        such a delay count once.
        """
        if now >= self.ask_again_at:
            self.ask_again_at = now + self.backoff
            self.backoff = min(2 * self.backoff, LAST_BACKOFF)

    def reset_failures(self) -> None:
        """Forget failures: a worker has connected."""
        self.starts.reset()
        self.backoff = FIRST_BACKOFF

    def give_up(self, now: float) -> list[Effect]:
        """Withdraw all expected workers, since no call waits for them. The next submission may ask
        at once, on any host; workers that are kept without calls are requested again after a while.
        """
        self.reset_failures()
        self.starts.forget_hosts()
        self.ask_again_at, self.keep_again_at = now, now + LAST_BACKOFF
        for one in [
            one for one in self.launched.values() if one.worker is None and one.ended_at is not None
        ]:
            self.drop(one)
        return self.withdraw()

    def recognise(self, worker: bytes, keys: Iterable[str]) -> LaunchedWorker | None:
        """Return the launch of a connecting worker; None if it is another's, or not known yet."""
        for key in keys:
            one = self.launched.get(key)
            if one is not None and one.worker is None:
                self.expected.pop(key, None)
                one.worker = worker
                return one
        return None

    def knows(self, one: LaunchedWorker) -> bool:
        """Return whether a launched worker is still expected or connected."""
        return self.launched.get(key_of(one.handle)) is one

    def drop(self, one: LaunchedWorker) -> None:
        """Forget a launched worker."""
        self.launched.pop(key_of(one.handle), None)
        self.expected.pop(key_of(one.handle), None)

    @property
    def size(self) -> int:
        """How many workers are there or requested, without those that people started and those that
        are suspended and take no calls.
        """
        size = self.workers + len(self.expected) + self.requested
        if self.by_hand or self.suspended:
            size -= len(self.by_hand) + sum(self.suspended.values())
        return size

    @property
    def size_for_others(self) -> int:
        """How many workers are there or requested, without the suspended ones."""
        if not self.elastic:
            return 0
        own = self.workers - len(self.by_hand)
        return own - len(self.suspended) + len(self.expected) + self.requested

    @property
    def busy(self) -> int:
        """The number of its workers that have calls, not counting workers that people started and
        suspended workers that take no calls.
        """
        idle = len(self.idle - self.by_hand) if self.by_hand else len(self.idle)
        return self.size - len(self.expected) - self.requested - idle

    def is_spent(self, now: float) -> bool:
        """Return whether the provisioner has no workers, requests or delays; then it may be
        forgotten.
        """
        return (
            not (self.size or self.launched or self.suspended or self.by_hand)
            and now >= self.ask_again_at
        )

    def may_ask(self, now: float) -> bool:
        """Return whether workers may be requested now."""
        return not self.requested and now >= self.ask_again_at

    def scale(
        self, now: float, calls_waiting: int, *, others: int = 0, least: int = 0
    ) -> list[Effect]:
        """Request workers if calls wait, or fewer than `least` are there; withdraw queued ones
        after a while of no need. `others`: how many workers of other demands there are, or are
        requested.
        """
        if not self.elastic:
            return []
        policy, have, busy = self.policy, self.size, self.busy
        # Calls that wait until workers of other demands leave do not wait for the batch system.
        if not calls_waiting or self.workers or others >= policy.max_workers:
            self.unserved_since = None
        elif self.unserved_since is None:
            self.unserved_since, self.reason = now, ""
        wanted = -(-calls_waiting // policy.slots) + busy
        if now >= self.keep_again_at:
            wanted = max(wanted, least - others)
        wanted = min(policy.max_workers - others, wanted)
        if wanted > have:
            return self._request(wanted - have, now)
        self.demand_since = None
        if have <= wanted or not self.expected:
            self.surplus_since = None
        elif self.surplus_since is None:
            self.surplus_since = now
        elif now - self.surplus_since >= policy.idle_seconds:
            self.surplus_since = None
            return self.withdraw(self._queued()[wanted - have :])
        return []

    def _request(self, count: int, now: float) -> list[Effect]:
        self.demand_since = now if self.demand_since is None else self.demand_since
        self.surplus_since = None
        at_once = self.policy.start_at_once and not self.launched
        gathering = 0.0 if at_once else self.policy.gather_seconds
        if not self.may_ask(now) or now - self.demand_since < gathering:
            return []
        count = self.pace.allowed(count, self.policy.jobs_per_minute, now)
        if not count:
            return []
        if self.policy.jobs_per_minute:
            self.pace.requested.append((now, count))
        self.requested = count
        return [Launch(count, self.demand, self.label, self.starts.hosts_to_leave_out(now))]

    def withdraw(self, which: Iterable[LaunchedWorker] | None = None) -> list[Effect]:
        """Have the scheduler stop these workers, or all expected ones."""
        handles = []
        for one in list(self.expected.values()) if which is None else which:
            handles.append(one.handle)
            self._turn_away(one)
            self.drop(one)
        return [Withdraw(tuple(handles))] if handles else []

    def _turn_away(self, one: LaunchedWorker) -> None:
        """Have a worker stopped if it still connects. Only the latest are remembered: older ones
        will not connect.
        """
        self.withdrawn[key_of(one.handle)] = None
        if len(self.withdrawn) > MOST_WITHDRAWN:
            del self.withdrawn[next(iter(self.withdrawn))]

    def update(self, reports: Mapping[Handle, Report], now: float) -> list[LaunchedWorker]:
        """Note the scheduler's reports; return the workers that have ended since the last."""
        ended = []
        for handle, report in reports.items():
            one = self.launched.get(key_of(handle))
            if one is None:
                continue
            one.state, one.report = report.state, report
            if report.state is not WorkerStatus.RUNNING:
                self.reason = report.reason or self.reason
                one.running_since = None
            else:
                one.ends_at = now + report.remaining_seconds
                one.lasts_seconds = report.lasts_seconds
                if one.running_since is None:
                    one.running_since = now
            if report.state in (WorkerStatus.ENDED, WorkerStatus.FAILED) and one.ended_at is None:
                one.ended_at = now
                self.expected.pop(key_of(handle), None)
                ended.append(one)
        return ended

    def start_failed(
        self, one: LaunchedWorker, now: float, *, none_connected: bool = False
    ) -> GridEngineError | None:
        """Note that a launched worker ended before it connected; return the error if that happened
        too often, on two hosts, or if no address answered it and no worker ever connected.
        """
        self.drop(one)
        self._turn_away(one)
        if one.earlier:
            return None
        self.hold_back(now)
        return self.starts.note(one, self.policy, now, none_connected=none_connected)

    def leave_out(self, one: LaunchedWorker, now: float) -> list[Effect]:
        """Leave the host on which a worker could not be started out of the next requests. Queued
        workers, which may come to that host too, are requested anew.
        """
        text = self.starts.leave_out(one, now)
        return [Warn(text), *self.withdraw(self._queued())] if text else []

    def _queued(self) -> list[LaunchedWorker]:
        return [one for one in self.expected.values() if one.state is WorkerStatus.QUEUED]

    def overdue(self, now: float) -> list[LaunchedWorker]:
        """Return the workers that run, by the scheduler's word, and have not connected in time."""
        limit = self.policy.start_seconds
        return [
            one
            for one in self.expected.values()
            if one.running_since is not None
            and now - one.running_since > limit
            and one.state is WorkerStatus.RUNNING
        ]

    def explain(self, now: float, *, waited_for: bool) -> list[Effect]:
        """Ask the batch system once a minute why calls wait while no worker has connected."""
        queued = self._queued()
        if self.workers or not waited_for or not queued:
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

    def look_into(self, now: float) -> list[Effect]:
        """Ask now and then why the first running worker has not connected, while no worker has."""
        one = next((one for one in self.expected.values() if one.running_since is not None), None)
        if self.workers or one is None or one.running_since is None or self.starts.unanswered:
            return []
        limit, seconds = self.policy.start_seconds, now - one.running_since
        if seconds < limit / 3 or now < self.look_at:
            return []
        self.look_at = now + limit / 10
        return [Explain((one.handle,), seconds, running=True)]

    def explained(self, handle: Handle, words: str, now: float, *, running: bool = False) -> None:
        """Note why a queued worker waits, in the words of the batch system; or, with `running`, why
        a worker does not connect, in its own words. Without words from the batch system, ask again
        before calls have waited too long.
        """
        if key_of(handle) not in self.expected:
            return
        if running:
            self.starts.unanswered = words
        elif words:
            self.reason = words
        else:
            self.reason = self.reason or NO_REASON
            if self.explain_at is not None:
                self.explain_at = min(self.explain_at, now + self.policy.start_timeout / 4)

    def impossible(self) -> GridEngineError | None:
        """Return why a queued worker can never start, by the scheduler's word, or None."""
        reports = (one.report for one in self._queued())
        return next(
            (report.error for report in reports if report is not None and report.error is not None),
            None,
        )

    def start_timed_out(self, now: float) -> GridEngineError | None:
        """Return the error if calls have waited too long for their first worker."""
        limit = self.policy.start_timeout
        if self.unserved_since is None or now - self.unserved_since < limit:
            return None
        first = next(iter(self.expected.values()), None)
        return WorkerNotStarted(
            f"no worker has started within {limit:g} s (start_timeout): {self.reason or NO_REASON}",
            job=first.handle.id if first is not None else None,
            hint="ask for less, or for another partition or queue; or give start_timeout= more "
            "seconds",
        )
