"""The phrases that explanations are made of."""

from __future__ import annotations

import pytest

from gridengine.watching.phrases import (
    Explanation,
    ago,
    are,
    memory_to_ask_for,
    seconds,
    size,
    where,
)


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


def test_the_verb_agrees_with_the_number() -> None:
    assert [are(count) for count in (0, 1, 2)] == ["are", "is", "are"]


GIGABYTE = 2**30


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "-"),
        (0, "0.0 ms"),
        (0.01, "10.0 ms"),
        (0.1, "0.1 s"),
        (48, "48.0 s"),
        (60, "01:00"),
        (3600, "01:00:00"),
        (90000, "1-01:00:00"),
        (-5000.0, "0.0 ms"),
    ],
)
def test_a_time_is_told_in_the_unit_that_fits(value: float | None, words: str) -> None:
    assert seconds(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "-"),
        (0, "-"),
        (1, "1 B"),
        (640 * 1024**2, "640 MB"),
        (1000 * 1024**2, "1.0 GB"),
        (1.2 * GIGABYTE, "1.2 GB"),
        (5000 * GIGABYTE, "5000.0 GB"),
    ],
)
def test_a_size_is_told_in_the_unit_that_fits(value: float | None, words: str) -> None:
    assert size(value) == words


@pytest.mark.parametrize(
    ("used", "words"),
    [
        (0, ""),
        (1, "Memory(0.01)"),
        (GIGABYTE, "Memory(1.2)"),
        (8 * GIGABYTE, "Memory(10)"),
        (100 * GIGABYTE, "Memory(125)"),
        (1000 * GIGABYTE, "Memory(1250)"),
    ],
)
def test_a_little_more_memory_is_suggested_than_was_used(used: int, words: str) -> None:
    assert memory_to_ask_for(used) == words
