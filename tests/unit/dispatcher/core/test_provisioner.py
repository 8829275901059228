"""How many workers are asked for and withdrawn, and how those that call are recognised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from gridengine.dispatcher.core.events import Explain, Launch, Withdraw
from gridengine.dispatcher.core.launches import LaunchedWorker, key_of, keys_of
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.provisioner import MOST_WITHDRAWN, Provisioner
from gridengine.errors import ClusterError, JobDeleted, WorkerNotStarted
from gridengine.requests import Effect
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus

QUEUED, RUNNING, SUSPENDED, ENDED, FAILED = WorkerStatus


def make(**policy: Any) -> Provisioner:
    return Provisioner(Policy(**{"max_workers": 10, **policy}))


def handles(*ids: int) -> list[Handle]:
    return [Handle(str(one), f"/home/user/runs/r/{one}.log") for one in ids]


def scale(
    provisioner: Provisioner, now: float = 0.0, *, waiting: int = 0, busy: int = 0, idle: int = 0
) -> Sequence[Effect]:
    connect(provisioner, busy=busy, idle=idle)
    return provisioner.scale(now, waiting)


def connect(provisioner: Provisioner, *, busy: int = 0, idle: int = 0) -> None:
    """Have so many workers be connected."""
    provisioner.workers = busy + idle
    provisioner.idle = {bytes([number]) for number in range(idle)}


def say(
    provisioner: Provisioner, state: WorkerStatus, *ids: int, now: float = 0.0, **report: Any
) -> list[LaunchedWorker]:
    return provisioner.update({handle: Report(state, **report) for handle in handles(*ids)}, now)


# -------------------------------------------------------------------- asking


@pytest.mark.parametrize(
    ("waiting", "busy", "expected", "most", "asked"),
    [
        pytest.param(0, 0, (), 10, [], id="nothing waits"),
        pytest.param(3, 0, (1, 2), 10, [Launch(1)], id="some are expected"),
        pytest.param(1, 3, (), 10, [Launch(1)], id="busy ones do not serve what waits"),
        pytest.param(5, 2, (), 3, [Launch(1)], id="busy ones count towards the most"),
    ],
)
def test_as_many_workers_are_requested_as_waiting_calls_need(
    waiting: int, busy: int, expected: tuple[int, ...], most: int, asked: list[Launch]
) -> None:
    provisioner = make(max_workers=most)
    provisioner.add_launched(handles(*expected), 0)
    assert scale(provisioner, waiting=waiting, busy=busy) == asked


def test_fewer_workers_than_asked_for_are_asked_for_again() -> None:
    provisioner = make()
    scale(provisioner, waiting=3)
    provisioner.add_launched(handles(1), 0)
    assert scale(provisioner, waiting=3) == [Launch(2)]


def test_no_more_workers_than_the_limit_are_asked_for_within_a_minute() -> None:
    one, other = make(jobs_per_minute=3), make(jobs_per_minute=3)
    other.pace = one.pace
    assert scale(one, 0.0, waiting=2) == [Launch(2)]
    assert scale(other, 10.0, waiting=8) == [Launch(1)]
    other.add_launched(handles(3), 11.0)
    assert scale(other, 59.0, waiting=8) == []
    assert scale(other, 60.0, waiting=8) == [Launch(2)]


def test_demand_that_goes_away_is_gathered_anew() -> None:
    provisioner = make(gather_seconds=1.0)
    scale(provisioner, 0.0, waiting=1)
    scale(provisioner, 0.9)
    assert scale(provisioner, 1.5, waiting=1) == []
    assert scale(provisioner, 2.5, waiting=1) == [Launch(1)]


def test_the_first_workers_that_start_at_once_are_asked_for_at_once_and_the_others_gathered() -> (
    None
):
    provisioner = make(gather_seconds=1.0, start_at_once=True)
    assert scale(provisioner, 0.0, waiting=1) == [Launch(1)]
    provisioner.add_launched(handles(1), 0.1)
    assert scale(provisioner, 0.1, waiting=5) == []
    assert scale(provisioner, 1.1, waiting=5) == [Launch(4)]


def test_the_wait_grows_up_to_a_minute_with_failures_at_different_times_until_a_welcome() -> None:
    provisioner = make()
    now, waits = 0.0, []
    for number in range(9):
        if number == 8:
            provisioner.reset_failures()
        for _ in range(100):
            provisioner.hold_back(now)
        waits.append(provisioner.ask_again_at - now)
        now = provisioner.ask_again_at
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 1]


# -------------------------------------------------------------------- withdrawing


def test_surplus_is_withdrawn_after_idle_seconds() -> None:
    provisioner = make(idle_seconds=5.0)
    provisioner.add_launched(handles(1, 2, 3), 0)
    assert scale(provisioner, 0.0, waiting=1) == []
    assert scale(provisioner, 4.9, waiting=1) == []
    assert scale(provisioner, 5.0, waiting=1) == [Withdraw(tuple(handles(2, 3)))]


@pytest.mark.parametrize("waiting", [1, 2])
def test_surplus_that_is_needed_meanwhile_stays(waiting: int) -> None:
    provisioner = make(idle_seconds=5.0)
    provisioner.add_launched(handles(1), 0)
    scale(provisioner, 0.0)
    scale(provisioner, 3.0, waiting=waiting)
    provisioner.requested = 0
    assert scale(provisioner, 6.0) == []


def test_a_worker_that_is_starting_is_not_withdrawn() -> None:
    provisioner = make(idle_seconds=5.0)
    provisioner.add_launched(handles(1), 0)
    say(provisioner, RUNNING, 1)
    scale(provisioner, 0.0)
    assert scale(provisioner, 6.0) == []


def test_the_record_of_withdrawn_workers_is_bounded() -> None:
    provisioner, launched = make(), handles(*range(MOST_WITHDRAWN + 15))
    provisioner.add_launched(launched, 0)
    provisioner.withdraw(list(provisioner.expected.values()))
    assert list(provisioner.withdrawn) == [key_of(handle) for handle in launched[15:]]


def test_giving_up_withdraws_all_that_have_not_come() -> None:
    provisioner = make()
    provisioner.add_launched(handles(1, 2, 3), 0)
    provisioner.recognise(b"w", keys_of(handles(1)[0].log, 1))
    say(provisioner, FAILED, 2)
    assert provisioner.give_up(0.0) == [Withdraw(tuple(handles(3)))]
    assert list(provisioner.launched) == [key_of(handles(1)[0])]


# -------------------------------------------------------------------- recognising


@pytest.mark.parametrize(
    ("handle", "log", "pid"),
    [
        pytest.param(Handle("1", "/home/user/r/1.log"), "/home/user/r/1.log", 999, id="its log"),
        pytest.param(Handle("1", "/home/user/r/1.log"), "/net/user/r/1.log", 9, id="its log's end"),
        pytest.param(Handle("77"), "/home/user/all-of-my-output.txt", 77, id="its process"),
    ],
)
def test_a_worker_is_known_by_its_log_or_its_process(handle: Handle, log: str, pid: int) -> None:
    provisioner = make()
    provisioner.add_launched([handle], 0)
    started = provisioner.recognise(b"w", keys_of(log, pid))
    assert started is not None
    assert (started.worker, provisioner.expected) == (b"w", {})


def test_a_worker_that_calls_before_its_launch_is_known_is_recognised_then() -> None:
    provisioner = make()
    provisioner.unmatched.update(dict.fromkeys(keys_of(handles(1)[0].log, 5), b"w"))
    [(worker, started)] = provisioner.add_launched(handles(1, 2), 0)
    assert (worker, started.worker) == (b"w", b"w")
    assert [one.handle for one in provisioner.expected.values()] == handles(2)


def test_a_second_worker_with_the_same_log_is_not_recognised() -> None:
    provisioner = make()
    provisioner.add_launched(handles(1), 0)
    provisioner.recognise(b"w", keys_of(handles(1)[0].log, 5))
    assert provisioner.recognise(b"v", keys_of(handles(1)[0].log, 6)) is None


@pytest.mark.parametrize("ended", [False, True])
def test_a_worker_that_was_withdrawn_or_has_ended_is_turned_away_when_it_calls(ended: bool) -> None:
    provisioner = make()
    provisioner.add_launched(handles(1), 0)
    if ended:
        [one] = say(provisioner, FAILED, 1)
        provisioner.start_failed(one, 0)
    else:
        provisioner.withdraw(list(provisioner.expected.values()))
    assert key_of(handles(1)[0]) in provisioner.withdrawn
    assert provisioner.recognise(b"w", keys_of(handles(1)[0].log, 5)) is None


def test_a_process_id_that_comes_again_is_a_new_worker() -> None:
    provisioner = make()
    provisioner.add_launched([Handle("77")], 0)
    provisioner.withdraw(list(provisioner.expected.values()))
    provisioner.add_launched([Handle("77")], 0)
    assert provisioner.recognise(b"w", keys_of("", 77)) is not None


# -------------------------------------------------------------------- the scheduler's word


def test_the_scheduler_tells_of_an_end_once_and_of_none_that_is_unknown() -> None:
    provisioner = make()
    provisioner.add_launched(handles(1), 0)
    assert len(say(provisioner, ENDED, 1, 2)) == 1
    assert say(provisioner, ENDED, 1) == []


def test_an_ended_worker_is_not_expected_any_more() -> None:
    provisioner = make()
    provisioner.add_launched(handles(1), 0)
    say(provisioner, FAILED, 1)
    assert scale(provisioner, waiting=1) == [Launch(1)]


@pytest.mark.parametrize("state", [RUNNING, SUSPENDED])
def test_a_start_is_overdue_from_when_it_runs_and_anew_after_a_suspension(
    state: WorkerStatus,
) -> None:
    provisioner = make(start_seconds=30.0)
    provisioner.add_launched(handles(1), 0)
    say(provisioner, RUNNING, 1, now=100.0)
    say(provisioner, state, 1, now=110.0)
    say(provisioner, RUNNING, 1, now=120.0)
    begun = 100.0 if state is RUNNING else 120.0
    assert provisioner.overdue(begun + 30.0) == []
    assert [one.handle for one in provisioner.overdue(begun + 30.1)] == handles(1)


def fail(provisioner: Provisioner, count: int, **report: Any) -> Exception | None:
    error = None
    for number in range(count):
        provisioner.add_launched(handles(number), 0)
        [one] = say(provisioner, FAILED, number, **report)
        error = provisioner.start_failed(one, 0)
    return error


def test_an_array_that_is_deleted_is_one_failure() -> None:
    provisioner = make(failed_starts=3)
    for now in (1.0, 2.0, 3.0):
        provisioner.add_launched(handles(1, 2, 3, 4), now)
        errors = [
            provisioner.start_failed(one, now + 0.5)
            for one in say(provisioner, FAILED, 1, 2, 3, 4, deleted=True)
        ]
        assert [type(error) for error in errors if error is not None] == (
            [JobDeleted] if now == 3.0 else []
        )


def test_an_error_without_a_reason_says_that_there_is_none() -> None:
    assert "no reason is given" in str(fail(make(), 3))


# -------------------------------------------------------------------- telling why


def explain(
    provisioner: Provisioner, now: float, *, waiting: int = 1, workers: int = 0
) -> Sequence[Effect]:
    connect(provisioner, busy=workers)
    return provisioner.explain(now, waited_for=waiting > 0)


def test_a_queued_worker_is_explained_once_a_minute_and_for_how_long_it_waits() -> None:
    provisioner = make()
    provisioner.add_launched(handles(1, 2), 5.0)
    told = [(now, explain(provisioner, now)) for now in range(5, 145)]
    assert [(now, effects) for now, effects in told if effects] == [
        (now, [Explain(tuple(handles(1)), now - 5.0)]) for now in (15, 75, 135)
    ]


@pytest.mark.parametrize("quiet", [{"waiting": 0}, {"workers": 1}, {}])
def test_nothing_is_explained_when_nobody_waits_or_one_works_or_starts(
    quiet: dict[str, int],
) -> None:
    provisioner = make()
    provisioner.add_launched(handles(1), 0)
    if not quiet:
        say(provisioner, RUNNING, 1)
    assert [explain(provisioner, now, **quiet) for now in (0, 100)] == [[], []]


def test_a_reason_is_asked_for_earlier_when_calls_may_not_wait_for_a_minute() -> None:
    provisioner = make(start_timeout=4.0)
    provisioner.add_launched(handles(1), 0)
    assert [now for now in range(10) if explain(provisioner, now)] == [2]


def test_a_batch_system_that_gives_no_reason_yet_is_asked_again_in_time() -> None:
    provisioner = make(start_timeout=40.0)
    provisioner.add_launched(handles(1), 0)
    told = []
    for now in range(40):
        if explain(provisioner, now):
            told.append(now)
            provisioner.explained(handles(1)[0], "no queue" if now > 10 else "", now)
    assert told == [10, 20]


# -------------------------------------------------------------------- what never starts, or not in
# time


def test_a_worker_that_waits_and_can_never_start_is_told_of() -> None:
    provisioner, error = make(), ClusterError("never")
    provisioner.add_launched(handles(1, 2), 0)
    assert provisioner.impossible() is None
    say(provisioner, QUEUED, 1, reason="Priority")
    assert provisioner.impossible() is None
    say(provisioner, QUEUED, 2, error=error)
    assert provisioner.impossible() is error
    say(provisioner, RUNNING, 2)
    assert provisioner.impossible() is None


def test_calls_that_wait_too_long_for_their_first_worker_have_the_last_reason_for_an_error() -> (
    None
):
    provisioner = make(start_timeout=30.0)
    scale(provisioner, 10.0, waiting=1)
    provisioner.add_launched(handles(1), 11.0)
    say(provisioner, QUEUED, 1, reason="Priority: other jobs come first")
    assert provisioner.start_timed_out(39.9) is None
    error = provisioner.start_timed_out(40.0)
    assert type(error) is WorkerNotStarted
    assert (
        error.message
        == "no worker has started within 30 s (start_timeout): Priority: other jobs come first"
    )
    assert error.job == "1"
    assert "start_timeout=" in (error.hint or "")


def test_a_reason_that_was_asked_for_is_told_too() -> None:
    provisioner = make(start_timeout=30.0)
    scale(provisioner, 10.0, waiting=1)
    provisioner.add_launched(handles(1), 11.0)
    provisioner.explained(handles(2)[0], "another's", 20.0)
    assert "the batch system gives no reason" in str(provisioner.start_timed_out(40.0))
    assert provisioner.reason == ""  # by which those who wait for one know that none has come
    provisioner.explained(handles(1)[0], "", 25.0)
    assert provisioner.reason == "the batch system gives no reason"
    provisioner.explained(handles(1)[0], "no queue", 30.0)
    assert "(start_timeout): no queue" in str(provisioner.start_timed_out(40.0))


@pytest.mark.parametrize(("limit", "others"), [(math.inf, 0), (30.0, 10)])
def test_without_a_limit_or_for_the_places_of_others_calls_wait_for_ever(
    limit: float, others: int
) -> None:
    provisioner = make(start_timeout=limit)
    assert bool(provisioner.scale(0.0, 1, others=others)) is (not others)
    assert provisioner.start_timed_out(1e9) is None


@pytest.mark.parametrize(
    "served", [{"waiting": 0}, {"waiting": 1, "busy": 1}, {"waiting": 1, "idle": 1}]
)
def test_the_wait_for_a_first_worker_begins_anew_when_one_was_there_or_nobody_waited(
    served: dict[str, int],
) -> None:
    provisioner = make(start_timeout=30.0)
    scale(provisioner, 0.0, waiting=1)
    scale(provisioner, 20.0, **served)
    assert provisioner.start_timed_out(40.0) is None
    scale(provisioner, 50.0, waiting=1)
    assert provisioner.start_timed_out(79.0) is None
    assert provisioner.start_timed_out(80.0) is not None
