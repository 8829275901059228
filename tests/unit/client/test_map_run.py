"""The results of a map, as they come."""

from __future__ import annotations

import pytest

from gridengine.client.map_run import (
    GROWTH,
    LARGE_BLOCK,
    MODEST_BLOCK,
    MOST_UNSENT,
    SHARES,
    SMALL_BLOCK,
    SMALL_SHARES,
    TINY_BLOCK,
    MapResults,
    next_size,
)
from gridengine.client.outcomes import Outcome
from gridengine.errors import Cancelled


@pytest.fixture
def results() -> MapResults:
    made = MapResults()
    made.expect(6)
    return made


def test_results_are_put_in_their_places_whatever_their_order(results: MapResults) -> None:
    results.put(Outcome(3, 6, "def", None))
    assert results.settled_from_start() == 0
    results.put(Outcome(0, 2, "ab", None))
    assert results.settled_from_start() == 2
    results.put(Outcome(2, 3, "c", None))
    assert results.settled_from_start() == 6
    assert results.values == list("abcdef")


def test_the_same_outcome_once_more_changes_nothing(results: MapResults) -> None:
    for _ in range(2):
        results.put(Outcome(0, 2, "ab", None))
        results.put(Outcome(2, 3, (), OSError()))
    assert (results.missing, results.first_error) == (3, 2)


def test_an_error_is_raised_once_all_before_it_have_succeeded(results: MapResults) -> None:
    results.put(Outcome(4, 5, (), OSError("later")))
    results.put(Outcome(2, 3, (), OSError("first")))
    results.raise_first_error()
    results.put(Outcome(0, 2, "ab", None))
    with pytest.raises(OSError, match="first"):
        results.raise_first_error()


def test_more_calls_may_come_after_all_have_ended(results: MapResults) -> None:
    results.put(Outcome(0, 6, "abcdef", None))
    assert results.settled_from_start() == 6
    results.expect(1)
    assert results.settled_from_start() == 6
    results.put(Outcome(6, 7, "g", None))
    assert results.settled_from_start() == 7


def test_an_error_stands_in_its_calls_place(results: MapResults) -> None:
    error = OSError()
    results.put(Outcome(0, 6, "abcdef", None))
    results.put(Outcome(1, 3, (), error))
    assert results.with_errors() == ["a", error, error, "d", "e", "f"]


def test_a_few_of_very_many_unsent_calls_are_told() -> None:
    results = MapResults()
    results.expect(3)
    results.put(Outcome(1, 2, ["b"], None))
    kinds = [Cancelled, str, Cancelled, Cancelled, Cancelled]
    for total, count in ((None, 3), (2, 3), (5, 5)):
        assert [type(one) for one in results.so_far(total)] == kinds[:count]
    assert len(results.so_far(10**9)) == MOST_UNSENT


def test_a_tiny_block_grows_whatever_the_slots() -> None:
    assert next_size(10, TINY_BLOCK - 1, 10, slots=100) == 10 * GROWTH


@pytest.mark.parametrize(
    ("total", "size"),
    [
        (None, 80),
        (1, 1),
        (12 * SHARES, 12),
        (400, 10 * MODEST_BLOCK // TINY_BLOCK),
        (50 * SMALL_SHARES, 50),
        (90 * SMALL_SHARES, 80),
    ],
)
def test_a_small_block_grows_as_far_as_leaves_some_for_every_slot(
    total: int | None, size: int
) -> None:
    assert next_size(10, TINY_BLOCK, total, slots=1) == size


def test_a_large_block_shrinks_to_one_call_at_least() -> None:
    assert next_size(10, SMALL_BLOCK, None, slots=1) == 10
    assert next_size(10, LARGE_BLOCK + 1, None, slots=1) == 5
    assert next_size(1, LARGE_BLOCK + 1, None, slots=1) == 1
