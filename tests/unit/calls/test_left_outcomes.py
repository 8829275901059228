"""When a dispatcher is told which outcomes a client has."""

from __future__ import annotations

import math

import pytest

from gridengine.calls.outstanding import MOST_UNTOLD, TELL_SECONDS, TakenOutcomes


def test_outcomes_are_told_of_some_time_after_the_first_of_them_was_seen() -> None:
    taken = TakenOutcomes()
    assert taken.seconds_left(100.0) == math.inf
    taken.add(1, 2)
    assert taken.seconds_left(100.0) == pytest.approx(TELL_SECONDS)
    taken.add(3)
    assert taken.seconds_left(100.0 + TELL_SECONDS) == 0.0
    assert taken.take() == [1, 2, 3]
    assert (taken.take(), taken.seconds_left(200.0)) == ([], math.inf)
    taken.add(4)
    assert taken.seconds_left(200.0) == pytest.approx(TELL_SECONDS)


def test_many_are_told_of_at_once() -> None:
    taken = TakenOutcomes()
    taken.add(*range(MOST_UNTOLD - 1))
    assert not taken.are_many
    taken.add(99)
    assert taken.are_many
