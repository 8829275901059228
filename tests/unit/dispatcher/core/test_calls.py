"""The pace of calls, and which of a task's calls were cancelled."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.calls import OpenTask, Pace, RemoteObject, Submitter, Unwanted
from gridengine.dispatcher.core.tasks import Task
from tests.support.core_play import SQUARE


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
def test_what_a_call_has_taken_already_is_the_least_it_takes(
    known: float | None, learnt: float
) -> None:
    pace = Pace(known)
    pace.exceeded(2.0)
    assert pace.seconds == learnt


def test_of_several_cancellations_of_a_call_the_last_signal_counts() -> None:
    function, pace = RemoteObject(SQUARE, 1), Pace()
    one = OpenTask(Task(1, (b"",), 9), function, 9, Submitter(0, function, pace), pace)
    assert one.cancelled_by(3) == 0
    one.unwanted = Unwanted(0, 9, 15), Unwanted(2, 5, 9), Unwanted(0, 9, 0)
    assert [one.cancelled_by(index) for index in (1, 2, 4, 5)] == [15, 9, 9, 15]
