"""Which calls are assigned to which workers, and how many at a time, played on the core."""

from __future__ import annotations

import signal

import pytest

from gridengine.dispatcher.core import assigner, workers_and_queues
from gridengine.dispatcher.core.events import Continue, Launch, Launched, Send
from gridengine.dispatcher.core.policy import Policy
from gridengine.requests import Function, Submitted, TasksCancelled
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import Handle
from gridengine.wire.messages import Assign, Define, Goodbye, Refuse, Stop, Welcome
from tests.support.core_play import CUBE, GOOD, SQUARE, Play, calls
from tests.support.tasks import make_task


def test_a_worker_that_calls_home_is_welcomed_and_given_a_function_and_work() -> None:
    play = Play()
    play.submit(1)
    play.hello()
    assert [type(effect.message) for effect in play.seen(Send)] == [Welcome, Define, Assign]
    assert play.sent(Define) == [Define(b"square", [b"/code"], b"/home", 1)]


def test_an_assignment_carries_the_options_of_its_task() -> None:
    one = Play().running(form=1, watched=True, controlled=True, timeout=9.0)
    options = one.form, one.watched, one.controlled, one.timeout, one.attempt
    assert options == (1, True, True, 9.0, 1)


def test_a_worker_is_given_one_call_for_each_slot() -> None:
    play = Play(slots=3)
    play.submit(1, 1, 1, 1)
    play.hello(slots=3)
    assert [len(message.assignments) for message in play.sent(Assign)] == [1, 1, 1]


def test_one_call_of_an_unmeasured_function_is_handed_out() -> None:
    one = Play().running(100)
    assert (one.start, one.stop) == (0, 1)


@pytest.mark.parametrize(
    ("seconds", "share", "given"),
    [
        pytest.param(
            workers_and_queues.BATCH_SECONDS / 5, None, [(0, 5), (5, 10)], id="and the next ahead"
        ),
        pytest.param(1.0, None, [(0, 1)], id="slow ones alone"),
        pytest.param(1e-3, 50, [(0, 49)], id="no more than a worker's share, and none ahead"),
    ],
)
def test_quick_calls_are_handed_out_together(
    seconds: float, share: int | None, given: list[tuple[int, int]]
) -> None:
    play = Play(jobs_per_worker=share)
    play.learn(seconds)
    play.submit(1000)
    assert [(one.start, one.stop) for one in play.assigned()] == given
    assert len(play.sent(Assign)) == len(given)


def test_quick_tasks_of_one_call_make_one_batch() -> None:
    play = Play()
    play.learn(seconds=workers_and_queues.BATCH_SECONDS / 4)
    play.submit(*[1] * 100)
    assert len(play.sent(Assign)[0].assignments) == 4


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [
        pytest.param(1e-3, [2, 2], id="and as much is ahead"),
        pytest.param(workers_and_queues.LEAST_SECONDS / 6, [6, 2], id="but is worth its message"),
    ],
)
def test_a_batch_leaves_work_for_every_slot(seconds: float, sizes: list[int]) -> None:
    play = Play()
    play.learn(seconds)
    play.hello(b"v", pid=8)
    play.submit(8)
    assert [one.stop - one.start for one in play.assigned()][:2] == sizes


@pytest.mark.parametrize(
    ("tasks", "share", "batches"),
    [
        pytest.param([4, 4, 4], None, [[4, 4], [4]], id="the nearest number of whole tasks"),
        pytest.param([5, 5, 5], None, [[5], [5], [5]], id="at least one"),
        pytest.param([8, 8], None, [[6], [2, 4], [4]], id="unless it is worth a message"),
        pytest.param([4, 4, 4], 6, [[4, 2], [2, 3]], id="unless it is beyond its share"),
    ],
)
def test_a_task_of_quick_calls_goes_whole_to_one_worker(
    tasks: list[int], share: int | None, batches: list[list[int]]
) -> None:
    play = Play(jobs_per_worker=share)
    play.learn(workers_and_queues.LEAST_SECONDS / 6)
    play.hello(b"v", pid=8)
    play.submit(*tasks)
    sizes = [[one.stop - one.start for one in sent.assignments] for sent in play.sent(Assign)]
    assert sizes[: len(batches)] == batches


def test_a_batch_lasts_as_long_as_a_slow_message() -> None:
    play = Play(message_seconds=0.1)
    play.learn(seconds=0.05)
    play.submit(1000)
    assert [(one.start, one.stop) for one in play.assigned()] == [(0, 6), (6, 12)]
    play = Play(message_seconds=0.1)
    play.learn(seconds=1e-3)
    play.hello(b"v", pid=8)
    play.submit(150)
    assert play.assigned()[0].stop == 101


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


def test_a_batch_is_bounded_in_bytes() -> None:
    play, payload = Play(), (bytes(workers_and_queues.MOST_BYTES // 2),)
    play.learn(seconds=1e-6)
    play.play(Submitted(SQUARE, [make_task(number, payload) for number in range(100, 120)]))
    assert len(play.sent(Assign)[0].assignments) == 3


def test_nothing_is_given_ahead_while_another_worker_is_idle() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.hello(b"v", pid=8)
    play.submit(1, 1)
    assert sorted(one.worker for one in play.seen(Send) if isinstance(one.message, Assign)) == [
        b"v",
        b"w",
    ]


def test_a_retry_is_handed_out_alone() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(10)
    first, second = play.assigned()
    play.crash(first, 3)
    play.done(second)
    assert calls(play.assigned()) == [(2, 3, 4)]


def test_a_worker_that_has_done_its_share_is_stopped() -> None:
    play = Play(jobs_per_worker=1)
    one = play.running()
    play.submit(1)
    play.done(one)
    assert play.sent(Stop) == [Stop()]
    assert play.assigned() == []


def test_calls_given_back_by_a_worker_go_to_an_idle_one() -> None:
    play = Play(jobs_per_worker=1)
    one = play.running()
    play.hello(b"v", pid=8)
    play.crash(one, 0)
    assert calls(play.assigned(b"v")) == [(1, 0, 1)]


def test_an_event_hands_out_so_much_and_the_next_goes_on() -> None:
    most = assigner.MOST_ASSIGNED
    play = Play(slots=most + 1)
    play.submit(*[1] * (most + 1))
    play.hello(slots=most + 1)
    assert [one.task for one in play.assigned()] == [*range(1, most + 1)]
    play.play(Continue())
    assert [one.task for one in play.assigned()] == [most + 1]
    assert not play.core.state.deferred


def test_a_queue_forgotten_while_it_was_deferred_leaves_its_successor_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assigner, "MOST_ASSIGNED", 1)
    play, demand = Play(pooled=True), Demand(Memory(1))

    def join(*workers: bytes) -> None:
        for name in workers:
            log = f"/r/{name.decode()}.log"
            play.play(Launched([Handle(name.decode(), log)], demand))
            play.hello(name, log=log)

    play.submit(1, demand=demand)
    join(b"u")
    play.done(play.assigned()[0], worker=b"u")
    join(b"v")
    play.submit(2, demand=demand)
    assert play.core.state.deferred
    play.play(TasksCancelled([2], signal.SIGTERM))
    for worker in (b"u", b"v"):
        play.say(Goodbye("told to"), worker=worker)
    play.submit(1, demand=demand)
    play.play(Continue())
    join(b"x")
    assert calls(play.assigned(b"x")) == [(3, 0, 1)]


MEAN = Function(b"mean", (b"mean",), (), b"/", "mean", codec="json")
AT_MEAN = {"function": MEAN, "demand": Demand(function="mean")}


@pytest.fixture(params=[{}, {"pooled": True}, {"resources": Cores(4)}], ids=str)
def play(request: pytest.FixtureRequest) -> Play:
    return Play(max_workers=2, **request.param)


def test_calls_of_an_announced_function_wait_for_its_worker(play: Play) -> None:
    play.submit(3, **AT_MEAN)
    assert not play.seen(Launch)
    play.hello(b"a", functions=["median", "mean"])
    assert play.sent(Welcome)
    [define] = play.sent(Define)
    assert (define.codec, define.function) == ("json", b"mean")
    [one] = play.assigned(b"a")
    play.done(one, worker=b"a")


def test_a_worker_of_announced_functions_has_those_calls_alone(play: Play) -> None:
    play.hello(b"a", functions=["mean"])
    play.hello(b"w", pid=8)
    play.submit(1)
    assert not play.assigned(b"a")
    assert play.assigned(b"w")
    play.submit(1, **AT_MEAN)
    assert play.assigned(b"a")
    assert not play.assigned(b"w")


def test_a_worker_of_announced_functions_takes_the_place_of_no_other(play: Play) -> None:
    play.hello(b"a", functions=["mean"])
    play.hello(b"b", pid=9, functions=["mean"])
    play.submit(5, retries=0)
    launches = play.seen(Launch)
    play.later(1)
    assert launches + play.seen(Launch)


def test_an_idle_worker_of_announced_functions_stays(play: Play) -> None:
    play.hello(b"a", functions=["mean"])
    for _ in range(100):
        play.later(1, beats=[b"a"])
        assert not play.sent(Stop)


def test_a_worker_of_announced_functions_may_have_another_version_but_not_protocol(
    play: Play,
) -> None:
    play.hello(b"a", functions=["mean"], version="other", python="")
    assert play.sent(Welcome)
    play.hello(b"b", functions=["mean"], protocol=1)
    assert play.sent(Refuse)


def test_calls_of_one_that_is_lost_wait_for_the_next(play: Play) -> None:
    play.hello(b"a", functions=["mean"])
    play.submit(1, **AT_MEAN)
    assert play.assigned(b"a")
    play.later(1000)
    play.hello(b"b", pid=9, functions=["mean"])
    assert play.assigned(b"b")
