"""What travels by name and what by value, what is copied, and what errors say."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from gridengine.errors import PicklingError
from gridengine.serialize import pickling


class NotBack:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_results_that_are_cut_off_are_an_error() -> None:
    [body] = pickling.dump_values([1, 2])
    with pytest.raises(PicklingError, match="the results cannot be rebuilt here"):
        pickling.load_values([bytes(body)[:-2]])


def test_a_value_that_cannot_be_rebuilt_is_an_error() -> None:
    (value,), complete = pickling.load_values(pickling.dump_values([NotBack()]))
    assert not complete
    assert isinstance(value.error, PicklingError)
    assert "cannot be rebuilt here: ValueError: invalid literal" in str(value.error)
    with pytest.raises(ValueError, match="invalid literal"):
        pickling.load(pickling.dump_calls([NotBack()]))


class OfThisModule(NamedTuple):
    value: int


@pytest.mark.parametrize(
    "values",
    [
        list(range(5)),
        [OfThisModule(1), [OfThisModule(2)], None, "text" * 50_000, OfThisModule(3)],
        [bytes(10), bytearray(b"x" * 3_000_000), {1: 2}, b"y" * 3_000_000, ()],
        [lambda x: x, "a", lambda: 1, "b", "c"],
    ],
)
@pytest.mark.parametrize(("first", "stop"), [(0, 5), (1, 3), (4, 5), (0, 1)])
def test_a_part_of_results_is_as_that_of_their_list(
    values: list[Any], first: int, stop: int
) -> None:
    payload = pickling.dump_values(values)
    found, complete = pickling.load_values(pickling.part_of_values(payload, first, stop))
    assert complete
    wanted = pickling.load_values(payload)[0][first:stop]
    assert [type(one) for one in found] == [type(one) for one in wanted]
    assert [one for one in found if not callable(one)] == [
        one for one in wanted if not callable(one)
    ]


def test_only_the_results_that_cannot_be_rebuilt_fail() -> None:
    payload = pickling.dump_values([0, NotBack(), 2, 3])
    for first in (0, 2):
        part = pickling.part_of_values(payload, first, 4)
        values, complete = pickling.load_values(part)
        assert not complete
        assert [type(one) for one in values] == [int, pickling.Unloadable, int, int][first:]


@pytest.mark.parametrize("length", [1, 100, 1_000_000])
def test_a_read_only_array_arrives_as_it_is_if_its_memory_travels_as_a_buffer(length: int) -> None:
    whole, dates = np.zeros(length), np.zeros(length, "M8[s]")
    strided = np.zeros((length, 4))[:, ::2]
    for one in (whole, dates, strided):
        one.flags.writeable = False
    [arrived] = pickling.load(pickling.dump_calls([(whole, dates, strided)]))
    assert [one.flags.writeable for one in arrived] == [False, True, True]


def test_an_array_that_is_loaded_may_be_written_to() -> None:
    payload = [bytes(one) for one in pickling.dump_values([np.zeros(100_000)])]
    assert len(payload) == 2
    for _ in range(2):
        [array] = pickling.load(payload)
        assert array[0] == 0
        array[0] = 1
