"""The pace of calls, and which of a task's calls were cancelled."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from gridengine.dispatcher.core.calls import (
    CALL_MOVES,
    FEW,
    MOST_LINES,
    MOST_SUBJECTS,
    Broken,
    CoreClient,
    CoreSubmitter,
    OpenTask,
    Pace,
    RemoteObject,
    Span,
    Story,
    Unwanted,
    added,
    without,
)
from gridengine.dispatcher.core.workers_and_queues import NEXT_PHASES
from gridengine.requests import TaskOptions
from gridengine.status.figures import FunctionCounts
from gridengine.wire.messages import Returned
from tests.support.core_play import SQUARE, Play


def test_the_first_duration_counts_whole_and_is_the_mean_of_its_calls() -> None:
    pace = Pace()
    pace.measured(4, 2.0)
    assert pace.seconds == 0.5


@pytest.mark.parametrize(("seconds", "learnt"), [(3.0, 3.0), (0.5, 0.75), (-1.0, 0.5)])
def test_a_longer_duration_counts_at_once_a_shorter_one_bit_by_bit(
    seconds: float, learnt: float
) -> None:
    pace = Pace(1.0)
    pace.measured(1, seconds)
    assert pace.seconds == learnt


@pytest.mark.parametrize(("known", "learnt"), [(None, 2.0), (1.0, 2.0), (5.0, 5.0)])
def test_a_call_takes_at_least_as_long_as_it_has_taken(known: float | None, learnt: float) -> None:
    pace = Pace(known)
    pace.exceeded(2.0)
    assert pace.seconds == learnt


@pytest.mark.parametrize(
    ("seconds", "at_most"),
    [
        (1e-6, 2.0**-10),
        (0.5, 0.5),
        (0.51, 2.0**-0.75),
        (1.0, 1.0),
        (1.5, 2.0**0.75),
        (1e9, 2.0**24),
    ],
)
def test_durations_are_told_apart_by_four_steps_for_each_power_of_two(
    seconds: float, at_most: float
) -> None:
    counts = FunctionCounts()
    counts.note_seconds(seconds, 3, peak_memory=7)
    counts.note_seconds(seconds, 2)
    assert counts.histogram == [(at_most, 5)]
    assert counts.peak_memory == 7


def open_task(number: int = 1) -> OpenTask:
    function, pace = RemoteObject(SQUARE, 1), Pace()
    submitter = CoreSubmitter(0, function, pace, CoreClient(0))
    return OpenTask(number, (b"",), 9, TaskOptions(), 0, function, submitter, pace, 9)


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, 5 * FEW])
def test_few_or_many_stand_in_order_until_each_is_taken_out(count: int) -> None:
    tasks = [open_task(number) for number in range(count)]
    many: Collection[OpenTask] = ()
    for one in tasks:
        many = added(many, one)
    assert list(many) == tasks
    gone = tasks.pop(count // 2)
    for _ in "twice":
        many = without(many, gone)
        assert list(many) == tasks
    assert list(added(many, gone)) == [*tasks, gone]


def test_the_last_signal_of_several_cancellations_counts() -> None:
    one = open_task()
    assert one.cancelled_by(3) == 0
    one.change(unwanted=(Unwanted(0, 9, 15), Unwanted(2, 5, 9), Unwanted(0, 9, 0)))
    assert [one.cancelled_by(index) for index in (1, 2, 4, 5)] == [15, 9, 9, 15]


def test_the_story_of_a_call_and_of_its_worker_can_be_asked_for() -> None:
    play = Play()
    one = play.running()
    play.now += 1
    play.say(Returned([one.run]))
    play.done(*play.assigned())
    story = play.core.state.story
    assert story is not None
    assert story.of(1) == [
        "100.000 Received: calls 0 to 1 are assigned to 77 as run 1",
        "101.000 Received: calls 0 to 1 are waiting again",
        "101.000 Received: calls 0 to 1 are assigned to 77 as run 2",
        "101.000 Received: calls 0 to 1 are settled",
    ]
    assert story.of(b"w") == [
        "100.000 Received: says Hello",
        "101.000 Received: says Returned",
        "101.000 Received: says Results",
    ]


def test_a_move_that_is_no_arrow_is_a_fault() -> None:
    play = Play()
    play.running(2)
    [one] = play.core.state.open_tasks.values()
    story = play.core.state.story
    assert story is not None
    story.move(Span(one, 0, 1, one.options.demand), "missing")
    with pytest.raises(Broken, match="call 0 of task 1 is missing: not missing"):
        story.move(Span(one, 0, 1, one.options.demand), "missing")


def test_the_last_lines_of_the_last_subjects_are_kept() -> None:
    story = Story()
    for subject in (1, 2, *[1] * MOST_LINES, *range(3, MOST_SUBJECTS + 2)):
        story.begin(object(), float(subject))
        story.add(subject, "something")
    assert [len(story.of(subject)) for subject in (1, 2, 3)] == [MOST_LINES, 0, 1]


@pytest.mark.parametrize("table", [CALL_MOVES, NEXT_PHASES])
def test_each_arrow_leads_to_a_state_and_one_state_is_the_last(table: dict[object, set]) -> None:
    assert set().union(*table.values()) <= table.keys()
    assert [state for state, arrows in table.items() if not arrows] == [list(table)[-1]]
