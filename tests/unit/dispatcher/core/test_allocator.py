"""Calls that ask for resources, played on the core: what is allocated, and released."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from gridengine.dispatcher.core.events import Grant, Launch, Launched, Rebalance
from gridengine.errors import ConfigurationError, TimeoutError
from gridengine.requests import CallsFinished, Submitted, TasksCancelled
from gridengine.resources import ZERO, Capacity, Cores, Memory, Nodes, Ranks, Resource, Token, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import MARGIN_SECONDS, Handle
from gridengine.wire.messages import (
    TIMEOUT,
    VALUES,
    Assign,
    Beat,
    Recall,
    Release,
    Result,
    Results,
    Returned,
    Stop,
)
from tests.support.core_play import CUBE, SQUARE, Play, calls
from tests.support.tasks import make_task

NODE = Cores(4) & Memory(8) & Token("t")


class Shared(Play):
    """A core whose workers hold `NODE`; the worker `w` is there."""

    def __init__(self, resources: Resource = NODE, **policy: Any) -> None:
        super().__init__(resources=resources, slots=(resources.get(Cores) or Cores(1)).N, **policy)
        self.granted: dict[int, Resource] = {}

    def play(self, event: Any) -> Any:
        effects = super().play(event)
        self.granted.update({one.allocation: one.given for one in self.seen(Grant)})
        return effects

    def ask(self, resources: Resource = ZERO, calls: int = 1, **options: Any) -> None:
        self.submit(calls, demand=Demand(resources), **options)

    def here(self, name: bytes = b"w", **hello: Any) -> None:
        self.hello(name, slots=self.core.state.policy.slots, **hello)

    def given(self) -> list[Resource]:
        """What the batches that the last event handed out were given."""
        return [self.granted.get(message.allocation, ZERO) for message in self.sent(Assign)]


def shared(**policy: Any) -> Shared:
    play = Shared(**policy)
    play.ask()
    play.here()
    play.done(play.assigned()[0])
    return play


def test_calls_that_ask_for_nothing_have_as_many_slots_as_there_are_cores() -> None:
    play = Shared()
    play.ask(calls=4)
    play.here()
    assert play.given() == [ZERO] * 4
    assert play.seen(Grant) == []
    for one in play.assigned():
        play.done(one)
    play.ask(Cores(4))
    assert play.given() == [Cores(4, [0, 1, 2, 3])], "they are released for who waits"


def test_requests_that_fit_run_side_by_side_after_their_grants() -> None:
    play = Shared()
    play.here()
    play.ask(Cores(2) & Memory(1), calls=3)
    assert [type(one).__name__ for one in play.effects][:1] == ["Grant"]
    assert play.given() == [Cores(2, [0, 1]) & Memory(1), Cores(2, [2, 3]) & Memory(1)]


def test_an_allocation_is_used_again_without_the_packer_and_released_for_a_waiting_queue() -> None:
    play = shared()
    play.ask(Cores(4), calls=2)
    play.done(play.assigned()[0])
    assert play.seen(Grant) == []
    [last] = play.assigned()
    play.done(last)
    play.ask(calls=4)
    assert len(play.sent(Release)) == 1
    assert play.given() == [ZERO] * 4


def test_a_quick_call_does_not_wait_behind_a_slow_one_while_an_allocation_is_not_used() -> None:
    play = Shared(Cores(2) & Memory(8))
    play.ask()
    play.here()
    play.done(play.assigned()[0], seconds=0.001)
    play.ask(Memory(1))
    play.done(play.assigned()[0], seconds=0.001)
    play.submit(1, function=CUBE)
    play.ask()
    [ahead] = play.assigned()
    play.now += 0.1
    play.play(Rebalance())
    [recall] = play.sent(Recall)
    assert ahead.run in recall.runs
    play.say(Returned([ahead.run]))
    assert len(play.sent(Release)) == 1
    assert [one.task for one in play.assigned()] == [ahead.task]


def test_a_large_request_is_overtaken_for_a_minute_at_most() -> None:
    play = Shared(overtake_seconds=60.0)
    play.here()
    play.ask(Cores(1))
    running = play.assigned()
    play.ask(Cores(4))
    for _ in range(100):
        play.ask(Cores(1))
        running += play.assigned()
        play.now += 1.0
        play.done(running.pop(0))
        if play.given() == [Cores(4, [0, 1, 2, 3])]:
            assert 60 <= play.now - 100.0 <= 70
            return
        running += play.assigned()
    pytest.fail("it never ran")


def test_a_submitted_call_that_no_worker_can_hold_fails() -> None:
    play = shared()
    play.ask(Cores(5))
    assert isinstance(play.seen(CallsFinished)[0].error, ConfigurationError)


class Broken(Capacity):
    """Raises when asked."""

    def can_allocate(self, res: Any) -> bool:
        raise RuntimeError("broken")


def test_a_fault_in_a_users_own_kind_fails_the_calls_that_ask_for_it_and_no_others() -> None:
    play = Shared(NODE & Broken(1))
    play.ask()
    play.ask(Broken(1))
    error = play.seen(CallsFinished)[0].error
    assert isinstance(error, ConfigurationError)
    assert isinstance(error.__cause__, RuntimeError)
    play.here()
    assert len(play.assigned()) == 1


class Sticky(Capacity):
    """Raises when it is to take something back."""

    def deallocate(self, res: Any) -> None:
        raise RuntimeError("stuck")


def test_a_fault_in_giving_back_leaves_the_other_kinds_right() -> None:
    play = Shared(NODE & Sticky(9))
    play.ask(Cores(4) & Sticky(1))
    play.here()
    play.done(play.assigned()[0])
    play.ask(Cores(4))
    assert play.given() == [Cores(4, [0, 1, 2, 3])]


class Upset(Capacity):
    """Raises when it is given."""

    def allocate(self, res: Any) -> Resource:
        raise KeyboardInterrupt


def test_a_worker_that_lacks_the_resources_of_its_launch_fails_the_calls_and_leaves() -> None:
    play = Play(pooled=True)
    for worker in (b"u", b"v"):
        play.submit(1, demand=Demand(Upset(1)))
        play.play(Launched([Handle("7", f"/r/{worker.decode()}.log")], Demand(Upset(1))))
        play.hello(worker, log=f"/r/{worker.decode()}.log")
        error = play.seen(CallsFinished)[0].error
        assert isinstance(error, ConfigurationError)
        assert isinstance(error.__cause__, KeyboardInterrupt)
        assert play.sent(Stop) == [Stop()]
        assert play.sent(Assign) == []


def test_workers_are_asked_for_as_requests_fit_on_them() -> None:
    play = Shared()
    play.ask(Cores(2), calls=5)
    assert play.seen(Launch) == [Launch(3, Demand(NODE), "square")]


def test_a_worker_whose_share_is_done_is_given_nothing_for_its_other_allocations() -> None:
    play = shared(jobs_per_worker=4)
    play.ask(Cores(1), calls=2)
    for one in play.assigned():
        play.done(one)
    play.ask(Cores(1), calls=2)
    assert calls(play.assigned()) == [(3, 0, 1)]
    play.here(b"v", pid=8)
    assert calls(play.assigned(b"v")) == [(3, 1, 2)]


# -------------------------------------------------------------------- a worker for one request


def own(resources: Resource, **options: Any) -> Play:
    play = Play(pooled=True, margin_seconds=MARGIN_SECONDS, **options)
    play.submit(1, demand=Demand(resources))
    play.later(1)
    return play


def test_a_worker_of_its_own_gives_all_it_was_asked_for() -> None:
    play = own(Cores(2) & Memory(1))
    play.hello()
    assert play.seen(Grant) == [Grant(b"w", 1, Cores(2, [0, 1]) & Memory(1), 2)]
    assert play.sent(Assign)[0].allocation == 1


def test_a_worker_for_ranks_gives_cores_without_numbers_which_may_be_on_several_nodes() -> None:
    play = own(Nodes(2) & Cores(4, [0, 1, 2, 3]))
    play.hello()
    assert play.seen(Grant) == [Grant(b"w", 1, Nodes(2) & Cores(4), 4)]


def test_ranks_on_a_shared_worker_get_the_cores_and_memory_of_all() -> None:
    play = Shared()
    play.ask(Ranks(2) & Memory(1))
    play.here()
    assert play.given() == [Ranks(2) & Memory(2) & Cores(2, [0, 1])]
    play.ask(Ranks(3))
    assert play.given() == []


@pytest.mark.parametrize("silent", [False, True])
def test_a_worker_that_may_be_anybodys_is_given_nothing_until_it_is_known_whose_it_is(
    silent: bool,
) -> None:
    play = Play(pooled=True, idle_seconds=1e6)
    for request in (Cores(2), Cores(3)):
        play.submit(1, demand=Demand(request))
    play.hello(log="/r/7.log")
    assert play.assigned() == []
    play.later(10 if silent else 0)
    play.play(Launched([Handle("7", "/r/7.log")], Demand(Cores(3))))
    granted = play.seen(Grant)
    if silent:
        assert play.assigned() == []
        play.say(Beat())
    assert [one.given for one in granted or play.seen(Grant)] == [Cores(3, [0, 1, 2])]
    assert [one.task for one in play.assigned()] == [2]


# -------------------------------------------------------------------- time


@pytest.mark.parametrize("timeout", [None, 30.0, 5.0])
def test_the_shorter_of_two_time_limits_holds_and_is_told(timeout: float | None) -> None:
    play = shared()
    play.ask(WTime(20), timeout=timeout)
    [one] = play.assigned()
    assert one.timeout == min(20, timeout or 20)
    play.crash(one, 0, TIMEOUT)
    error = play.seen(CallsFinished)[0].error
    assert isinstance(error, TimeoutError)
    assert f"its limit of {one.timeout} s" in error.message


@pytest.mark.parametrize(("seconds", "begun"), [(500, False), (50, True)])
def test_a_call_is_not_begun_where_too_little_time_is_left(seconds: float, begun: bool) -> None:
    play = Shared(NODE & WTime(1000))
    play.ask()
    play.here(elapsed=900.0)
    if begun:
        play.done(play.assigned()[0], seconds=1e-3)
    play.ask(WTime(seconds))
    assert bool(play.assigned()) == begun
    play.here(b"v", pid=8)
    assert bool(play.assigned(b"v")) != begun


@pytest.mark.parametrize(
    ("elapsed", "seconds"),
    [
        (500.0, 300.0),
        pytest.param(100.0, 3000.0, id="though the first may take as long as it does"),
    ],
)
def test_a_call_that_may_not_begin_twice_is_not_begun_where_those_before_took_longer(
    elapsed: float, seconds: float
) -> None:
    play = Shared(NODE & WTime(1000))
    play.ask(retries=0)
    play.here(elapsed=elapsed)
    play.now += 300.0
    play.done(play.assigned()[0], seconds=seconds)
    play.ask(retries=0)
    assert play.assigned() == []
    play.here(b"v", pid=8)
    assert len(play.assigned(b"v")) == 1


@pytest.mark.parametrize("how", ["shared", "alike"])
def test_a_call_that_does_not_fit_a_workers_time_leaves_it_to_other_calls(how: str) -> None:
    """The long one may begin once only, and earlier calls took a minute; 40 s are left."""
    shared = {"resources": Cores(2) & Memory(4)} if how == "shared" else {}
    play = Play(max_workers=1, walltime=100.0, **shared)
    play.hello(slots=2)
    play.submit(1, retries=0)
    [first] = play.assigned()
    play.later(50.0, beats=[b"w"])
    play.done(first, seconds=60.0)
    [long] = play.submit(1, retries=0)
    assert play.assigned() == []
    if how == "shared":
        [short] = play.submit(1, retries=2, demand=Demand(Memory(1)))
        assert [one.task for one in play.assigned()] == [short.id]
        return
    play.play(TasksCancelled([long.id], signal.SIGTERM))
    [short] = play.submit(1, retries=2)
    play.later(1.0, beats=[b"w"])
    assert [one.task for one in play.assigned()] == [short.id]


def test_more_time_than_the_scheduler_lets_a_worker_have_is_an_error() -> None:
    play = Play(pooled=True, walltime=100.0)
    play.submit(1, demand=Demand(WTime(99)))
    error = play.seen(CallsFinished)[0].error
    assert isinstance(error, ConfigurationError)
    assert "lets a worker work for 90 s" in error.message


def test_near_its_end_a_worker_gives_its_calls_back_uncharged_and_leaves() -> None:
    play = Shared(NODE & WTime(1000), idle_seconds=1e6)
    play.ask()
    play.here()
    play.done(play.assigned()[0])
    play.later(900, beats=[b"w"])
    play.ask(calls=1, retries=1)
    assert play.assigned()[0].attempt == 1
    for _ in range(10):
        play.later(10, beats=[b"w"])
    assert play.seen(CallsFinished) == []
    play.here(b"v", pid=8)
    assert [one.attempt for one in play.assigned(b"v")] == [1]


def test_a_call_that_outlives_its_worker_is_not_tried_for_ever() -> None:
    play = Shared(NODE & WTime(1000))
    play.ask(retries=9)
    errors = []
    for name in (b"w", b"v", b"u"):
        play.here(name, pid=name[0])
        for _ in range(110):
            play.later(10, beats=[name])
            errors += [one.error for one in play.seen(CallsFinished)]
    assert [type(error) for error in errors] == [TimeoutError]


def test_a_group_is_limited_once_its_times_are_known() -> None:
    play = Shared()
    play.here()
    limits = []
    for seconds in range(11, 20):
        play.ask(WTime(group="fold"))
        [one] = play.assigned()
        limits.append(one.timeout)
        play.done(one, seconds=float(seconds))
    assert limits[:8] == [None] * 8
    assert limits[8] == pytest.approx(14.5 + 5 * 6**0.5)


class Ungiven(Capacity):
    """Raises when it is to be given."""

    def allocate(self, res: Any) -> Resource:
        raise RuntimeError("stuck")


def test_a_worker_is_asked_for_though_a_users_own_kind_raises_when_it_is_given() -> None:
    play = Shared(NODE & Ungiven(1))
    play.ask(Ungiven(1))
    assert [launch.count for launch in play.seen(Launch)] == [1]


def test_calls_behind_one_that_went_to_its_input_are_asked_for_anew() -> None:
    """The second may begin once only, and earlier calls took a minute; 40 s are left at `w`."""
    play = Play(max_workers=2, walltime=100.0, resources=Cores(1) & Memory(4))
    play.hello()
    play.submit(1, function=CUBE, retries=0)
    [slow] = play.assigned()
    play.later(50.0, beats=[b"w"])
    play.done(slow, seconds=60.0)
    play.submit(1, demand=Demand(Memory(1)), retries=2)
    [blocking] = play.assigned(b"w")
    play.hello(b"v", pid=8)
    made = make_task(71, (b"calls",), kept=((0, 71),))
    play.play(Submitted(SQUARE, [made]))
    [making] = play.assigned(b"v")
    play.submit(1, demand=Demand(Memory(1)), retries=2)
    held = Result(making.run, 0, 1, VALUES, 1.0, 0, held=(71, 1 << 20))
    play.say(Results([held]), worker=b"v")
    assert len(play.assigned(b"v")) == 1
    needing = make_task(200, (b"calls",), after=(71,), retries=2)
    play.play(Submitted(CUBE, [needing, make_task(201, (b"calls",), retries=0)]))
    play.done(blocking)
    assert play.assigned() == []
    play.hello(b"u", pid=9)
    assert [one.task for one in play.assigned(b"u")] == [201]
