"""Submissions, closing, draining and the event table of the core, event by event."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gridengine.dispatcher.core.events import (
    Closing,
    Drained,
    DrainHosts,
    Draining,
    Launch,
    Launched,
    Warn,
    Withdraw,
)
from gridengine.errors import Cancelled
from gridengine.requests import CallsFinished, ResultData, Submitted, Supplied
from gridengine.resources import Cores, Memory, Resource
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import Handle
from gridengine.wire.messages import Stop, Waits
from tests.support.core_play import SQUARE, Play
from tests.support.tasks import make_task


@pytest.mark.parametrize(
    ("policy", "counts", "asked"),
    [({}, [1, 1, 1], 3), ({"max_workers": 2}, [1, 1, 1], 2), ({"slots": 4}, [9], 3)],
)
def test_a_submission_asks_for_a_slot_for_each_call_up_to_the_most_workers(
    policy: dict[str, int], counts: list[int], asked: int
) -> None:
    play = Play(**policy)
    play.submit(*counts)
    assert play.effects == [Launch(asked, label="square")]


def test_workers_are_asked_for_once() -> None:
    play = Play()
    play.submit(1)
    play.submit(1)
    assert play.effects == []


def test_workers_for_later_calls_are_asked_for_when_the_first_have_started() -> None:
    play = Play()
    play.submit(1)
    play.submit(1, 1)
    play.play(Launched([Handle("1")]))
    assert play.seen(Launch) == [Launch(2, label="square")]


def test_demand_is_gathered_before_workers_are_asked_for() -> None:
    play = Play(gather_seconds=0.1)
    play.submit(1)
    assert play.effects == []
    play.submit(1)
    assert play.later(0.2) == [Launch(2, label="square")]


def test_a_task_submitted_twice_is_a_fault_and_changes_nothing() -> None:
    play = Play()
    task = make_task(1, (b"calls",))
    play.play(Submitted(SQUARE, [task]))
    with pytest.raises(ValueError, match="twice"):
        play.play(Submitted(SQUARE, [make_task(2, (b"calls",)), task]))
    assert play.core.state.calls_waiting == 1


def test_a_task_without_calls_is_a_fault() -> None:
    with pytest.raises(ValueError, match="no calls"):
        Play().submit(0)


def test_a_submission_of_nothing_leaves_no_function_behind() -> None:
    play = Play()
    play.play(Submitted(SQUARE, []))
    assert not play.core.state.objects


def test_closing_settles_everything_and_stops_everybody() -> None:
    play = Play()
    play.running(5)
    play.play(Launched([Handle("42")]))
    play.play(Closing())
    assert sum(effect.stop - effect.start for effect in play.seen(CallsFinished)) == 5
    assert {type(effect.error) for effect in play.seen(CallsFinished)} == {Cancelled}
    assert play.sent(Stop) == [Stop()]
    assert play.seen(Withdraw) == [Withdraw((Handle("42"),))]


def test_after_closing_nothing_begins_any_more() -> None:
    play = Play()
    one = play.running()
    play.play(Closing())
    assert play.play(Closing()) == []
    assert play.done(one) == []
    play.submit(2)
    assert [type(effect) for effect in play.effects] == [CallsFinished]
    play.hello(b"v", pid=8)
    assert play.sent(Stop) == [Stop()]
    play.play(Launched([Handle("1")]))
    assert play.seen(Withdraw) == [Withdraw((Handle("1"),))]


def test_a_drained_worker_finishes_its_runs_and_begins_none() -> None:
    play = Play()
    play.hello()
    play.submit(1)
    [running] = play.assigned()
    play.play(Draining())
    assert not play.seen(Drained)
    play.submit(1)
    assert not play.assigned()
    play.done(running)
    assert play.seen(Drained)
    assert not play.assigned()
    play.later(1.0, beats=[b"w"])
    assert not play.assigned()
    assert not play.seen(Launch)


def test_the_nested_calls_of_a_running_call_begin() -> None:
    play = Play()
    play.hello()
    play.submit(1)
    [parent] = play.assigned()
    play.play(Draining())
    child = make_task(play.last_task + 1, (b"calls",), submitter=100)
    play.play(Submitted(SQUARE, [child], parent=parent.run))
    play.say(Waits(3, parent.run))
    assert [one.task for one in play.assigned()] == [child.id]


def nested(play: Play, parent: int, **options: Any) -> int:
    """Have a running call make a call; return its task's number."""
    play.last_task += 1
    task = make_task(play.last_task, (b"calls",), submitter=100, **options)
    play.play(Submitted(SQUARE, [task], parent=parent))
    return task.id


@pytest.mark.parametrize("other", [None, Memory(1)])
def test_nested_calls_of_other_resources_begin_while_an_outer_call_is_held(
    other: Resource | None,
) -> None:
    play = Play(resources=Cores(2) & Memory(4), max_workers=1)
    play.hello(slots=2)
    play.submit(1, demand=Demand(Cores(1)))
    [parent] = play.assigned()
    play.play(Draining())
    if other is not None:
        play.submit(1, demand=Demand(other))
    child = nested(play, parent.run, demand=Demand(Memory(1) & Cores(1)))
    assert [one.task for one in play.assigned()] == [child]


def test_an_open_nested_call_lets_no_outer_call_begin() -> None:
    play = Play(max_workers=1)
    play.hello(slots=3)
    play.submit(1)
    [parent] = play.assigned()
    play.play(Draining())
    play.submit(1)
    child = nested(play, parent.run)
    assert [one.task for one in play.assigned()] == [child]
    play.submit(1)
    assert play.assigned() == []


def test_a_worker_that_connects_while_the_dispatcher_drains_is_for_nested_calls() -> None:
    play = Play(max_workers=2)
    play.hello()
    play.submit(1)
    [parent] = play.assigned()
    play.submit(1)
    play.play(Draining())
    play.hello(b"v", pid=8)
    assert play.assigned() == []
    child = nested(play, parent.run)
    assert [one.task for one in play.assigned(b"v")] == [child]


def test_a_worker_is_requested_for_nested_calls_that_no_worker_holds_and_for_no_others() -> None:
    play = Play(pooled=True, max_workers=3)
    play.submit(1, demand=Demand(Cores(1)))
    play.later(1.0)
    play.play(Launched([Handle("7", "/r/7.log")], Demand(Cores(1))))
    play.hello(log="/r/7.log")
    [parent] = play.assigned()
    play.play(Draining())
    play.submit(1, demand=Demand(Cores(3)))
    nested(play, parent.run, demand=Demand(Cores(2)))
    asked = play.seen(Launch)
    for _ in range(3):
        play.later(1.0, beats=[b"w"])
        asked += play.seen(Launch)
    assert [one.demand for one in asked] == [Demand(Cores(2))]


def test_nested_calls_get_a_worker_beside_a_drained_one_whose_calls_wait_for_them() -> None:
    play = Play(max_workers=1)
    play.hello()
    play.submit(1)
    [parent] = play.assigned()
    play.play(DrainHosts({"node-w"}))
    nested(play, parent.run)
    play.say(Waits(3, parent.run))
    asked = play.seen(Launch)
    for _ in range(3):
        play.later(1.0, beats=[b"w"])
        asked += play.seen(Launch)
    assert [one.count for one in asked] == [1]


def held_by_jobs(*names: str) -> Play:
    """Return a play in which jobs of these names hold all there is."""
    play = Play(max_workers=1, slots=len(names), lease_seconds=1e6, beat_seconds=1e6)
    for name in names:
        play.submit(1, watched=True, name=name)
    play.play(Launched([Handle("7")]))
    play.hello(slots=len(names))
    play.later(0.25)
    return play


def warnings(play: Play) -> list[str]:
    return [warning.text for warning in play.seen(Warn)]


def warnings_after_ten_seconds(play: Play) -> list[str]:
    """Return the warnings of the tenth second, before which there must be none."""
    play.later(0.25)
    play.later(9.5)
    assert warnings(play) == []
    play.later(0.5)
    return warnings(play)


def test_after_ten_seconds_it_is_said_which_jobs_wait_for_which() -> None:
    play = held_by_jobs("Job-1", "Job-2")
    play.submit(1, watched=True, name="Job-3")
    said = (
        "waiting for a free worker for 10 s: Job-3; these hold all of them (max_workers=2): "
        "Job-1, Job-2"
    )
    assert warnings_after_ten_seconds(play) == [said]


@pytest.mark.parametrize(
    ("jobs", "counts", "words"),
    [
        (1, [20, 22], ": 42 calls; these hold all of them (max_workers=1): Job-1"),
        (8, [1], "(max_workers=8): Job-1, Job-2, Job-3, Job-4, Job-5, 3 more jobs"),
    ],
)
def test_calls_that_wait_are_counted_and_of_many_jobs_a_few_are_named(
    jobs: int, counts: list[int], words: str
) -> None:
    play = held_by_jobs(*[f"Job-{number}" for number in range(1, jobs + 1)])
    play.submit(*counts)
    play.later(0.25)
    play.later(10)
    assert warnings(play)[0].endswith(words)


def test_a_long_wait_is_said_more_and_more_seldom() -> None:
    play = held_by_jobs("Job-1")
    play.submit(1)
    said = []
    for second in range(1, 100):
        play.later(1)
        said += [second] * len(warnings(play))
    assert len(said) == 4
    assert [after - before for before, after in itertools.pairwise(said)] == [10, 20, 40]


def test_a_later_wait_is_timed_anew() -> None:
    play = held_by_jobs("Job-1", "Job-2")
    [one, _] = list(play.core.state.runs.values())
    play.later(100)
    play.submit(1, watched=True, name="Job-3")
    play.later(9)
    assert warnings(play) == []
    assert one.number in play.core.state.runs


def test_nothing_is_said_of_calls_that_wait_for_calls() -> None:
    play = Play(lease_seconds=1e6, beat_seconds=1e6, max_workers=1)
    play.running(5)
    play.later(1)
    play.later(60)
    assert warnings(play) == []


def test_nothing_is_said_where_workers_are_still_to_come() -> None:
    play = Play(max_workers=2, lease_seconds=1e6, beat_seconds=1e6)
    play.submit(1, watched=True, name="Job-1")
    play.submit(1, watched=True, name="Job-2")
    play.play(Launched([Handle("7"), Handle("8")]))
    play.hello()
    play.later(1)
    play.later(60)
    assert not [text for text in warnings(play) if "free worker" in text]


def test_calls_that_need_results_that_nobody_makes_are_told() -> None:
    play = Play(lease_seconds=1e6, beat_seconds=1e6)
    play.submit(1, after=(7,), kept=((0, 8),))
    play.submit(1, after=(8,), watched=True, name="Job-1")
    said = (
        "waiting for 10 s for results that no call of this scheduler makes, of other schedulers or "
        "of futures that a script sets itself: Job-1, 1 call"
    )
    assert warnings_after_ten_seconds(play) == [said]
    play.later(9.5)
    assert warnings(play) == []
    play.later(0.5)
    assert len(warnings(play)) == 1
    play.play(Supplied(7, ResultData([b"values"])))
    play.later(100)
    assert warnings(play) == []
