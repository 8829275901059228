"""How many calls travel together."""

from __future__ import annotations

import pytest

from gridengine.client.chunking import (
    GROWTH,
    LARGE_BLOCK,
    SHARES,
    SMALL_BLOCK,
    TINY_BLOCK,
    argument_tuples,
    length_of,
    next_size,
)


def test_a_tiny_block_grows_whatever_the_slots() -> None:
    assert next_size(10, TINY_BLOCK - 1, 10, slots=100) == 10 * GROWTH


@pytest.mark.parametrize(("total", "size"), [(None, 80), (1000, 50), (1, 1)])
def test_a_small_block_grows_as_far_as_leaves_some_for_every_slot(
    total: int | None, size: int
) -> None:
    assert next_size(10, TINY_BLOCK, total, slots=20 // SHARES) == size


def test_a_large_block_shrinks_to_one_call_at_least() -> None:
    assert next_size(10, SMALL_BLOCK, None, slots=1) == 10
    assert next_size(10, LARGE_BLOCK + 1, None, slots=1) == 5
    assert next_size(1, LARGE_BLOCK + 1, None, slots=1) == 1


class Endless:
    def __len__(self) -> int:
        raise TypeError


def test_the_length_is_that_of_the_shortest_when_all_have_one() -> None:
    assert length_of([[1, 2], range(5)]) == 2
    assert length_of([[1, 2], iter([])]) is None
    assert length_of([Endless()]) is None  # type: ignore[list-item]


def test_the_arguments_of_each_call_are_a_tuple() -> None:
    assert [*argument_tuples([(1, 2), [3, 4], iter([5])])] == [(1, 2), (3, 4), (5,)]


def test_an_element_that_is_no_arguments_is_told_with_its_number() -> None:
    calls = argument_tuples([(1,), 7])  # type: ignore[list-item]
    assert next(calls) == (1,)
    with pytest.raises(TypeError, match=r"element 1 of the iterable is 7; .* use map, or \(7,\)"):
        next(calls)


def test_what_an_element_raises_by_itself_is_raised() -> None:
    with pytest.raises(TypeError, match=r"^bad operand"):
        next(argument_tuples([(-text for text in "a")]))  # type: ignore[operator]
