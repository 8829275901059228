"""Large arrays that are met again among the arguments of calls."""

from __future__ import annotations

import array
import gc
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from gridengine.serialize import pickling, repeated_arrays
from gridengine.serialize.payload import Payload, size_of
from gridengine.serialize.repeated_arrays import RepeatedArrays
from gridengine.serialize.shared_objects import needs_of, owned

np = pytest.importorskip("numpy")

ITEMS = 200_000
SIZE = 8 * ITEMS


@pytest.fixture
def repeated() -> Iterator[RepeatedArrays]:
    """No test needs the collector to let go of anything."""
    gc.collect()
    gc.disable()
    yield RepeatedArrays()
    gc.enable()


def dump(repeated: RepeatedArrays, *calls: Any) -> Payload:
    return pickling.dump_calls(calls, repeated=repeated)


def test_an_array_is_copied_at_first_and_then_shared(repeated: RepeatedArrays) -> None:
    values = np.arange(ITEMS)
    payloads = [dump(repeated, values) for _ in range(9)]
    assert size_of(payloads[0]) > SIZE
    assert all(size_of(payload) < 1000 for payload in payloads[1:])
    assert len({needs_of(payload) for payload in payloads[1:]}) == 1
    assert (repeated.stored, repeated.named) == (SIZE, 8 * SIZE)
    for payload in payloads:
        assert (pickling.load(payload)[0] == values).all()


@pytest.mark.parametrize("order", ["C", "F"])
def test_each_call_may_write_and_no_other_sees_it(repeated: RepeatedArrays, order: Any) -> None:
    values = np.ones((400, 500), order=order)
    payload = [dump(repeated, (values, 1)) for _ in range(2)][1]
    first, second = pickling.load(payload)[0][0], pickling.load(payload)[0][0]
    first[:] = 7
    assert (second == values).all()
    assert pickling.load(payload)[0][0].sum() == 400 * 500


class Box:
    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce__(self) -> Any:
        return Box, (pickle.PickleBuffer(self.data),)


def test_whatever_gives_its_data_as_a_buffer_is_shared(repeated: RepeatedArrays) -> None:
    box = Box(array.array("d", [1.5]) * ITEMS)
    payload = [dump(repeated, box) for _ in range(2)][1]
    assert size_of(payload) < 1000
    assert bytes(pickling.load(payload)[0].data) == bytes(box.data)


def test_what_cannot_be_referred_to_weakly_travels_each_time(repeated: RepeatedArrays) -> None:
    box = Box(bytes(SIZE))
    assert all(size_of(dump(repeated, box)) > SIZE for _ in range(3))


def test_an_array_that_cannot_be_written_to_stays_so(repeated: RepeatedArrays) -> None:
    values = np.ones(ITEMS)
    values.setflags(write=False)
    assert not pickling.load([dump(repeated, values) for _ in range(2)][1])[0].flags.writeable


def test_an_array_that_was_filled_anew_travels_with_each_call_from_then_on(
    repeated: RepeatedArrays,
) -> None:
    values = np.zeros(ITEMS)
    payloads = []
    for number in (0, 0, 1, 1, 2, 0):
        values[-1] = number
        payloads.append(dump(repeated, values))
    values[:] = -1
    assert [pickling.load(one)[0][-1] for one in payloads] == [0, 0, 1, 1, 2, 0]
    assert repeated.stored == SIZE


def test_another_array_in_the_same_place_is_another(repeated: RepeatedArrays) -> None:
    for number in range(5):
        values = np.full(ITEMS, number)
        assert pickling.load(dump(repeated, values))[0][0] == number
        del values
    assert repeated.stored == 0


def test_parts_of_an_array_are_known_by_their_place(repeated: RepeatedArrays) -> None:
    table = np.arange(3 * ITEMS).reshape(3, ITEMS)
    payloads = [dump(repeated, table[row]) for _ in range(3) for row in range(3)]
    assert [pickling.load(one)[0][0] // ITEMS for one in payloads] == [0, 1, 2] * 3
    assert repeated.stored == 3 * SIZE


def test_an_array_is_not_held_and_its_copy_goes_with_it_and_the_calls(
    repeated: RepeatedArrays,
) -> None:
    values = np.zeros(ITEMS)
    payload = [dump(repeated, values) for _ in range(2)][1]
    (shared,) = needs_of(payload)
    name = shared.name
    del values, shared
    assert pickling.load(payload)[0][0] == 0
    del payload
    assert owned(name) is None


def test_of_arrays_beyond_a_limit_the_latest_used_are_kept(
    repeated: RepeatedArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_arrays, "KEPT_BYTES", 2 * SIZE)
    arrays = [np.full(ITEMS, number) for number in range(4)]
    names = [needs_of([dump(repeated, values) for _ in range(2)][1])[0].name for values in arrays]
    assert [owned(name) is None for name in names] == [True, True, False, False]
    repeated.clear()
    assert [owned(name) for name in names] == [None] * 4


def test_all_arrays_of_one_call_are_kept_for_the_next(
    repeated: RepeatedArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_arrays, "KEPT_BYTES", SIZE)
    arrays = [np.full(length * ITEMS, length) for length in (2, 1, 3)]
    payloads = [dump(repeated, arrays) for _ in range(5)]
    assert repeated.stored == 6 * SIZE
    assert len({needs_of(payload) for payload in payloads[1:]}) == 1


def test_what_knows_arrays_goes_without_the_collector(repeated: RepeatedArrays) -> None:
    values, others = np.ones(ITEMS), RepeatedArrays()
    name = needs_of([dump(others, values) for _ in range(2)][1])[0].name
    del others
    assert owned(name) is None


def test_a_name_that_is_not_known_any_more_is_an_error(repeated: RepeatedArrays) -> None:
    body, _ = dump(repeated, np.ones(ITEMS))
    with pytest.raises(LookupError, match="no longer"):
        pickling.load([body, bytes(16)])
