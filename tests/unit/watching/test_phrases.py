"""The phrases that explanations are made of."""

from __future__ import annotations

import pytest

from gridengine.watching.phrases import Explanation, ago, are, ordinal, were, where


def test_an_explanation_says_its_next_step_if_there_is_one() -> None:
    assert str(Explanation("idle", "Nothing runs")) == "Nothing runs."
    assert str(Explanation("full", "It is full", "wait")) == "It is full. Next: wait."


def test_a_cluster_job_is_named_beside_its_host() -> None:
    assert (where("node7", "4711"), where("node7", "")) == ("node7 (cluster job 4711)", "node7")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0.0 s"), (59.94, "59.9 s"), (60, "00:01:00"), (-3.0, "0.0 s")]
)
def test_a_time_is_never_below_zero(seconds: float, words: str) -> None:
    assert ago(seconds) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        *((1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th")),
        *((13, "13th"), (21, "21st"), (22, "22nd"), (101, "101st"), (111, "111th"), (112, "112th")),
    ],
)
def test_a_number_in_a_row_has_its_ending(number: int, words: str) -> None:
    assert ordinal(number) == words


def test_one_is_and_none_or_more_are() -> None:
    assert [(are(count), were(count)) for count in (0, 1, 2)] == [
        ("are", "were"),
        ("is", "was"),
        ("are", "were"),
    ]
