"""Calls that make calls, played on the core."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from gridengine.dispatcher.core.events import Grant, Launch
from gridengine.dispatcher.core.workers_and_queues import Run
from gridengine.errors import Cancelled
from gridengine.requests import CallsFinished, Submitted, Task
from gridengine.resources import Cores, GPUs, Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.wire.messages import (
    CANCELLED,
    Assign,
    Assignment,
    Cancel,
    Goodbye,
    Release,
    Resumed,
    Resumes,
    Returned,
    Waits,
)
from tests.support.core_play import SQUARE, Play, assignment_of
from tests.support.tasks import make_task

RUNNER = 3


def play_with(slots: int = 1, **policy: Any) -> Play:
    play = Play(slots=slots, **policy)
    play.hello(slots=slots)
    return play


def submit(play: Play, count: int = 1, demand: Demand = ANY, **options: Any) -> list[Assignment]:
    """Submit calls inside of none, as one submitter; return what is assigned."""
    for _ in range(count):
        play.submit(demand=demand, submitter=1, **options)
    return play.assigned()


def make(
    play: Play, parent: Assignment, count: int = 1, demand: Demand = ANY, **options: Any
) -> list[Task]:
    """Have a call make calls."""
    tasks = [
        make_task(
            play.last_task + place,
            (b"calls",),
            demand=demand,
            submitter=100 + parent.run,
            **options,
        )
        for place in range(1, count + 1)
    ]
    play.last_task += count
    play.play(Submitted(SQUARE, tasks, parent=parent.run))
    return tasks


def wait(play: Play, one: Assignment, worker: bytes = b"w") -> list[Assignment]:
    play.say(Waits(RUNNER, one.run), worker=worker)
    return play.assigned()


def resume(play: Play, one: Assignment, worker: bytes = b"w") -> list[Resumed]:
    play.say(Resumes(RUNNER, one.run), worker=worker)
    return play.sent(Resumed)


def run_of(play: Play, one: Assignment) -> Run:
    return play.core.state.runs[one.run]


def nested(play: Play, depth: int = 2, **options: Any) -> list[Assignment]:
    """Return calls of which each but the last has made the next, and waits for it."""
    runs = submit(play, **options)
    while len(runs) < depth:
        make(play, runs[-1])
        runs += wait(play, runs[-1])
    return runs


def launched(**policy: Any) -> tuple[Play, Assignment]:
    """Return a core with the one worker that it has launched, and the call that this is at."""
    play = Play(max_workers=1, **policy)
    return play, play.running(submitter=1)


def test_a_call_that_waits_has_its_slot_used_by_its_children() -> None:
    play = play_with()
    [parent] = submit(play)
    [child] = make(play, parent)
    assert play.assigned() == []
    [run] = wait(play, parent)
    assert run.task == child.id
    play.done(run)
    assert resume(play, parent) == [Resumed(RUNNER, parent.run)]
    play.done(parent)
    assert not play.core.state.open_tasks
    assert [worker.batches for worker in play.core.state.workers.values()] == [0]


def test_the_deepest_calls_come_first() -> None:
    play = play_with()
    [parent] = submit(play)
    submit(play, 2)
    [child, _] = make(play, parent, 2)
    [run] = wait(play, parent)
    assert run.task == child.id
    [grandchild] = make(play, run)
    [deepest] = wait(play, run)
    assert deepest.task == grandchild.id
    play.done(deepest)
    [after] = play.assigned()
    assert after.task == child.id + 1


def test_a_call_that_goes_on_comes_before_waiting_ones() -> None:
    play = play_with()
    [parent] = submit(play)
    make(play, parent, 2)
    [child] = wait(play, parent)
    submit(play)
    assert resume(play, parent) == []
    play.done(child)
    assert play.sent(Resumed) == [Resumed(RUNNER, parent.run)]
    assert play.assigned() == []
    play.done(parent)
    assert len(play.assigned()) == 1


def test_a_call_that_goes_on_has_the_slot_of_one_that_begins_to_wait() -> None:
    play = play_with()
    parent, child = nested(play)
    assert resume(play, parent) == []
    make(play, child)
    assert wait(play, child) == []
    assert play.sent(Resumed) == [Resumed(RUNNER, parent.run)]
    play.done(parent)


def test_the_deepest_call_goes_on_first() -> None:
    play = play_with()
    parent, child, grandchild = nested(play, 3)
    assert resume(play, parent) == resume(play, child) == []
    play.done(grandchild)
    assert play.sent(Resumed) == [Resumed(RUNNER, child.run)]
    play.done(child)
    assert play.sent(Resumed) == [Resumed(RUNNER, parent.run)]


@pytest.mark.parametrize("how", ["returns", "crashes", "is lost", "is returned"])
def test_children_end_with_the_run_that_made_them(how: str) -> None:
    play = play_with(slots=2)
    [parent] = submit(play, retries=0)
    running, waiting = make(play, parent, 2)
    assert [one.task for one in play.assigned()] == [running.id]
    if how == "returns":
        play.done(parent)
    elif how == "crashes":
        play.crash(parent, 0)
    elif how == "is returned":
        play.say(Returned([parent.run]))
    else:
        play.say(Goodbye("it ends"))
    ended = {one.task for one in play.seen(CallsFinished) if isinstance(one.error, Cancelled)}
    assert waiting.id in ended
    if how == "is lost":
        assert running.id in ended
        return
    assert play.sent(Cancel) == [Cancel([running.id], signal.SIGTERM)]
    runs = play.core.state.runs.values()
    [child] = [one for one in runs if one.span.open_task.id == running.id]
    play.crash(assignment_of(child), 0, CANCELLED, -15)
    assert running.id not in play.core.state.open_tasks


def test_too_many_calls_that_wait_are_refused_and_keep_their_slots() -> None:
    play = play_with(max_nesting=1)
    _, child = nested(play)
    make(play, child)
    assert wait(play, child) == []
    [answer] = play.sent(Resumed)
    assert "1 call of the worker on node-w may wait" in answer.refused
    assert not run_of(play, child).batch.waiting


def test_a_call_not_known_to_wait_may_go_on() -> None:
    play = play_with()
    [parent] = submit(play)
    assert resume(play, parent) == [Resumed(RUNNER, parent.run)]
    play.say(Resumes(RUNNER, 99))
    assert play.sent(Resumed) == [Resumed(RUNNER, 99)]


def test_a_worker_that_returns_calls_behind_a_waiting_call_is_not_blamed() -> None:
    play = play_with(slots=2)
    [parent] = submit(play)
    [other] = submit(play)
    for _ in range(9):
        wait(play, parent)
        play.say(Returned([other.run]))
        [other] = play.assigned()
        assert resume(play, parent)
    assert b"w" in play.core.state.workers


@pytest.mark.parametrize(
    ("policy", "demand"),
    [
        pytest.param({"pooled": True}, Demand(Cores(2)), id="whose calls all wait"),
        pytest.param({"jobs_per_worker": 1}, ANY, id="that may take no more"),
    ],
)
def test_workers_that_fit_no_waiting_call_do_not_count_against_the_maximum(
    policy: dict[str, Any], demand: Demand
) -> None:
    play, parent = launched(**policy)
    make(play, parent, demand=demand)
    assert play.seen(Launch) == []
    wait(play, parent)
    assert play.seen(Launch) == [Launch(1, demand, "square")]


def test_no_worker_is_asked_for_while_slots_are_kept_for_deeper_calls() -> None:
    play, parent = launched()
    make(play, parent, 3)
    [child] = wait(play, parent)
    [another] = wait(play, child)
    assert wait(play, another) == []
    assert play.core.state.calls_waiting == 1
    assert play.seen(Launch) == []
    assert play.later(0.1, beats=[b"w"]) == []


def test_slots_of_calls_that_wait_are_kept_for_deeper_ones_when_twice_as_many_wait() -> None:
    play, first = launched(pooled=True)
    submit(play, 5)
    one: Assignment | None = first
    parents = []
    while one is not None:
        parents.append(one)
        make(play, one, demand=Demand(Cores(2)))
        one = next(iter(wait(play, one)), None)
    assert len(parents) == 2
    [child] = make(play, parents[1])
    [run] = play.assigned()
    assert run.task == child.id
    play.done(run)
    assert play.assigned() == []
    resume(play, parents[0])
    play.done(parents[0])
    [another] = play.assigned()
    assert another.task not in (parents[0].task, parents[1].task, child.id)


# ------------------------------------------------------------------ requests that share workers


def shared(slots: int = 2, **policy: Any) -> Play:
    held: Resource = Cores(slots) & GPUs(1)
    play = Play(resources=held, slots=slots, **policy)
    play.hello(slots=slots)
    return play


def allocations(play: Play) -> dict[int, Resource]:
    return {one.allocation: one.given for one in play.seen(Grant)}


def test_resources_of_a_waiting_call_go_to_others_and_are_given_again() -> None:
    play = shared()
    [parent] = submit(play, demand=Demand(Cores(2)))
    [first] = allocations(play)
    make(play, parent, demand=Demand(GPUs(1)))
    [child] = wait(play, parent)
    assert play.sent(Release) == [Release([first])]
    assert resume(play, parent) == []
    submit(play, demand=Demand(Cores(1)))
    assert play.assigned() == []
    play.done(child)
    [(again, given)] = allocations(play).items()
    assert given == Cores(2, [0, 1])
    assert play.sent(Resumed) == [Resumed(RUNNER, parent.run, again)]
    assert play.assigned() == []
    play.done(parent)
    assert len(play.sent(Assign)) == 1


def test_a_call_gets_its_own_slot_back_if_no_other_call_has_taken_it() -> None:
    play = shared()
    [parent] = submit(play, demand=Demand(Cores(1)))
    [first] = allocations(play)
    make(play, parent, demand=Demand(Cores(1)))
    [child] = play.assigned()
    wait(play, parent)
    play.done(child)
    assert resume(play, parent) == [Resumed(RUNNER, parent.run, first)]


def test_a_worker_that_was_silent_goes_on_with_the_calls_that_ask_for_their_slots() -> None:
    play = shared(slots=1)
    parent, child = nested(play)
    play.later(7)
    assert resume(play, parent) == []
    play.done(child)
    assert len(play.sent(Resumed)) == 1
    play.done(parent)
    assert len(submit(play, demand=Demand(GPUs(1)))) == 1


def test_room_of_calls_that_wait_is_kept_for_deeper_ones_when_twice_as_many_wait() -> None:
    play = shared(slots=1)
    [one] = submit(play, demand=Demand(Cores(1)))
    submit(play, 5, demand=Demand(Cores(1)))
    parents = []
    while one is not None:
        parents.append(one)
        make(play, one, demand=Demand(GPUs(1)))
        [child] = wait(play, one)
        one = None
        play.done(child)
        if len(parents) < 4 and play.assigned():
            [one] = play.assigned()
    assert len(parents) == 2
    make(play, parents[1], demand=Demand(Cores(1)))
    [run] = play.assigned()
    assert len(play.seen(Grant)) == 1
    play.done(run)
    assert play.assigned() == []


def test_calls_assigned_ahead_do_not_keep_a_worker_from_getting_more() -> None:
    play = shared()
    [one] = submit(play)
    play.done(one, seconds=1e-4)
    [parent] = submit(play, demand=Demand(Cores(1) & GPUs(1)))
    play.submit(5000, submitter=1)
    ahead = play.assigned()
    assert len(ahead) == 2
    wait(play, parent)
    [worker] = play.core.state.workers.values()
    assert sorted(group.slots for group in worker.slot_groups) == [2]
    for each in ahead:
        play.done(each, seconds=1e-4)
    make(play, parent, demand=Demand(GPUs(1)))
    while runs := [one for one in play.core.state.runs.values() if not one.batch.waiting]:
        play.done(assignment_of(runs[0]), seconds=0.01)
    assert play.core.state.calls_waiting == 0
    assert resume(play, parent)
