"""Workers that start, fail to start, or are refused, played on the core."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.dispatcher.core.events import (
    Explain,
    Explained,
    Launch,
    Launched,
    LaunchFailed,
    Lost,
    Polled,
    Warn,
    Withdraw,
)
from gridengine.errors import (
    ClusterError,
    JobDeleted,
    SubmissionRefused,
    VersionMismatch,
    WorkerNotStarted,
)
from gridengine.requests import CallsFinished, Effect
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus
from gridengine.wire.messages import Goodbye, Refuse, Stop
from tests.support.core_play import Play, failing_starts

HANDLE = Handle("1")


def launched(state: WorkerStatus | None = None, **policy: Any) -> Play:
    """Return a core whose one call waits for the worker that it has launched, in this state."""
    play = Play(**policy)
    play.submit(1)
    play.play(Launched([HANDLE]))
    if state is not None:
        play.poll(HANDLE, state)
    return play


def test_workers_that_never_call_home_are_an_error_after_three_in_a_row() -> None:
    play = Play()
    play.submit(1)
    failing_starts(play, 2)
    assert play.seen(CallsFinished) == []
    failing_starts(play, 1)
    error = play.seen(CallsFinished)[0].error
    assert type(error) is WorkerNotStarted
    for part in ("no such interpreter", "cluster job: 50", "log: /runs/x/50.log"):
        assert part in str(error)


@pytest.mark.parametrize(
    ("report", "starts", "kind"),
    [
        ({"error": SubmissionRefused("it can never start")}, 1, SubmissionRefused),
        ({"error": WorkerNotStarted("its own words")}, 3, WorkerNotStarted),
        ({"deleted": True}, 3, JobDeleted),
    ],
)
def test_the_error_of_a_worker_that_never_called_home_is_the_reports_own(
    report: dict[str, Any], starts: int, kind: type[ClusterError]
) -> None:
    play = Play()
    play.submit(1)
    failing_starts(play, starts, **report)
    error = play.seen(CallsFinished)[0].error
    assert type(error) is kind
    assert report.get("error") in (None, error)


def test_a_worker_that_calls_home_forgives_failed_starts() -> None:
    play = Play()
    play.submit(1, 1)
    failing_starts(play, 2)
    play.hello()
    play.say(Goodbye("terminated"))
    failing_starts(play, 2)
    assert play.seen(CallsFinished) == []


def test_while_others_work_failed_starts_are_a_warning() -> None:
    play = Play()
    play.submit(1, 1)
    play.hello()
    for number in range(3):
        play.play(Launched([Handle(str(number))]))
        play.poll(Handle(str(number)), WorkerStatus.FAILED, "no such interpreter")
    assert play.seen(CallsFinished) == []
    assert "no such interpreter" in play.seen(Warn)[0].text


def test_an_array_that_fails_as_a_whole_is_one_error_and_the_next_submission_asks_at_once() -> None:
    play = Play(max_workers=100)
    play.submit(*[1] * 100)
    handles = [Handle(str(number)) for number in range(100)]
    play.play(Launched(handles))
    play.play(Polled({handle: Report(WorkerStatus.FAILED, "no") for handle in handles}))
    assert len(play.seen(CallsFinished)) == 100
    play.submit(1)
    assert play.effects == [Launch(1, label="square")]


def test_a_worker_that_can_never_start_is_an_error_of_the_calls_that_wait_for_it_alone() -> None:
    play = Play(pooled=True, max_workers=10)
    four, eight = Demand(Cores(4)), Demand(Cores(8))
    play.submit(1, demand=four)
    play.submit(1, demand=eight)
    play.play(Launched([Handle("4")], four))
    play.play(Launched([Handle("8")], eight))
    error = SubmissionRefused("never")
    play.poll(Handle("8"), WorkerStatus.QUEUED, "PartitionConfig", error=error)
    assert [(one.task, one.error) for one in play.seen(CallsFinished)] == [(2, error)]
    assert play.seen(Withdraw) == [Withdraw((Handle("8"),))]
    play.submit(1, demand=eight)
    assert play.effects == [Launch(1, eight, "square")]


def test_a_worker_that_can_never_start_is_no_error_while_another_serves_its_calls() -> None:
    play = Play(max_workers=2)
    play.running()
    play.submit(1)
    play.play(Launched([Handle("42")]))
    play.poll(Handle("42"), WorkerStatus.QUEUED, error=SubmissionRefused("never"))
    assert play.seen(CallsFinished) == []


def test_calls_that_have_no_worker_in_time_fail_and_the_next_wait_anew() -> None:
    play = launched(start_timeout=30.0)
    play.later(29)
    assert play.seen(CallsFinished) == []
    play.play(Explained(HANDLE, "no licence"))
    play.later(1)
    [settled] = play.seen(CallsFinished)
    assert "within 30 s (start_timeout): no licence" in str(settled.error)
    assert play.seen(Withdraw) == [Withdraw((HANDLE,))]
    play.submit(1)
    assert play.effects == [Launch(1, label="square")]
    play.later(29)
    assert play.seen(CallsFinished) == []


def test_a_batch_system_that_takes_nothing_in_time_is_an_error_with_its_words() -> None:
    play = Play(start_timeout=5.0)
    play.submit(1)
    play.play(LaunchFailed(ClusterError("the master is away"), for_now=True))
    play.later(5)
    assert "(start_timeout): the master is away" in str(play.seen(CallsFinished)[0].error)


@pytest.mark.parametrize("state", [WorkerStatus.RUNNING, WorkerStatus.QUEUED])
def test_a_worker_that_runs_and_does_not_call_home_in_time_is_stopped(state: WorkerStatus) -> None:
    play = launched(state)
    play.later(31)
    overdue = state is WorkerStatus.RUNNING
    assert play.seen(Withdraw) == [Withdraw((HANDLE,))] * overdue
    assert ["has not connected" in one.text for one in play.seen(Warn)] == [True] * overdue
    play.hello(pid=1)
    assert play.sent(Stop) == [Stop()] * overdue
    assert len(play.assigned()) == (not overdue)


def test_workers_overdue_three_times_are_an_error() -> None:
    play = Play()
    play.submit(1, 1, 1)
    handles = [Handle(str(number)) for number in range(3)]
    play.play(Launched(handles))
    play.play(Polled({handle: Report(WorkerStatus.RUNNING) for handle in handles}))
    play.later(31)
    assert "never connected" in str(play.seen(CallsFinished)[0].error)


@pytest.mark.parametrize(
    ("address", "remedy"),
    [("tcp://a:1", "transport='files'"), ("file:///runs/run/exchange", "GRIDENGINE_RUN_DIRECTORY")],
)
def test_the_remedy_is_one_of_the_workers_transport(address: str, remedy: str) -> None:
    play = Play(addresses=(address,), failed_starts=1)
    play.submit(1)
    play.play(Launched([HANDLE]))
    play.poll(HANDLE, WorkerStatus.RUNNING)
    play.later(31)
    text = str(play.seen(CallsFinished)[0].error)
    assert address in text
    assert remedy in text


def unanswered(play: Play) -> list[Effect]:
    """Have a worker run that says that no address answers it; return what comes of its time."""
    play.submit(1)
    play.play(Launched([HANDLE]))
    play.poll(HANDLE, WorkerStatus.RUNNING)
    assert play.later(9) == []
    assert play.later(2) == [Explain((HANDLE,), 11.0, running=True)]
    assert play.later(1) == []
    play.play(Explained(HANDLE, "tcp://a:1 (no answer)", running=True))
    assert play.later(10) == []
    return play.later(9)


def test_a_first_worker_that_reaches_no_address_is_an_error() -> None:
    play = Play()
    unanswered(play)
    text = str(play.seen(CallsFinished)[0].error)
    assert "the cluster job ran, but its worker never connected" in text
    assert "within 30 s to tcp://a:1 (no answer)" in text
    assert "GRIDENGINE_HOST" in text


def test_a_later_worker_that_reaches_no_address_is_replaced() -> None:
    play = Play()
    play.learn(1.0)
    play.say(Goodbye("idle"))
    unanswered(play)
    assert play.seen(CallsFinished) == []
    assert play.seen(Withdraw) == [Withdraw((Handle("1"),))]


def test_a_wait_for_a_queued_worker_is_explained() -> None:
    play = launched()
    assert play.later(5) == []
    assert [type(effect) for effect in play.later(10)] == [Explain]


@pytest.mark.parametrize(
    "event", [LaunchFailed(ClusterError("too many jobs"), for_now=True), Launched([])]
)
def test_each_refusal_for_now_and_launch_of_none_doubles_the_wait(
    event: LaunchFailed | Launched,
) -> None:
    play = Play()
    play.submit(1)
    for seconds in (1, 2, 4):
        play.play(event)
        assert play.seen(CallsFinished) == []
        assert play.later(seconds - 0.1) == []
        assert play.later(0.2) == [Launch(1, label="square")]


def test_a_launch_refused_for_good_fails_waiting_calls_and_the_next_submission_asks_at_once() -> (
    None
):
    play = Play()
    play.submit(2)
    error = SubmissionRefused("unknown resource")
    play.play(LaunchFailed(error))
    assert play.seen(CallsFinished) == [
        CallsFinished(1, 0, 2, None, error=error, exitcode=1, last=True)
    ]
    play.submit(1)
    assert play.effects == [Launch(1, label="square")]


def test_while_others_work_a_refusal_is_a_warning() -> None:
    play = Play()
    play.submit(1)
    play.hello()
    play.submit(1)
    play.play(LaunchFailed(SubmissionRefused("unknown resource")))
    assert [type(effect) for effect in play.effects] == [Warn]


@pytest.mark.parametrize("other", [{"version": "2"}, {"python": "3.12"}, {"protocol": 99}])
def test_a_worker_of_another_version_is_refused_and_told_which_is_which(
    other: dict[str, Any],
) -> None:
    play = Play()
    play.submit(1)
    play.hello(**other)
    [refusal] = play.sent(Refuse)
    assert "the worker on node-w has gridengine" in refusal.reason
    assert play.seen(Lost) == [Lost(b"w")]


@pytest.mark.parametrize("other", [False, True])
def test_a_version_mismatch_fails_waiting_calls_when_no_other_worker_is_there(other: bool) -> None:
    play = Play()
    play.submit(1, 1)
    if other:
        play.hello(b"v")
    play.hello(version="2")
    kinds = [type(one.error) for one in play.seen(CallsFinished)]
    assert kinds == ([] if other else [VersionMismatch] * 2)


def test_a_worker_of_another_run_is_refused_and_disturbs_nobody() -> None:
    play = Play()
    play.submit(1)
    play.hello(run_id="yesterday")
    assert len(play.sent(Refuse)) == 1
    assert play.seen(CallsFinished) == []


@pytest.mark.parametrize("launch_is_known", [True, False])
def test_the_log_of_a_worker_elsewhere_is_known_by_its_path_here(launch_is_known: bool) -> None:
    play = Play()
    play.submit(1)
    launched = Launched([Handle("7.0", "/runs/x/logs/worker.1.0.log")])
    if launch_is_known:
        play.play(launched)
    play.hello(log="logs/worker.1.0.log")
    if not launch_is_known:
        play.play(launched)
    [worker] = play.core.state.workers.values()
    assert worker.hello.log == "/runs/x/logs/worker.1.0.log"


def test_refused_workers_leave_nothing_behind() -> None:
    play = Play()
    for number in range(100):
        play.hello(f"w{number}".encode(), pid=number, version="2", log=f"/logs/{number}")
    assert play.core.state.unmatched == {}


# -------------------------------------------------------------------- bad hosts


def fail_on(play: Play, host: str, *numbers: int, **report: Any) -> list[Effect]:
    """Have these launched workers end on a host before they connect."""
    reports = {
        Handle(str(number)): Report(WorkerStatus.FAILED, "exit status 1", host=host, **report)
        for number in numbers
    }
    return play.play(Polled(reports))


def launch(play: Play, *numbers: int) -> tuple[str, ...]:
    """Have workers be requested, and launched; return the hosts that the request left out."""
    asked = play.seen(Launch)
    play.later(100)
    [request] = [*asked, *play.seen(Launch)]
    play.play(Launched([Handle(str(number)) for number in numbers]))
    return request.left_out


def bad_host(workers: int = 1) -> Play:
    """Return a core with a call for each worker, the first of which could not be started on n1."""
    play = Play(max_workers=workers)
    play.submit(workers)
    assert launch(play, *range(1, workers + 1)) == ()
    fail_on(play, "n1", 1)
    return play


def test_a_host_that_starts_no_worker_is_left_out_of_the_next_request_with_a_warning() -> None:
    play = bad_host(2)
    [warning] = play.seen(Warn)
    assert "no worker could be started on n1 (cluster job 1: exit status 1); n1 is left" in (
        warning.text
    )
    assert launch(play, 3, 4) == ("n1",)
    play.hello(pid=3)
    assert play.assigned()
    assert play.seen(CallsFinished) == []


def test_workers_that_wait_and_could_come_to_a_bad_host_are_requested_anew() -> None:
    play = bad_host(2)
    assert play.seen(Withdraw) == [Withdraw((Handle("2"),))]


def test_workers_that_were_launched_before_their_host_was_left_out_do_not_count_again() -> None:
    play = Play(max_workers=5)
    play.submit(5)
    launch(play, *range(5))
    for number in range(5):
        play.poll(Handle(str(number)), WorkerStatus.RUNNING)
    fail_on(play, "n1", 0, 1, 2, 3)
    assert play.seen(CallsFinished) == []
    play.hello(pid=4)
    assert play.assigned()


def test_two_bad_hosts_in_a_row_are_an_error_with_a_line_for_each() -> None:
    play = bad_host()
    launch(play, 3)
    fail_on(play, "n2", 3)
    error = play.seen(CallsFinished)[0].error
    assert type(error) is WorkerNotStarted
    assert error.attempts == (
        "on n1: exit status 1; n1 was left out of the next requests",
        "on n2: exit status 1",
    )


def test_two_bad_hosts_with_a_worker_in_between_are_both_left_out() -> None:
    play = bad_host(2)
    launch(play, 3, 4)
    play.hello(pid=3)
    fail_on(play, "n2", 4)
    assert play.seen(CallsFinished) == []
    assert launch(play, 5) == ("n1", "n2")


@pytest.mark.parametrize("is_queued", [False, True])
def test_the_only_host_is_an_error_with_its_reason_and_the_refusal(is_queued: bool) -> None:
    play = bad_host()
    refusal = SubmissionRefused("no suitable queues")
    if is_queued:
        launch(play, 3)
        play.poll(Handle("3"), WorkerStatus.QUEUED, error=refusal)
    else:
        play.later(100)
        play.play(LaunchFailed(refusal))
    error = play.seen(CallsFinished)[0].error
    assert type(error) is WorkerNotStarted
    assert error.attempts[1] == "without n1: no suitable queues"


def test_a_refusal_after_workers_have_come_is_tried_again_with_all_hosts() -> None:
    play = bad_host()
    launch(play, 2)
    play.hello(pid=2)
    play.say(Goodbye("idle"))
    play.later(100)
    play.play(LaunchFailed(SubmissionRefused("no such node")))
    assert play.seen(CallsFinished) == []
    play.later(100)
    assert [one.left_out for one in play.seen(Launch)] == [()]
    play.play(LaunchFailed(SubmissionRefused("no such node")))
    assert type(play.seen(CallsFinished)[0].error) is SubmissionRefused


@pytest.mark.parametrize(
    "report", [{"deleted": True}, {"blameless": True}], ids=["deleted", "blameless"]
)
def test_a_worker_that_others_ended_is_no_fault_of_its_host(report: dict[str, bool]) -> None:
    play = Play(max_workers=1)
    play.submit(1)
    launch(play, 1)
    fail_on(play, "n1", 1, **report)
    assert launch(play, 2) == ()


def test_a_host_is_left_out_for_an_hour_and_after_an_error_no_more() -> None:
    play = bad_host()
    launch(play, 2)
    play.later(3700)
    fail_on(play, "", 2, blameless=True)
    assert launch(play, 3) == ()
    fail_on(play, "n1", 3)
    assert launch(play, 4) == ("n1",)
    fail_on(play, "n2", 4)
    assert play.seen(CallsFinished)
    play.submit(1)
    assert launch(play, 5) == ()


def test_a_host_that_is_left_out_in_vain_is_an_error_after_three_starts() -> None:
    play = bad_host()
    for number in (2, 3):
        assert play.seen(CallsFinished) == []
        launch(play, number)
        fail_on(play, "n1", number)
    assert type(play.seen(CallsFinished)[0].error) is WorkerNotStarted


BIG = Demand(Memory(200))


def two_demands() -> Play:
    """Return a core with a call of each of two demands. No worker of the first could be started on
    n1, nor one of the second on n2.
    """
    play = Play(pooled=True, max_workers=2)
    play.submit(1)
    play.submit(1, demand=BIG)
    play.later(100)
    play.play(Launched([Handle("1")]))
    play.play(Launched([Handle("2")], BIG))
    fail_on(play, "n1", 1)
    fail_on(play, "n2", 2)
    return play


def asked(play: Play) -> dict[Demand, tuple[str, ...]]:
    """Return the hosts that the next request of each demand leaves out."""
    before = play.seen(Launch)
    play.later(100)
    return {one.demand: one.left_out for one in [*before, *play.seen(Launch)]}


def test_a_demand_that_gives_up_forgets_the_hosts_of_its_own_workers_alone() -> None:
    play = two_demands()
    play.later(100)
    play.play(LaunchFailed(SubmissionRefused("no such queue"), demand=BIG))
    assert play.seen(CallsFinished)
    play.submit(1, demand=BIG)
    assert asked(play)[BIG] == ("n1",)


def test_hosts_that_one_demand_needs_stay_left_out_of_the_others_requests() -> None:
    play = Play(pooled=True, max_workers=2)
    play.submit(1)
    launch(play, 1)
    fail_on(play, "n1", 1)
    play.submit(1, demand=BIG)
    assert asked(play) == {BIG: ("n1",), ANY: ("n1",)}
    play.play(LaunchFailed(SubmissionRefused("no suitable queues"), demand=BIG))
    assert play.seen(CallsFinished) == []
    play.play(LaunchFailed(SubmissionRefused("not now"), demand=ANY, for_now=True))
    assert asked(play) == {BIG: (), ANY: ("n1",)}


def test_a_worker_that_was_recognised_by_its_log_is_not_taken_for_another_by_its_process() -> None:
    play = Play(max_workers=2)
    play.hello(log="/a/b.log", pid=2)
    play.play(Launched([Handle("1", "/a/b.log")]))
    play.play(Launched([Handle("2")]))
    [worker] = play.core.state.workers.values()
    assert worker.launch is not None
    assert worker.launch.handle.id == "1"
