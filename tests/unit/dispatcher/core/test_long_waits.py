"""What waits for jobs that do not end is said, now and then."""

from __future__ import annotations

import itertools

import pytest

from gridengine.dispatcher.core.events import Launched, Warn
from gridengine.requests import ResultData, Supplied
from gridengine.schedulers.launcher import Handle
from tests.support.core_play import Play


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


def test_after_ten_seconds_it_is_said_which_jobs_wait_for_which() -> None:
    play = held_by_jobs("Job-1", "Job-2")
    play.submit(1, watched=True, name="Job-3")
    play.later(0.25)
    play.later(9.5)
    assert warnings(play) == []
    play.later(0.5)
    said = (
        "waiting for a free worker for 10 s: Job-3; these hold all of them (max_workers=2): "
        "Job-1, Job-2"
    )
    assert warnings(play) == [said]


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
    play.later(0.25)
    play.later(9.5)
    assert warnings(play) == []
    play.later(0.5)
    said = (
        "waiting for 10 s for results that no call of this scheduler makes, of other schedulers or "
        "of futures that a script sets itself: Job-1, 1 call"
    )
    assert warnings(play) == [said]
    play.later(9.5)
    assert warnings(play) == []
    play.later(0.5)
    assert len(warnings(play)) == 1
    play.play(Supplied(7, ResultData([b"values"])))
    play.later(100)
    assert warnings(play) == []
