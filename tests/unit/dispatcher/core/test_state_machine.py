"""The core, event by event."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.core import (
    assigner,
    failures,
    model,
    objects,
    state_machine,
    worker_lifecycle,
    worker_messages,
)
from gridengine.dispatcher.core.events import (
    CancelRequested,
    Closing,
    Continue,
    Effect,
    Event,
    Explain,
    Explained,
    Launch,
    Launched,
    LaunchFailed,
    Lost,
    Polled,
    Received,
    Released,
    Send,
    Submitted,
    Tick,
    Warn,
    Withdraw,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.tasks import CallsFinished, Function, Task, TaskMessage, TaskStarted
from gridengine.errors import (
    Cancelled,
    ClusterError,
    JobDeleted,
    OutOfMemory,
    SubmissionRefused,
    TimeoutError,
    VersionMismatch,
    WorkerCrashed,
    WorkerLost,
    WorkerNotStarted,
)
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus
from gridengine.serialize.shared_objects import PayloadWithObjects, SharedObject
from gridengine.wire.messages import (
    CANCELLED,
    CRASH,
    MEMORY,
    RAISED,
    RETRYABLE,
    TIMEOUT,
    VALUES,
    VERSION,
    Assign,
    Assignment,
    Beat,
    Cancel,
    Crashed,
    Define,
    Forget,
    Goodbye,
    Hello,
    Message,
    Pushed,
    Refuse,
    Reload,
    Result,
    Results,
    Returned,
    Started,
    Stop,
    Welcome,
)

T = TypeVar("T")
GOOD = {"version": "1", "python": "3.11", "run_id": "run"}
SQUARE = Function(b"square", (b"pickled",), (b"/code",), b"/home", "square")
CUBE = Function(b"cube", (b"pickled",), (), b"/", "cube")


def function(number: int) -> Function:
    return Function(f"f{number}".encode(), (b"pickled",), (), b"/", f"f{number}")


class Play:
    """A core, a clock, and the words of those around it."""

    def __init__(self, **policy: Any) -> None:
        self.core = state_machine.StateMachine(Policy(**{"max_workers": 10, **GOOD, **policy}))
        self.now = 100.0
        self.effects: list[Effect] = []
        self.last_task = 0

    def play(self, event: Event) -> list[Effect]:
        self.effects = self.core.handle(event, self.now)
        return self.effects

    def seen(self, kind: type[T]) -> list[T]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def submit(self, *counts: int, function: Function = SQUARE, **options: Any) -> list[Task]:
        tasks = [
            Task(self.last_task + place, (b"calls",), count, **options)
            for place, count in enumerate(counts or (1,), 1)
        ]
        self.last_task += len(tasks)
        self.play(Submitted(function, tasks))
        return tasks

    def hello(
        self, name: bytes = b"w", *, pid: int = 7, log: str = "", slots: int = 1, **other: Any
    ) -> list[Effect]:
        words = {
            "protocol": VERSION,
            "version": "1",
            "python": "3.11",
            "run_id": "run",
            "host": f"node-{name.decode()}",
            **other,
        }
        return self.say(Hello(**words, pid=pid, slots=slots, log=log), worker=name)

    def say(self, message: Message, *buffers: bytes, worker: bytes = b"w") -> list[Effect]:
        return self.play(Received(worker, message, buffers))

    def values(
        self, one: Assignment, start: int, stop: int, *, seconds: float = 1.0, worker: bytes = b"w"
    ) -> list[Effect]:
        return self.say(
            Results([Result(one.run, start, stop, VALUES, seconds)]), b"values", worker=worker
        )

    def done(self, one: Assignment, *, seconds: float = 1.0, worker: bytes = b"w") -> list[Effect]:
        return self.values(one, one.start, one.stop, seconds=seconds, worker=worker)

    def crash(
        self,
        one: Assignment,
        index: int,
        reason: str = CRASH,
        exitcode: int = -11,
        worker: bytes = b"w",
    ) -> list[Effect]:
        return self.say(Crashed(one.run, index, exitcode, reason, 1), b"out", b"err", worker=worker)

    def sent(self, kind: type[T], worker: bytes | None = None) -> list[T]:
        return [
            one.message
            for one in self.seen(Send)
            if isinstance(one.message, kind) and worker in (None, one.worker)
        ]

    def assigned(self, worker: bytes | None = None) -> list[Assignment]:
        """What the last event had handed out."""
        return [
            assignment
            for message in self.sent(Assign, worker)
            for assignment in message.assignments
        ]

    def later(self, seconds: float, *, beats: Sequence[bytes] = ()) -> list[Effect]:
        self.now += seconds
        for worker in beats:
            self.say(Beat(), worker=worker)
        return self.play(Tick())

    def poll(
        self, handle: Handle, state: WorkerStatus, reason: str = "", **report: Any
    ) -> list[Effect]:
        return self.play(Polled({handle: Report(state, reason, **report)}))

    def running(self, count: int = 1, *, log: str = "/runs/x/1.log", **options: Any) -> Assignment:
        """Have one launched worker run one task; return what it was given."""
        self.submit(count, **options)
        self.play(Launched([Handle("41", log)]))
        self.hello(log=log)
        [one] = self.assigned()
        return one

    def learn(self, seconds: float) -> None:
        """Have the core know how long a call takes; the worker `w` is there afterwards."""
        one = self.running()
        self.done(one, seconds=seconds)


def calls(assignments: Sequence[Assignment]) -> list[tuple[int, int, int]]:
    return [(one.task, one.start, one.stop) for one in assignments]


# -------------------------------------------------------------------- handing out


def test_a_submission_asks_for_a_worker_for_each_call() -> None:
    play = Play()
    play.submit(1, 1, 1)
    assert play.effects == [Launch(3)]


def test_no_more_workers_are_asked_for_than_allowed() -> None:
    play = Play(max_workers=2)
    play.submit(1, 1, 1)
    assert play.effects == [Launch(2)]


def test_a_worker_is_asked_for_as_many_calls_as_it_has_slots() -> None:
    play = Play(slots=4)
    play.submit(9)
    assert play.effects == [Launch(3)]


def test_workers_are_asked_for_once() -> None:
    play = Play()
    play.submit(1)
    play.submit(1)
    assert play.effects == []


def test_what_was_submitted_meanwhile_is_asked_for_when_the_first_have_started() -> None:
    play = Play()
    play.submit(1)
    play.submit(1, 1)
    assert play.play(Launched([Handle("1")])) == [Launch(2)]


def test_demand_is_gathered_before_workers_are_asked_for() -> None:
    play = Play(gather_seconds=0.1)
    play.submit(1)
    assert play.effects == []
    play.submit(1)
    assert play.later(0.2) == [Launch(2)]


def test_a_worker_that_calls_home_is_welcomed_and_given_work() -> None:
    play = Play()
    play.submit(1)
    play.hello()
    assert [type(effect.message) for effect in play.seen(Send)] == [Welcome, Define, Assign]


def test_a_function_comes_with_its_path_and_directory() -> None:
    play = Play()
    play.submit(1)
    play.hello()
    assert play.sent(Define) == [Define(b"square", [b"/code"], b"/home", 1)]


def test_a_function_is_sent_to_a_worker_once() -> None:
    play = Play()
    one = play.running()
    play.submit(1)
    play.done(one)
    assert len(play.assigned()) == 1
    assert play.sent(Define) == []


def test_an_assignment_carries_the_options_of_its_task() -> None:
    one = Play().running(form=1, watched=True, controlled=True, timeout=9.0)
    assert (one.form, one.watched, one.controlled, one.timeout, one.attempt) == (
        1,
        True,
        True,
        9.0,
        1,
    )


def test_a_worker_is_given_one_call_for_each_slot() -> None:
    play = Play(slots=3)
    play.submit(1, 1, 1, 1)
    play.hello(slots=3)
    assert [len(message.assignments) for message in play.sent(Assign)] == [1, 1, 1]


def test_of_a_function_not_measured_yet_one_call_is_handed_out() -> None:
    one = Play().running(100)
    assert (one.start, one.stop) == (0, 1)


def test_tasks_are_handed_out_in_the_order_of_submission() -> None:
    play = Play()
    play.submit(1, 1)
    play.hello()
    first = play.assigned()
    play.done(first[0])
    assert calls(first + play.assigned()) == [(1, 0, 1), (2, 0, 1)]


def test_quick_calls_are_handed_out_together() -> None:
    play = Play()
    play.learn(seconds=model.BATCH_SECONDS / 5)
    play.submit(1000)
    assert calls(play.assigned())[0] == (2, 0, 5)


def test_quick_tasks_of_one_call_make_one_batch() -> None:
    play = Play()
    play.learn(seconds=model.BATCH_SECONDS / 4)
    play.submit(*[1] * 100)
    assert len(play.sent(Assign)[0].assignments) == 4


def test_slow_calls_are_handed_out_one_at_a_time() -> None:
    play = Play()
    play.learn(seconds=1.0)
    play.submit(1000)
    assert calls(play.assigned()) == [(2, 0, 1)]


def test_a_batch_leaves_work_for_every_slot() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.hello(b"v", pid=8)
    play.submit(8)
    assert [one.stop - one.start for one in play.assigned()][:2] == [2, 2]


def test_a_batch_of_the_quickest_calls_is_worth_its_message() -> None:
    play = Play()
    play.learn(seconds=model.LEAST_SECONDS / 6)
    play.hello(b"v", pid=8)
    play.submit(8)
    assert [one.stop - one.start for one in play.assigned()][:2] == [6, 2]


def test_a_longer_duration_counts_at_once() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(2)
    first, second = play.assigned()
    play.done(first, seconds=100.0)
    play.done(second, seconds=1e-3)
    play.submit(100)
    assert [one.stop - one.start for one in play.assigned()] == [1]


def test_a_batch_holds_calls_of_one_function() -> None:
    play = Play()
    play.learn(seconds=1e-6)
    play.core.state.policy = Policy(**GOOD, max_workers=1)
    play.submit(1)
    play.submit(1, function=CUBE)
    assert all(
        len({one.function for one in message.assignments}) == 1 for message in play.sent(Assign)
    )


def test_a_batch_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MOST_BYTES", 10)
    play = Play()
    play.learn(seconds=1e-6)
    play.submit(*[1] * 20)
    assert len(play.sent(Assign)[0].assignments) == 3


def test_of_quick_calls_a_worker_gets_the_next_batch_ahead() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(1000)
    assert len(play.sent(Assign)) == 2


def test_of_slow_calls_a_worker_gets_nothing_ahead() -> None:
    play = Play()
    play.learn(seconds=1.0)
    play.submit(1000)
    assert len(play.sent(Assign)) == 1


def test_nothing_is_given_ahead_while_another_worker_is_idle() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.hello(b"v", pid=8)
    play.submit(1, 1)
    assert sorted(one.worker for one in play.seen(Send) if isinstance(one.message, Assign)) == [
        b"v",
        b"w",
    ]


def test_a_worker_of_jobs_per_worker_gets_nothing_ahead() -> None:
    play = Play(jobs_per_worker=50)
    play.learn(seconds=1e-3)
    play.submit(1000)
    assert len(play.sent(Assign)) == 1


def test_a_retry_is_handed_out_alone() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(10)
    first, second = play.assigned()
    play.crash(first, 3)
    play.done(second)
    assert calls(play.assigned()) == [(2, 3, 4)]


def test_a_task_submitted_twice_is_a_fault_and_changes_nothing() -> None:
    play = Play()
    task = Task(1, (b"calls",))
    play.play(Submitted(SQUARE, [task]))
    with pytest.raises(ValueError, match="twice"):
        play.play(Submitted(SQUARE, [Task(2, (b"calls",)), task]))
    assert play.core.state.calls_waiting == 1


def test_a_task_without_calls_is_a_fault() -> None:
    with pytest.raises(ValueError, match="no calls"):
        Play().submit(0)


def test_a_submission_of_nothing_leaves_no_function_behind() -> None:
    play = Play()
    play.play(Submitted(SQUARE, []))
    assert not play.core.state.objects


# -------------------------------------------------------------------- jobs_per_worker


def test_a_worker_that_has_done_its_share_is_stopped() -> None:
    play = Play(jobs_per_worker=1)
    one = play.running()
    play.submit(1)
    play.done(one)
    assert play.sent(Stop) == [Stop()]
    assert play.assigned() == []


def test_a_worker_is_never_given_more_than_its_share() -> None:
    play = Play(jobs_per_worker=3)
    one = play.running(100)
    play.done(one, seconds=1e-6)
    assert [one.stop - one.start for one in play.assigned()] == [2]


def test_what_a_worker_with_its_share_done_gives_back_goes_to_an_idle_one() -> None:
    play = Play(jobs_per_worker=1)
    one = play.running()
    play.hello(b"v", pid=8)
    play.crash(one, 0)
    assert calls(play.assigned(b"v")) == [(1, 0, 1)]


# -------------------------------------------------------------------- answers


def test_values_are_settled_as_they_came() -> None:
    play = Play()
    play.done(play.running())
    assert play.seen(CallsFinished) == [
        CallsFinished(1, 0, 1, (b"values",), last=True, seconds=1.0)
    ]


def test_values_may_come_in_pieces() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(4)
    one, *_ = play.assigned()
    play.values(one, 0, 1)
    play.values(one, 1, one.stop)
    assert [(effect.start, effect.stop) for effect in play.seen(CallsFinished)] == [(1, one.stop)]


def test_only_the_last_of_a_task_says_so() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(2)
    first, second = play.assigned()
    play.say(
        Results([Result(one.run, one.start, one.stop, VALUES, 0.1) for one in (first, second)]),
        b"a",
        b"b",
    )
    assert [effect.last for effect in play.seen(CallsFinished)] == [False, True]


def test_a_raised_exception_is_settled_as_such_and_not_retried() -> None:
    play = Play()
    one = play.running()
    play.say(Results([Result(one.run, 0, 1, RAISED, 0.1)]), b"exception")
    assert play.seen(CallsFinished) == [
        CallsFinished(1, 0, 1, (b"exception",), raised=True, exitcode=1, last=True, seconds=0.1)
    ]


def test_an_exception_to_be_retried_is_retried() -> None:
    play = Play()
    one = play.running(retries=1)
    play.say(Results([Result(one.run, 0, 1, RETRYABLE, 0.1)]), b"exception")
    assert play.seen(CallsFinished) == []
    assert [again.attempt for again in play.assigned()] == [2]


def test_an_exception_to_be_retried_arrives_itself_when_retries_are_exhausted() -> None:
    play = Play()
    one = play.running(retries=0)
    play.say(Results([Result(one.run, 0, 1, RETRYABLE, 0.1)]), b"exception")
    [settled] = play.seen(CallsFinished)
    assert (settled.payload, settled.raised) == ((b"exception",), True)


def test_a_retry_in_the_middle_of_a_run_leaves_the_rest_of_it_running() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(8)
    one = play.assigned()[0]
    play.say(
        Results([Result(one.run, 0, 1, VALUES, 0.1), Result(one.run, 1, 2, RETRYABLE, 0.1)]),
        b"values",
        b"exception",
    )
    assert play.values(one, 2, one.stop)[0] == CallsFinished(
        2, 2, one.stop, (b"values",), seconds=1.0
    )


def test_a_watched_calls_output_is_settled_with_it() -> None:
    play = Play()
    one = play.running(watched=True)
    play.say(Results([Result(one.run, 0, 1, VALUES, 0.1, 3, True)]), b"values", b"out", b"err")
    [settled] = play.seen(CallsFinished)
    assert (settled.payload, settled.stdout, settled.stderr) == ([b"values"], b"out", b"err")


def test_a_watched_tasks_start_is_told() -> None:
    play = Play()
    one = play.running(watched=True)
    assert play.say(Started(one.run, 99)) == [TaskStarted(1, 99, "node-w", 1)]


def test_a_pushed_value_is_passed_on() -> None:
    play = Play()
    one = play.running(watched=True)
    assert play.say(Pushed(one.run), b"value") == [TaskMessage(1, (b"value",))]


@pytest.mark.parametrize(
    "message",
    [
        Results([Result(99, 0, 1, VALUES, 0.1)]),
        Crashed(99, 0, -11, CRASH, 1),
        Returned([99]),
        Started(99, 1),
        Pushed(99),
        Welcome(),
    ],
)
def test_an_answer_to_no_run_is_dropped(message: Message) -> None:
    play = Play()
    play.running()
    assert play.say(message, b"", b"") == []


def test_a_repeated_answer_is_dropped() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(4)
    one, *_ = play.assigned()
    play.values(one, 0, 1)
    assert play.values(one, 0, 1) == []


def test_a_repeated_hello_is_dropped() -> None:
    play = Play()
    play.running()
    assert play.hello() == []


def test_a_late_answer_of_an_earlier_attempt_is_dropped() -> None:
    play = Play()
    one = play.running()
    play.crash(one, 0)
    assert play.done(one) == []


def test_a_word_of_an_unknown_worker_has_its_connection_forgotten() -> None:
    assert Play().say(Beat(), worker=b"who") == [Lost(b"who")]


@pytest.mark.parametrize(
    ("start", "stop", "status", "seconds", "buffers", "output"),
    [
        (1, 2, VALUES, 0.1, 1, False),
        (0, 9, VALUES, 0.1, 1, False),
        (0, 1, 7, 0.1, 1, False),
        (0, 1, VALUES, float("nan"), 1, False),
        (0, 1, VALUES, float("inf"), 1, False),
        (0, 1, VALUES, 0.1, 0, False),
        (0, 1, VALUES, 0.1, 2, True),
    ],
)
def test_a_worker_whose_answer_does_not_fit_is_let_go_and_its_calls_run_elsewhere(
    start: int, stop: int, status: int, seconds: float, buffers: int, output: bool
) -> None:
    play = Play()
    one = play.running()
    play.hello(b"v", pid=8)
    play.say(
        Results([Result(one.run, start, stop, status, seconds, buffers, output)]), *[b"x"] * buffers
    )
    assert len(play.sent(Refuse, b"w")) == 1
    assert play.seen(Lost) == [Lost(b"w")]
    assert calls(play.assigned(b"v")) == [(1, 0, 1)]


def test_an_exception_is_of_one_call() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(8)
    one, *_ = play.assigned()
    play.say(Results([Result(one.run, 0, 2, RAISED, 0.1)]), b"exception")
    assert play.seen(Lost) == [Lost(b"w")]


@pytest.mark.parametrize(("index", "reason"), [(5, CRASH), (-2, CRASH), (0, "boredom")])
def test_a_worker_that_tells_of_an_impossible_crash_is_let_go(index: int, reason: str) -> None:
    play = Play()
    play.crash(play.running(), index, reason)
    assert play.seen(Lost) == [Lost(b"w")]


# -------------------------------------------------------------------- crashes


def chunk(play: Play, size: int = 6, **options: Any) -> Assignment:
    """Have the worker be given a chunk of a task's calls."""
    play.learn(seconds=1e-3)
    play.submit(2 * size, **options)
    one, *_ = play.assigned()
    assert one.stop - one.start == size
    return one


def attempts_to_come(play: Play, below: int = 6) -> dict[int, int]:
    """Those of the first calls that wait, each with the number of its next attempt."""
    return {
        call: span.attempt
        for pool in play.core.state.queues.values()
        for span in pool.waiting
        for call in range(span.start, min(span.stop, below))
    }


def test_a_crash_charges_the_culprit_only() -> None:
    play = Play()
    play.crash(chunk(play), 2)
    assert attempts_to_come(play) == {0: 1, 1: 1, 2: 2, 3: 1, 4: 1, 5: 1}


def test_results_before_a_crash_are_kept() -> None:
    play = Play()
    one = chunk(play)
    play.values(one, 0, 2)
    play.crash(one, 2)
    assert attempts_to_come(play) == {2: 2, 3: 1, 4: 1, 5: 1}


def test_the_rest_of_a_batch_is_returned_uncharged() -> None:
    play = Play()
    play.learn(seconds=model.BATCH_SECONDS / 3)
    play.submit(*[1] * 10)
    first, second, third = play.sent(Assign)[0].assignments
    play.crash(first, 0)
    play.say(Returned([second.run, third.run]))
    assert {one.attempt for one in play.assigned()} == {1}


def exhausted(play: Play, reason: str = CRASH, **options: Any) -> CallsFinished:
    one = play.running(retries=2, **options)
    for _ in range(2):
        play.now += 1.5
        play.crash(one, 0, reason)
        [one] = play.assigned()
    play.now += 1.5
    play.crash(one, 0, reason)
    [settled] = play.seen(CallsFinished)
    return settled


def test_a_call_that_crashes_each_time_fails_after_its_retries() -> None:
    settled = exhausted(Play())
    assert type(settled.error) is WorkerCrashed
    assert (settled.exitcode, settled.stdout, settled.stderr, settled.last) == (
        -11,
        b"out",
        b"err",
        True,
    )


def test_the_error_of_a_crash_names_signal_host_job_log_and_attempts() -> None:
    text = str(exhausted(Play()).error)
    assert "the process that ran call 0 of square was killed by SIGSEGV" in text
    assert "host: node-w" in text
    assert "cluster job: 41" in text
    assert "log: /runs/x/1.log" in text
    assert (
        text.count(
            "attempt: on node-w (cluster job 41), after 1.5 s: its process was killed by SIGSEGV"
        )
        == 3
    )


def test_the_attempts_of_a_call_are_settled_with_it() -> None:
    attempts = exhausted(Play()).attempts
    assert [(one.host, one.job, one.exitcode, one.ended - one.started) for one in attempts] == [
        ("node-w", "41", -11, 1.5)
    ] * 3


def test_a_call_that_succeeds_at_last_has_the_attempts_before() -> None:
    play = Play()
    one = play.running()
    play.crash(one, 0)
    [again] = play.assigned()
    play.done(again)
    [settled] = play.seen(CallsFinished)
    assert (settled.error, len(settled.attempts)) == (None, 1)


def test_the_error_names_the_call_of_a_chunk() -> None:
    play = Play()
    play.crash(chunk(play, retries=0), 3)
    [settled] = play.seen(CallsFinished)
    assert (settled.start, settled.stop) == (3, 4)
    assert "call 3 of square" in str(settled.error)


def test_a_hard_exit_is_told_with_its_status() -> None:
    play = Play()
    play.crash(play.running(retries=0), 0, exitcode=3)
    assert "exited with status 3" in str(play.seen(CallsFinished)[0].error)


def test_going_over_the_time_is_never_retried() -> None:
    play = Play()
    play.crash(play.running(timeout=2.5), 0, TIMEOUT, exitcode=-15)
    [settled] = play.seen(CallsFinished)
    assert type(settled.error) is TimeoutError
    assert "limit of 2.5 s" in str(settled.error)


def test_going_over_the_memory_limit_is_retried() -> None:
    play = Play()
    play.crash(play.running(), 0, MEMORY)
    assert [one.attempt for one in play.assigned()] == [2]


def test_going_over_the_memory_limit_each_time_is_out_of_memory() -> None:
    assert type(exhausted(Play(), MEMORY).error) is OutOfMemory


def test_the_peak_of_memory_is_told() -> None:
    play = Play()
    one = play.running(retries=0)
    play.say(Crashed(one.run, 0, -9, MEMORY, 1, 2_684_354_560), b"", b"")
    assert "2.50 GB" in str(play.seen(CallsFinished)[0].error)


def test_a_worker_whose_runners_cannot_run_is_let_go_after_a_few_tries() -> None:
    play = Play()
    one = play.running()
    for _ in range(worker_messages.MOST_FRUITLESS):
        play.say(Returned([one.run]))
        [one] = play.assigned()
    play.say(Returned([one.run]))
    assert play.seen(Lost) == [Lost(b"w")]
    assert play.seen(Withdraw) == [Withdraw((Handle("41", "/runs/x/1.log"),))]


def test_workers_that_can_run_nothing_fail_the_calls_in_the_end() -> None:
    play = Play(max_workers=1)
    one = play.running(retries=1)
    for attempt in range(2):
        for _ in range(worker_messages.MOST_FRUITLESS + 1):
            assert one.attempt == attempt + 1
            play.say(
                Returned([one.run], "no process could be started: too many"),
                worker=b"wv"[attempt : attempt + 1],
            )
            one = (*play.assigned(), one)[0]
        if not attempt:
            play.hello(b"v", pid=8)
            [one] = play.assigned()
    error = play.seen(CallsFinished)[0].error
    assert type(error) is WorkerLost
    assert "could run nothing: no process could be started: too many" in str(error)


def test_a_call_that_went_well_in_between_forgives_what_was_returned() -> None:
    play = Play()
    one = play.running(20)
    for _ in range(2 * worker_messages.MOST_FRUITLESS):
        play.say(Returned([one.run]))
        play.done(play.assigned()[0])
        one, *_ = play.assigned()
    assert b"w" in play.core.state.workers


# -------------------------------------------------------------------- lost workers


def test_a_lost_worker_gives_its_tasks_back() -> None:
    play = Play()
    play.running()
    play.later(70)
    assert play.seen(Lost) == [Lost(b"w")]
    assert play.core.state.calls_waiting == 1


def test_a_lost_workers_calls_are_charged() -> None:
    play = Play()
    play.running()
    play.later(70)
    play.hello(b"v", pid=8)
    assert [one.attempt for one in play.assigned()] == [2]


def test_what_a_lost_worker_gives_back_waits_in_its_order() -> None:
    play = Play()
    chunk(play)
    play.later(70)
    assert list(attempts_to_come(play, below=12)) == list(range(12))


def test_results_before_a_loss_are_kept() -> None:
    play = Play()
    one = chunk(play)
    play.values(one, 0, 4)
    play.later(70)
    assert set(attempts_to_come(play)) == {4, 5}


def test_a_lost_worker_is_replaced() -> None:
    play = Play(max_workers=1)
    play.running()
    play.later(70)
    assert play.seen(Launch) == [Launch(1)]


def test_a_worker_that_is_lost_by_silence_is_stopped_by_the_scheduler() -> None:
    play = Play()
    play.running()
    play.later(70)
    assert play.seen(Withdraw) == [Withdraw((Handle("41", "/runs/x/1.log"),))]


def test_silence_shorter_than_the_lease_is_no_death() -> None:
    play = Play()
    play.running()
    play.later(60)
    assert play.seen(Lost) == []


def test_a_silent_worker_is_given_nothing() -> None:
    play = Play(idle_seconds=100)
    play.learn(seconds=1.0)
    play.later(7)
    play.submit(1)
    assert play.assigned() == []


def test_a_silent_worker_that_is_heard_again_is_given_work() -> None:
    play = Play(idle_seconds=100)
    play.learn(seconds=1.0)
    play.later(7)
    play.submit(1)
    play.say(Beat())
    assert calls(play.assigned()) == [(2, 0, 1)]


def test_a_silent_worker_whose_first_word_is_goodbye_is_given_nothing() -> None:
    play = Play(idle_seconds=100)
    play.learn(seconds=1.0)
    play.later(7)
    play.submit(1)
    play.say(Goodbye("terminated"))
    assert play.assigned() == []


def test_the_schedulers_word_of_a_death_is_enough() -> None:
    play = Play()
    play.running()
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.FAILED, "killed by SIGKILL")
    play.later(1)
    assert play.seen(Lost) == [Lost(b"w")]


def test_what_an_ended_worker_sent_before_is_still_taken() -> None:
    play = Play()
    one = play.running()
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.ENDED)
    play.done(one)
    assert len(play.seen(CallsFinished)) == 1


def lost_for_good(play: Play, **report: Any) -> CallsFinished:
    one = play.running(retries=0)
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.FAILED, "its own words", **report)
    play.later(1)
    assert one.attempt == 1
    [settled] = play.seen(CallsFinished)
    return settled


def test_a_call_whose_workers_are_lost_fails_after_its_retries() -> None:
    settled = lost_for_good(Play())
    assert type(settled.error) is WorkerLost
    assert settled.exitcode == -signal.SIGKILL


def test_the_error_of_a_loss_names_reason_host_job_log_and_attempts() -> None:
    text = str(lost_for_good(Play()).error)
    for part in (
        "its own words",
        "host: node-w",
        "cluster job: 41",
        "log: /runs/x/1.log",
        "attempt: on node-w (cluster job 41)",
    ):
        assert part in text


def test_a_deletion_is_told_as_such() -> None:
    assert type(lost_for_good(Play(), deleted=True).error) is JobDeleted


def test_a_worker_that_says_goodbye_gives_its_tasks_back() -> None:
    play = Play()
    play.running()
    play.say(Goodbye("terminated"))
    assert play.seen(Lost) == [Lost(b"w")]
    assert play.core.state.calls_waiting == 1


def test_a_goodbye_charges_the_calls_under_way_and_no_others() -> None:
    play = Play()
    one = chunk(play)
    play.values(one, 0, 1)
    play.say(Goodbye("terminated"))
    assert attempts_to_come(play) == {1: 2, 2: 1, 3: 1, 4: 1, 5: 1}


def test_a_call_that_outlives_each_workers_wall_time_fails_in_the_end() -> None:
    play = Play(max_workers=1)
    play.submit(1, retries=1)
    for name in (b"a", b"b"):
        play.hello(name)
        play.say(Goodbye("walltime"), worker=name)
    assert type(play.seen(CallsFinished)[0].error) is WorkerLost


HANDLE = Handle("41", "/runs/x/1.log")


def terminated(**options: Any) -> Play:
    """A worker of a cluster that somebody ended in the second of five calls."""
    play = Play(pooled=True, **options)
    one = play.running(5, retries=0)
    play.values(one, 0, 1)
    play.say(Goodbye("terminated"))
    return play


def test_when_somebody_ended_a_worker_the_scheduler_says_what_that_means() -> None:
    play = terminated()
    assert play.effects == []
    play.poll(HANDLE, WorkerStatus.FAILED, "was cancelled", deleted=True)
    play.later(1)
    assert [type(settled.error) for settled in play.seen(CallsFinished)] == [JobDeleted]
    assert play.core.state.calls_waiting == 3


def test_calls_whose_worker_made_room_for_another_job_run_again_at_no_charge() -> None:
    play = terminated()
    play.poll(HANDLE, WorkerStatus.FAILED, "was preempted", blameless=True)
    play.later(1)
    assert play.seen(CallsFinished) == []
    assert set(attempts_to_come(play).values()) == {1}


def test_a_worker_that_was_ended_is_waited_for_no_longer_than_for_one_that_leaves() -> None:
    play = terminated()
    play.later(5)
    assert play.seen(Lost) == []
    play.later(6)
    assert play.seen(Withdraw) == [Withdraw((HANDLE,))]
    assert [type(settled.error) for settled in play.seen(CallsFinished)] == [WorkerLost]


def test_who_closes_does_not_wait_for_what_the_scheduler_says() -> None:
    play = terminated()
    play.play(Closing())
    assert play.seen(Lost) == [Lost(b"w")]
    assert play.core.state.workers == {}


def test_workers_that_make_room_before_they_start_are_no_failures() -> None:
    play = Play()
    play.submit(1)
    failing_starts(play, 9, blameless=True)
    assert play.seen(CallsFinished) == []
    assert play.core.state.calls_waiting == 1


def test_a_suspended_worker_is_not_dead() -> None:
    play = Play()
    play.running()
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.SUSPENDED)
    play.later(1000)
    play.later(1000)
    assert play.seen(Lost) == []


def test_a_suspended_worker_is_given_nothing() -> None:
    play = Play(idle_seconds=100)
    play.learn(seconds=1.0)
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.SUSPENDED)
    play.later(1)
    play.submit(1)
    assert play.assigned() == []


def test_a_worker_that_goes_on_after_a_suspension_finishes_its_work() -> None:
    play = Play()
    one = play.running()
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.SUSPENDED)
    play.later(1000)
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.RUNNING)
    play.later(10)
    play.done(one)
    assert len(play.seen(CallsFinished)) == 1


def test_a_lost_workers_late_words_are_not_taken() -> None:
    play = Play()
    one = play.running()
    play.later(70)
    assert play.done(one) == [Lost(b"w")]


# -------------------------------------------------------------------- workers that never come


def failing_starts(play: Play, count: int, **report: Any) -> list[Effect]:
    for number in range(count):
        handle = Handle(f"5{number}", f"/runs/x/5{number}.log")
        play.later(100)
        play.play(Launched([handle]))
        play.poll(handle, WorkerStatus.FAILED, "no such interpreter", **report)
    return play.effects


def test_workers_that_never_call_home_are_an_error_after_three_in_a_row() -> None:
    play = Play()
    play.submit(1)
    failing_starts(play, 2)
    assert play.seen(CallsFinished) == []
    failing_starts(play, 1)
    assert type(play.seen(CallsFinished)[0].error) is WorkerNotStarted


def test_the_error_of_a_worker_that_never_called_home_has_the_schedulers_words() -> None:
    play = Play()
    play.submit(1)
    failing_starts(play, 3)
    text = str(play.seen(CallsFinished)[0].error)
    for part in ("no such interpreter", "cluster job: 52", "log: /runs/x/52.log"):
        assert part in text


def test_the_error_of_a_worker_that_never_called_home_is_the_reports_own() -> None:
    play = Play()
    play.submit(1)
    error = ClusterError("as the batch system tells it")
    failing_starts(play, 3, error=error)
    assert play.seen(CallsFinished)[0].error is error


def test_workers_deleted_before_they_start_are_told_as_such() -> None:
    play = Play()
    play.submit(1)
    failing_starts(play, 3, deleted=True)
    assert type(play.seen(CallsFinished)[0].error) is JobDeleted


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
    assert play.effects == [Launch(1)]


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
    assert play.effects == [Launch(1, eight)]


def test_a_worker_that_can_never_start_is_no_error_while_another_serves_its_calls() -> None:
    play = Play(max_workers=2)
    play.running()
    play.submit(1)
    play.play(Launched([Handle("42")]))
    play.poll(Handle("42"), WorkerStatus.QUEUED, error=SubmissionRefused("never"))
    assert play.seen(CallsFinished) == []


def test_calls_that_have_no_worker_in_time_fail_and_the_next_wait_anew() -> None:
    play = Play(start_timeout=30.0)
    play.submit(1)
    play.play(Launched([Handle("1")]))
    play.later(29)
    assert play.seen(CallsFinished) == []
    play.play(Explained(Handle("1"), "no licence"))
    play.later(1)
    [settled] = play.seen(CallsFinished)
    assert "within 30 s (start_timeout): no licence" in str(settled.error)
    assert play.seen(Withdraw) == [Withdraw((Handle("1"),))]
    play.submit(1)
    assert play.effects == [Launch(1)]
    play.later(29)
    assert play.seen(CallsFinished) == []


def test_a_batch_system_that_takes_nothing_in_time_is_an_error_with_its_words() -> None:
    play = Play(start_timeout=5.0)
    play.submit(1)
    play.play(LaunchFailed(ClusterError("the master is away"), for_now=True))
    play.later(5)
    assert "(start_timeout): the master is away" in str(play.seen(CallsFinished)[0].error)


def test_a_worker_that_runs_and_does_not_call_home_in_time_is_stopped() -> None:
    play = Play()
    play.submit(1)
    play.play(Launched([Handle("1")]))
    play.poll(Handle("1"), WorkerStatus.RUNNING)
    play.later(31)
    assert play.seen(Withdraw) == [Withdraw((Handle("1"),))]
    assert "has not called home" in play.seen(Warn)[0].text


def test_workers_overdue_three_times_are_an_error() -> None:
    play = Play()
    play.submit(1, 1, 1)
    handles = [Handle(str(number)) for number in range(3)]
    play.play(Launched(handles))
    play.play(Polled({handle: Report(WorkerStatus.RUNNING) for handle in handles}))
    play.later(31)
    assert "never called home" in str(play.seen(CallsFinished)[0].error)


def test_a_worker_that_waits_in_the_queue_is_not_overdue() -> None:
    play = Play()
    play.submit(1)
    play.play(Launched([Handle("1")]))
    play.poll(Handle("1"), WorkerStatus.QUEUED)
    play.later(1000)
    assert play.seen(Withdraw) == []


def test_a_worker_that_was_withdrawn_and_calls_all_the_same_is_told_to_leave() -> None:
    play = Play()
    play.submit(1)
    play.play(Launched([Handle("7")]))
    play.poll(Handle("7"), WorkerStatus.RUNNING)
    play.later(31)
    play.hello(pid=7)
    assert play.sent(Stop) == [Stop()]
    assert play.assigned() == []


def test_what_waits_for_a_queued_worker_is_explained() -> None:
    play = Play()
    play.submit(1)
    play.play(Launched([Handle("1")]))
    assert play.later(5) == []
    assert [type(effect) for effect in play.later(10)] == [Explain]


# -------------------------------------------------------------------- refused requests


def test_a_launch_refused_for_now_is_tried_again_later() -> None:
    play = Play()
    play.submit(1)
    play.play(LaunchFailed(ClusterError("too many jobs"), for_now=True))
    assert play.seen(CallsFinished) == []
    assert play.later(0.5) == []
    assert play.later(0.6) == [Launch(1)]


def test_each_refusal_for_now_doubles_the_wait() -> None:
    play = Play()
    play.submit(1)
    for seconds in (1, 2, 4):
        play.play(LaunchFailed(ClusterError("too many jobs"), for_now=True))
        assert play.later(seconds - 0.1) == []
        assert play.later(0.2) == [Launch(1)]


def test_a_launch_refused_for_good_fails_what_waits_at_once() -> None:
    play = Play()
    play.submit(2)
    error = SubmissionRefused("unknown resource")
    play.play(LaunchFailed(error))
    assert play.seen(CallsFinished) == [
        CallsFinished(1, 0, 2, None, error=error, exitcode=1, last=True)
    ]


def test_after_a_refusal_for_good_the_next_submission_asks_at_once() -> None:
    play = Play()
    play.submit(1)
    play.play(LaunchFailed(SubmissionRefused("unknown resource")))
    play.submit(1)
    assert play.effects == [Launch(1)]


def test_while_others_work_a_refusal_is_a_warning() -> None:
    play = Play()
    play.submit(1)
    play.hello()
    play.submit(1)
    play.play(LaunchFailed(SubmissionRefused("unknown resource")))
    assert [type(effect) for effect in play.effects] == [Warn]


def test_a_launch_of_no_workers_is_tried_again_later() -> None:
    play = Play()
    play.submit(1)
    assert play.play(Launched([])) == []
    assert play.later(1.1) == [Launch(1)]


# -------------------------------------------------------------------- too many workers


def test_an_idle_worker_is_stopped() -> None:
    play = Play(idle_seconds=5)
    play.learn(seconds=1.0)
    play.later(4, beats=[b"w"])
    assert play.sent(Stop) == []
    play.later(2, beats=[b"w"])
    assert play.sent(Stop) == [Stop()]


def test_a_busy_worker_is_not_stopped() -> None:
    play = Play(idle_seconds=5)
    play.running()
    play.later(6, beats=[b"w"])
    assert play.sent(Stop) == []


def test_a_worker_that_was_told_to_stop_is_given_nothing_more() -> None:
    play = Play(idle_seconds=5)
    play.learn(seconds=1.0)
    play.later(5.5, beats=[b"w"])
    play.submit(1)
    assert play.assigned() == []


def test_a_worker_that_was_told_to_stop_and_stays_is_done_without() -> None:
    play = Play(idle_seconds=5, max_workers=1)
    play.learn(seconds=1.0)
    play.later(5.5, beats=[b"w"])
    play.submit(1)
    play.later(worker_lifecycle.LEAVE_SECONDS + 1, beats=[b"w"])
    assert play.seen(Lost) == [Lost(b"w")]
    assert play.seen(Withdraw) == [Withdraw((Handle("41", "/runs/x/1.log"),))]
    assert play.seen(Launch) == [Launch(1)]


def test_queued_workers_that_are_not_needed_any_more_are_withdrawn() -> None:
    play = Play(idle_seconds=5)
    one = play.running()
    play.submit(1)
    play.play(Launched([Handle("42")]))
    play.done(one)
    play.done(play.assigned()[0])
    play.later(1, beats=[b"w"])
    assert play.seen(Withdraw) == []
    play.later(5, beats=[b"w"])
    assert play.seen(Withdraw) == [Withdraw((Handle("42"),))]


# -------------------------------------------------------------------- versions


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


def test_a_version_mismatch_fails_what_waits_when_nobody_else_works() -> None:
    play = Play()
    play.submit(1)
    play.hello(version="2")
    assert type(play.seen(CallsFinished)[0].error) is VersionMismatch


def test_a_version_mismatch_of_one_node_holds_nobody_up() -> None:
    play = Play()
    play.submit(1, 1)
    play.hello()
    play.hello(b"v", version="2")
    assert play.seen(CallsFinished) == []


def test_a_worker_of_another_run_is_refused_and_disturbs_nobody() -> None:
    play = Play()
    play.submit(1)
    play.hello(run_id="yesterday")
    assert len(play.sent(Refuse)) == 1
    assert play.seen(CallsFinished) == []


def test_refused_workers_leave_nothing_behind() -> None:
    play = Play()
    for number in range(100):
        play.hello(f"w{number}".encode(), pid=number, version="2", log=f"/logs/{number}")
    assert play.core.state.unmatched == {}


# -------------------------------------------------------------------- cancelling


def test_a_cancelled_task_that_waits_never_runs() -> None:
    play = Play()
    play.submit(3)
    play.play(CancelRequested([1], signal.SIGTERM))
    [settled] = play.seen(CallsFinished)
    assert (type(settled.error), settled.stop, settled.exitcode) == (Cancelled, 3, -signal.SIGTERM)
    play.hello()
    assert play.assigned() == []


def test_a_cancelled_task_that_runs_has_its_worker_told() -> None:
    play = Play()
    one = play.running()
    assert play.play(CancelRequested([1], signal.SIGTERM)) == [
        Send(b"w", Cancel([one.run], signal.SIGTERM))
    ]


def test_a_cancelled_call_settles_when_its_worker_says_so() -> None:
    play = Play()
    one = play.running()
    play.play(CancelRequested([1], signal.SIGTERM))
    play.crash(one, 0, CANCELLED, -15)
    [settled] = play.seen(CallsFinished)
    assert (type(settled.error), settled.exitcode, settled.stdout) == (Cancelled, -15, b"out")


def test_a_cancelled_run_that_had_not_begun_settles_too() -> None:
    play = Play()
    one = play.running()
    play.play(CancelRequested([1], signal.SIGTERM))
    play.crash(one, -1, CANCELLED, -15)
    assert type(play.seen(CallsFinished)[0].error) is Cancelled


def test_a_cancelled_call_that_ends_by_itself_has_its_value() -> None:
    play = Play()
    one = play.running()
    play.play(CancelRequested([1], signal.SIGTERM))
    play.done(one)
    assert play.seen(CallsFinished)[0].payload == (b"values",)


def test_a_cancelled_call_is_never_retried() -> None:
    play = Play()
    one = play.running()
    play.play(CancelRequested([1], signal.SIGTERM))
    play.crash(one, 0, CRASH, -11)
    assert len(play.seen(CallsFinished)) == 1


def test_a_cancelled_call_is_not_retried_for_its_exception() -> None:
    play = Play()
    one = play.running()
    play.play(CancelRequested([1], signal.SIGTERM))
    play.say(Results([Result(one.run, 0, 1, RETRYABLE, 0.1)]), b"exception")
    assert play.seen(CallsFinished)[0].raised


def test_a_task_may_be_cancelled_twice_with_another_signal() -> None:
    play = Play()
    one = play.running()
    play.play(CancelRequested([1], signal.SIGTERM))
    assert play.play(CancelRequested([1], signal.SIGKILL)) == [
        Send(b"w", Cancel([one.run], signal.SIGKILL))
    ]


def test_a_cancelled_call_whose_worker_is_lost_settles_with_the_signal_asked_for() -> None:
    play = Play()
    play.running()
    play.play(CancelRequested([1], signal.SIGKILL))
    play.later(70)
    [settled] = play.seen(CallsFinished)
    assert (type(settled.error), settled.exitcode) == (Cancelled, -signal.SIGKILL)


def test_a_cancelled_call_whose_worker_gives_it_back_settles() -> None:
    play = Play()
    one = play.running()
    play.play(CancelRequested([1], signal.SIGTERM))
    play.say(Returned([one.run]))
    assert type(play.seen(CallsFinished)[0].error) is Cancelled


def test_cancelling_what_has_settled_does_nothing() -> None:
    play = Play()
    play.done(play.running())
    assert play.play(CancelRequested([1, 99], signal.SIGTERM)) == []


def test_cancelling_one_task_leaves_the_others() -> None:
    play = Play()
    play.submit(1, 2, 3)
    play.play(CancelRequested([2], signal.SIGTERM))
    assert play.core.state.calls_waiting == 4


# -------------------------------------------------------------------- closing


def test_closing_settles_everything_and_stops_everybody() -> None:
    play = Play()
    play.running(5)
    play.play(Launched([Handle("42")]))
    play.play(Closing())
    assert sum(effect.stop - effect.start for effect in play.seen(CallsFinished)) == 5
    assert {type(effect.error) for effect in play.seen(CallsFinished)} == {Cancelled}
    assert play.sent(Stop) == [Stop()]
    assert play.seen(Withdraw) == [Withdraw((Handle("42"),))]


def test_closing_settles_of_a_run_what_has_not_settled() -> None:
    play = Play()
    one = chunk(play)
    play.values(one, 0, 4)
    play.play(Closing())
    assert min(effect.start for effect in play.seen(CallsFinished)) == 4


def test_what_is_submitted_after_closing_settles_at_once() -> None:
    play = Play()
    play.play(Closing())
    play.submit(2)
    assert [type(effect) for effect in play.effects] == [CallsFinished]


def test_a_worker_that_comes_after_closing_is_told_to_leave() -> None:
    play = Play()
    play.play(Closing())
    play.hello()
    assert play.sent(Stop) == [Stop()]


def test_workers_that_start_after_closing_are_withdrawn() -> None:
    play = Play()
    play.submit(1)
    play.play(Closing())
    assert play.play(Launched([Handle("1")])) == [Withdraw((Handle("1"),))]


def test_answers_after_closing_are_dropped() -> None:
    play = Play()
    one = play.running()
    play.play(Closing())
    assert play.done(one) == []


def test_closing_twice_is_as_closing_once() -> None:
    play = Play()
    play.running()
    play.play(Closing())
    assert play.play(Closing()) == []


# -------------------------------------------------------------------- functions


def test_a_function_is_kept_a_while_after_its_last_call() -> None:
    play = Play()
    play.done(play.running())
    play.submit(1)
    assert play.sent(Define) == []


def test_workers_are_told_once_and_before_the_calls_that_modules_have_changed() -> None:
    play = Play()
    play.done(play.running())
    play.submit(1)
    assert play.sent(Reload) == []
    play.done(play.assigned()[0])
    for generation, told in ((1, 1), (1, 0), (0, 0), (2, 1)):
        play.play(
            Submitted(SQUARE, [Task(100 + play.core.state.last_run, (b"calls",), 1)], generation)
        )
        assert [type(one.message) for one in play.seen(Send)] == [Reload] * told + [Assign]
        play.done(play.assigned()[0])


def test_a_worker_that_comes_later_has_loaded_nothing_that_has_changed() -> None:
    play = Play()
    play.play(Submitted(SQUARE, [Task(1, (b"calls",), 1)], 3))
    play.hello()
    assert len(play.assigned()) == 1
    assert play.sent(Reload) == []


def test_the_oldest_function_out_of_use_is_forgotten() -> None:
    play = Play()
    play.hello()
    for number in range(objects.KEPT_FUNCTIONS + 1):
        play.submit(1, function=function(number))
        play.done(play.assigned()[0])
    assert play.sent(Forget) == [Forget([b"f0"])]


def test_a_function_that_was_forgotten_is_sent_again() -> None:
    play = Play()
    play.hello()
    for number in range(objects.KEPT_FUNCTIONS + 1):
        play.submit(1, function=function(number))
        play.done(play.assigned()[0])
    play.submit(1, function=function(0))
    assert [define.function for define in play.sent(Define)] == [b"f0"]


def test_a_function_in_use_is_never_forgotten() -> None:
    play = Play()
    play.running()
    play.hello(b"v", pid=8)
    for number in range(2 * objects.KEPT_FUNCTIONS):
        play.submit(1, function=function(number))
        play.done(play.assigned(b"v")[0], worker=b"v")
        assert Forget([b"square"]) not in play.sent(Forget)


def big(number: int, size: int) -> Function:
    return replace(function(number), payload=(b"pickled", bytes(size)))


def test_a_large_function_is_forgotten_when_no_task_uses_it() -> None:
    play = Play()
    play.hello()
    play.submit(1)
    play.done(play.assigned()[0])
    play.submit(1, function=big(1, objects.KEPT_BYTES))
    play.done(play.assigned()[0])
    assert play.sent(Forget) == [Forget([b"f1"])]


def test_functions_out_of_use_are_forgotten_when_together_they_are_large() -> None:
    play = Play()
    play.hello()
    for number in range(3):
        play.submit(1, function=big(number, objects.KEPT_BYTES // 2 - 100))
        play.done(play.assigned()[0])
    assert play.sent(Forget) == [Forget([b"f0"])]


# -------------------------------------------------------------------- shared objects


def lent(name: bytes = b"A") -> SharedObject:
    return SharedObject(name, [b"object"])


def names(defines: Sequence[Define]) -> list[tuple[bytes, bool]]:
    return [(one.function, one.shared) for one in defines]


def test_a_shared_object_is_sent_before_the_first_call_that_needs_it() -> None:
    play = Play()
    play.hello()
    play.submit(1, needs=(lent(),))
    assert [type(one.message) for one in play.seen(Send)] == [Define, Define, Assign]
    assert names(play.sent(Define)) == [(b"A", True), (SQUARE.digest, False)]


def test_a_shared_object_that_only_the_function_refers_to_is_sent() -> None:
    play = Play()
    play.hello()
    play.submit(1, function=replace(SQUARE, needs=(lent(),)))
    assert (b"A", True) in names(play.sent(Define))


def test_a_shared_object_is_sent_to_a_worker_once() -> None:
    play = Play()
    play.hello()
    shared = lent()
    play.submit(1, needs=(shared,))
    play.done(play.assigned()[0])
    play.submit(1, needs=(shared,))
    assert play.sent(Define) == []
    assert len(play.assigned()) == 1


def test_a_shared_object_goes_to_the_worker_that_a_lost_workers_call_goes_to() -> None:
    play = Play()
    play.running(needs=(lent(),))
    play.hello(b"v", pid=8)
    play.say(Goodbye("killed"))
    assert (b"A", True) in names(play.sent(Define, b"v"))
    assert len(play.assigned(b"v")) == 1


def test_a_shared_object_is_kept_while_it_has_a_handle() -> None:
    play = Play()
    play.done(play.running(needs=(lent(),)))
    assert play.sent(Forget) == []


def test_a_shared_object_without_a_handle_is_kept_until_the_last_call_that_needs_it_has_ended() -> (
    None
):
    play = Play()
    one = play.running(needs=(lent(),))
    assert play.play(Released(b"A")) == []
    play.done(one)
    assert play.sent(Forget) == [Forget([b"A"])]


def test_a_shared_object_that_nobody_needs_is_forgotten_with_its_last_handle() -> None:
    play = Play()
    play.done(play.running(needs=(lent(),)))
    play.play(Released(b"A"))
    assert play.sent(Forget) == [Forget([b"A"])]
    assert b"A" not in play.core.state.objects


def test_a_function_that_holds_a_shared_object_is_forgotten_with_it() -> None:
    play = Play()
    play.done(play.running(function=replace(SQUARE, needs=(lent(),))))
    play.play(Released(b"A"))
    assert play.sent(Forget) == [Forget([SQUARE.digest]), Forget([b"A"])]


def test_a_shared_object_that_was_forgotten_is_sent_again_to_calls_that_were_late() -> None:
    play = Play()
    shared = lent()
    play.done(play.running(needs=(shared,)))
    play.play(Released(b"A"))
    play.submit(1, needs=(shared,))
    assert (b"A", True) in names(play.sent(Define))


def test_what_lies_in_a_shared_object_is_sent_before_it() -> None:
    play = Play()
    play.hello()
    payload = PayloadWithObjects([b"outer"])
    payload.needs = (lent(b"inner"),)
    play.submit(1, needs=(SharedObject(b"outer", payload),))
    assert names(play.sent(Define))[:2] == [(b"inner", True), (b"outer", True)]


def test_the_release_of_what_was_never_handed_in_is_nothing() -> None:
    assert Play().play(Released(b"A")) == []


# -------------------------------------------------------------------- phases and words


def test_an_illegal_change_of_phase_is_a_fault() -> None:
    play = Play()
    play.hello()
    worker = play.core.state.workers[b"w"]
    play.core.state.enter(worker, model.Phase.STOPPING)
    with pytest.raises(AssertionError, match="cannot go"):
        play.core.state.enter(worker, model.Phase.READY)


@pytest.mark.parametrize(
    ("exitcode", "remedy"),
    [
        (-9, "ask for more with resources=Memory(M)"),
        (3, "InlineScheduler()"),
        (-11, "InlineScheduler()"),
    ],
)
def test_the_remedy_of_a_crash_follows_from_how_it_ended(exitcode: int, remedy: str) -> None:
    play = Play()
    play.crash(play.running(retries=0), 0, exitcode=exitcode)
    [settled] = play.seen(CallsFinished)
    assert settled.error is not None
    assert remedy in (settled.error.hint or "")


@pytest.mark.parametrize(
    ("exitcode", "words"),
    [
        (3, "exited with status 3"),
        (-9, "was killed by SIGKILL"),
        (-200, "was killed by signal 200"),
    ],
)
def test_an_exit_code_is_told_in_words(exitcode: int, words: str) -> None:
    assert failures.ending_of(exitcode) == words


def two_demands(**policy: Any) -> Play:
    """A worker has nothing left to do; calls of another demand wait."""
    play = Play(pooled=True, idle_seconds=5, **policy)
    play.done(play.running())
    play.submit(demand=Demand(Memory(1)))
    return play


def test_a_worker_with_nothing_to_do_leaves_where_calls_of_another_demand_wait_for_its_place() -> (
    None
):
    play = two_demands()
    play.play(Launched([Handle("42", "/runs/x/2.log")], Demand(Memory(1))))
    play.later(0.3, beats=[b"w"])
    assert play.sent(Stop) == []
    play.later(0.3, beats=[b"w"])
    assert play.sent(Stop) == [Stop()]


def test_a_worker_with_nothing_to_do_leaves_where_no_more_workers_are_allowed_and_another_demand_wants_one() -> (
    None
):
    play = two_demands(max_workers=1)
    play.later(0.6, beats=[b"w"])
    assert play.sent(Stop) == [Stop()]


def test_a_worker_with_nothing_to_do_stays_a_while_when_nobody_waits() -> None:
    play = Play(pooled=True, idle_seconds=5)
    play.done(play.running())
    play.later(0.6, beats=[b"w"])
    assert play.sent(Stop) == []


def test_an_event_hands_out_so_much_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigner, "MOST_ASSIGNED", 2)
    play = Play(slots=5)
    play.submit(1, 1, 1, 1, 1)
    play.hello(slots=5)
    assert [one.task for one in play.assigned()] == [1, 2]
    play.play(Continue())
    assert [one.task for one in play.assigned()] == [3, 4]
    play.play(Continue())
    assert [one.task for one in play.assigned()] == [5]
    assert not play.core.state.deferred


def test_a_demand_is_forgotten_when_it_has_neither_calls_nor_workers() -> None:
    play = two_demands()
    play.play(LaunchFailed(ClusterError("no such memory"), demand=Demand(Memory(1))))
    assert [settled.last for settled in play.seen(CallsFinished)] == [True]
    play.later(0.3, beats=[b"w"])
    assert list(play.core.state.provisioners) == list(play.core.state.queues) == [ANY]


def test_a_demand_is_remembered_while_it_may_not_ask_again() -> None:
    play = two_demands()
    play.play(LaunchFailed(ClusterError("not now"), for_now=True, demand=Demand(Memory(1))))
    play.play(CancelRequested([play.last_task], signal.SIGTERM))
    play.later(0.3, beats=[b"w"])
    assert list(play.core.state.provisioners) == [ANY, Demand(Memory(1))]
    play.later(1.0, beats=[b"w"])
    assert list(play.core.state.provisioners) == list(play.core.state.queues) == [ANY]


def test_a_process_of_this_machine_is_no_cluster_job() -> None:
    play = Play()
    play.crash(play.running(log="", retries=0), 0)
    [settled] = play.seen(CallsFinished)
    assert settled.error is not None
    assert settled.error.job is None
