"""Objects that many calls use: handles, names, and large arrays that arguments repeat."""

from __future__ import annotations

import array
import copy
import functools
import gc
import pickle
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.client.functions import FunctionCache, make_function
from gridengine.serialize import pickling, shared_objects
from gridengine.serialize.payload import Payload, size_of
from gridengine.serialize.shared_memory import LARGE, StoredPayload
from gridengine.serialize.shared_objects import (
    RepeatedArrays,
    SharedObject,
    needs_of,
    owned,
    resolving_locally,
    shared_object_of,
)

np = pytest.importorskip("numpy")


class User:
    """What a dispatcher is to shared objects."""

    def __init__(self) -> None:
        self.released: list[bytes] = []

    def release(self, name: bytes) -> None:
        self.released.append(name)


def used(user: User, obj: Any = "object") -> gridengine.Shared[Any]:
    shared = gridengine.share(obj)
    shared_object_of(shared).used_by(user)
    return shared


def arrived(payload: Any) -> Any:
    """Return what a call gets of a payload."""
    with resolving_locally():
        return pickling.load(payload)


# ------------------------------------------------------------------ handles


def test_a_handle_gives_a_copy_of_the_object() -> None:
    array = np.arange(10)
    shared = gridengine.share(array)
    array[:] = 0
    assert shared.get().tolist() == list(range(10))


@pytest.mark.parametrize("items", [3, LARGE])
def test_arrays_small_and_large_cannot_be_written_to(items: int) -> None:
    got = gridengine.share({"array": np.arange(items)}).get()["array"]
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 1


def test_an_array_with_gaps_is_shared_as_others_are() -> None:
    array = np.arange(4 * LARGE).reshape(-1, 2)[:, 1]
    shared = gridengine.share(array)
    assert isinstance(shared_object_of(shared).payload, StoredPayload)
    assert not shared.get().flags.writeable
    assert np.array_equal(shared.get(), array)


def test_a_large_object_lies_in_a_block_whole() -> None:
    payload = shared_object_of(gridengine.share([np.arange(LARGE), "text", np.arange(3)])).payload
    assert isinstance(payload, StoredPayload)
    assert payload.others() == []


def test_a_large_object_without_buffers_lies_in_a_block() -> None:
    shared = gridengine.share(["x" * 100, *range(LARGE)])
    assert isinstance(shared_object_of(shared).payload, StoredPayload)
    assert shared.get()[-1] == LARGE - 1


def test_a_closed_handle_is_an_error_and_shows_it() -> None:
    shared = gridengine.share([1])
    with shared:
        pass
    with pytest.raises(ValueError, match="the shared list has been closed"):
        shared.get()
    with pytest.raises(gridengine.PicklingError, match=r"the argument .* has been closed"):
        pickling.dump_calls([(shared,)])
    assert repr(shared) == "<shared list, closed>"


def test_a_handle_that_is_used_as_its_object_says_to_get_it() -> None:
    shared: Any = gridengine.share([1])
    for use in (lambda: shared[0], lambda: list(shared), lambda: shared.append):
        with pytest.raises((TypeError, AttributeError), match=r"here its get\(\) returns"):
            use()
    assert not hasattr(shared, "__array__")


def test_a_handle_shows_its_size() -> None:
    assert "<shared ndarray, 8," in repr(gridengine.share(np.arange(1000)))


def test_a_copied_handle_is_the_handle() -> None:
    shared = gridengine.share([1])
    assert copy.deepcopy({"a": shared})["a"] is shared
    assert copy.copy(shared) is shared


def test_elsewhere_a_handle_cannot_be_pickled() -> None:
    with pytest.raises(pickle.PicklingError, match="give what its get"):
        pickle.dumps(gridengine.share([1]))


def test_an_unshareable_object_is_named() -> None:
    with pytest.raises(
        gridengine.PicklingError, match=r"the object to be shared, at \['a'\]\[1\] \(a generator\)"
    ):
        gridengine.share({"a": [1, (_ for _ in ())]})


def test_functions_of_this_file_and_arrays_of_objects_can_be_shared() -> None:
    function, _, array = gridengine.share([lambda: 42, memoryview, np.array([{}, None])]).get()
    assert (function(), array.tolist()) == (42, [{}, None])


@pytest.mark.parametrize("length", [1, 100, 100_000])
def test_nobody_can_write_to_the_memory_of_a_small_array(length: int) -> None:
    array, text, empty = gridengine.share(
        [np.arange(length), np.array(["text"]), np.array([], int)]
    ).get()
    assert (array.tolist(), text.tolist(), empty.tolist()) == ([*range(length)], ["text"], [])
    for one in (array, text):
        assert permissions(one.ctypes.data) == "r--p"


def permissions(address: int) -> str:
    """Return what this process may do at an address (proc(5), /proc/pid/maps)."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, allowed, *_ = line.split()
        start, end = (int(one, 16) for one in bounds.split("-"))
        if start <= address < end:
            return allowed
    raise LookupError(address)


# ------------------------------------------------------------------ names


def test_a_payload_lists_its_shared_objects() -> None:
    shared = gridengine.share([1])
    payload = pickling.dump_calls([({"deep": [shared]}, functools.partial(len, shared))])
    assert needs_of(payload) == (shared_object_of(shared),)
    assert sum(map(len, payload)) < 300


def test_a_name_can_be_handed_in_again() -> None:
    shared = gridengine.share([1])
    [call] = pickling.load(pickling.dump_calls([shared]))
    again = pickling.dump_calls([call])
    assert needs_of(again) == (shared_object_of(shared),)
    assert arrived(again) == [[1]]


def test_a_name_that_was_forgotten_is_an_error() -> None:
    payload = pickling.dump_calls([gridengine.share([1])])
    name = needs_of(payload)[0].name
    payload = list(payload)
    gc.collect()
    with pytest.raises(LookupError, match="no longer"):
        shared_objects.find(name)


def test_a_registered_object_is_loaded_once() -> None:
    shared = gridengine.share([1])
    loads: list[int] = []

    def load(*, writable: bool) -> Any:
        loads.append(1)
        return shared_object_of(shared).payload

    shared_objects.register(b"registered", load)
    assert shared_objects.find(b"registered") is shared_objects.find(b"registered")
    shared_objects.unregister(b"registered")
    assert loads == [1]


def test_an_object_sent_to_a_runner_is_read_only() -> None:
    body, *buffers = shared_object_of(gridengine.share(np.arange(3))).payload
    shared_objects.register(b"small", lambda writable: [body, *map(bytearray, buffers)])
    assert not shared_objects.find(b"small").flags.writeable
    shared_objects.unregister(b"small")


def test_a_handle_in_a_result_is_the_object() -> None:
    assert pickling.load_values(pickling.dump_values([gridengine.share([1])])) == ([[1]], True)


def test_a_handle_in_a_shared_object_is_the_object() -> None:
    inner = gridengine.share([1])
    outer = gridengine.share({"inner": inner})
    assert outer.get() == {"inner": [1]}
    assert needs_of(pickling.dump_calls([outer])) == (
        shared_object_of(inner),
        shared_object_of(outer),
    )
    assert shared_object_of(outer).needs == (shared_object_of(inner),)


@pytest.mark.parametrize("more", [(), (np.arange(LARGE),)], ids=["alone", "with an array"])
def test_a_function_lists_its_shared_objects(more: tuple[Any, ...]) -> None:
    shared = gridengine.share([1])
    _, payload = pickling.dump_function(functools.partial(max, shared, *more))
    assert isinstance(payload, StoredPayload) is bool(more)
    assert needs_of(payload) == (shared_object_of(shared),)


def test_a_function_with_a_handle_is_pickled_once_until_that_is_closed() -> None:
    shared = gridengine.share([1])
    cache = FunctionCache(lambda f, _: (make_function(f), 0))
    f = functools.partial(len, shared)
    assert cache.find(f) is cache.find(f)
    shared.close()
    with pytest.raises(gridengine.PicklingError, match="closed"):
        cache.find(f)


# ------------------------------------------------------------------ lifetimes


def test_a_dropped_handle_releases_its_object() -> None:
    user = User()
    shared = used(user)
    name = shared_object_of(shared).name
    assert user.released == []
    del shared
    assert user.released == [name]


def test_each_user_is_called_and_only_once_however_the_handle_ends() -> None:
    users = User(), User()
    shared = gridengine.share([1])
    for user in (*users, *users):
        shared_object_of(shared).used_by(user)
    shared.close()
    shared.close()
    del shared
    assert [len(user.released) for user in users] == [1, 1]


def test_a_user_after_the_last_handle_is_called_at_once() -> None:
    user = User()
    payload = pickling.dump_calls([gridengine.share([1])])
    needs_of(payload)[0].used_by(user)
    assert len(user.released) == 1


def test_a_user_is_not_kept_alive() -> None:
    user = User()
    shared = used(user)
    gone = weakref.ref(user)
    del user
    assert gone() is None
    shared.close()


def test_a_shared_object_keeps_the_objects_in_it() -> None:
    user = User()
    outer = gridengine.share([used(user)])
    assert user.released == []
    outer.close()
    del outer
    assert len(user.released) == 1


def test_nothing_is_left_of_a_closed_object() -> None:
    shared = gridengine.share(np.arange(LARGE))
    shared.get()
    block = weakref.ref(shared_object_of(shared).payload.block)  # type: ignore[attr-defined]
    shared.close()
    assert block() is None


def test_a_payload_keeps_its_shared_objects() -> None:
    shared = gridengine.share([1])
    gone: weakref.ref[SharedObject] = weakref.ref(shared_object_of(shared))
    payload = pickling.dump_calls([shared])
    shared.close()
    assert gone() is not None
    del payload
    assert gone() is None


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


def test_objects_with_buffers_are_shared(repeated: RepeatedArrays) -> None:
    box = Box(array.array("d", [1.5]) * ITEMS)
    payload = [dump(repeated, box) for _ in range(2)][1]
    assert size_of(payload) < 1000
    assert bytes(pickling.load(payload)[0].data) == bytes(box.data)


def test_objects_without_weak_references_travel_each_time(repeated: RepeatedArrays) -> None:
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


def test_the_latest_used_arrays_are_kept(
    repeated: RepeatedArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_objects, "HELD_BYTES", 2 * SIZE)
    arrays = [np.full(ITEMS, number) for number in range(4)]
    names = [needs_of([dump(repeated, values) for _ in range(2)][1])[0].name for values in arrays]
    assert [owned(name) is None for name in names] == [True, True, False, False]
    repeated.clear()
    assert [owned(name) for name in names] == [None] * 4


def test_all_arrays_of_one_call_are_kept_for_the_next(
    repeated: RepeatedArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_objects, "HELD_BYTES", SIZE)
    arrays = [np.full(length * ITEMS, length) for length in (2, 1, 3)]
    payloads = [dump(repeated, arrays) for _ in range(5)]
    assert repeated.stored == 6 * SIZE
    assert len({needs_of(payload) for payload in payloads[1:]}) == 1


def test_the_table_of_arrays_goes_without_the_collector(repeated: RepeatedArrays) -> None:
    values, others = np.ones(ITEMS), RepeatedArrays()
    name = needs_of([dump(others, values) for _ in range(2)][1])[0].name
    del others
    assert owned(name) is None


def test_a_name_that_is_not_known_any_more_is_an_error(repeated: RepeatedArrays) -> None:
    body, _ = dump(repeated, np.ones(ITEMS))
    with pytest.raises(LookupError, match="no longer"):
        pickling.load([body, bytes(16)])


def test_an_inline_call_gets_the_object() -> None:
    with gridengine.share([1, 2]) as shared, gridengine.InlineScheduler() as scheduler:
        assert gridengine.map(sum, [shared], scheduler=scheduler) == [3]
