"""Objects that many calls use, shared in this one process: handles, names and what they stand
for.
"""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from typing import Any

import pytest

import gridengine
from gridengine.client.functions import FunctionCache, make_function
from gridengine.serialize import pickling, shared_objects
from gridengine.serialize.argument_snapshot import CallSnapshot, snapshot
from gridengine.serialize.payload import SINGLE
from gridengine.serialize.shared_memory import LARGE, StoredPayload
from gridengine.serialize.shared_objects import (
    SharedObject,
    needs_of,
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
    with pytest.raises(gridengine.PicklingError, match=r"argument 1 .* has been closed"):
        pickling.dump_calls([(shared,)])
    assert repr(shared) == "<shared list, closed>"


def test_a_handle_shows_its_size() -> None:
    assert "<shared ndarray, 8," in repr(gridengine.share(np.arange(1000)))


def test_a_copied_handle_is_the_handle() -> None:
    shared = gridengine.share([1])
    assert copy.deepcopy({"a": shared})["a"] is shared
    assert copy.copy(shared) is shared


def test_elsewhere_a_handle_cannot_be_pickled() -> None:
    with pytest.raises(pickle.PicklingError, match="give what its get"):
        pickle.dumps(gridengine.share([1]))


def test_what_cannot_be_shared_is_named() -> None:
    with pytest.raises(
        gridengine.PicklingError, match=r"the object to be shared, at \['a'\]\[1\] \(a generator\)"
    ):
        gridengine.share({"a": [1, (_ for _ in ())]})


def test_functions_of_this_file_and_arrays_of_objects_can_be_shared() -> None:
    function, _, array = gridengine.share([lambda: 42, memoryview, np.array([{}, None])]).get()
    assert (function(), array.tolist()) == (42, [{}, None])


# ------------------------------------------------------------------ names


def test_a_payload_lists_what_it_needs() -> None:
    shared = gridengine.share([1])
    payload = pickling.dump_calls([({"deep": [shared]}, functools.partial(len, shared))])
    assert needs_of(payload) == (shared_object_of(shared),)
    assert sum(map(len, payload)) < 300


def test_where_calls_were_handed_in_a_name_can_be_handed_in_again() -> None:
    shared = gridengine.share([1])
    [call] = pickling.load(pickling.dump_calls([shared]))
    again = snapshot(call, SINGLE)
    assert isinstance(again, CallSnapshot)
    assert needs_of(again.payload) == (shared_object_of(shared),)
    assert arrived(again.payload) == [[1]]


def test_a_name_that_was_forgotten_is_an_error() -> None:
    payload = pickling.dump_calls([gridengine.share([1])])
    name = needs_of(payload)[0].name
    payload = list(payload)
    gc.collect()
    with pytest.raises(LookupError, match="no longer"):
        shared_objects.find(name)


def test_what_was_registered_is_loaded_once() -> None:
    shared = gridengine.share([1])
    loads: list[int] = []

    def load(*, writable: bool) -> Any:
        loads.append(1)
        return shared_object_of(shared).payload

    shared_objects.register(b"registered", load)
    assert shared_objects.find(b"registered") is shared_objects.find(b"registered")
    shared_objects.unregister(b"registered")
    assert loads == [1]


def test_what_was_sent_to_a_runner_by_itself_cannot_be_written_to() -> None:
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
def test_a_function_lists_what_it_needs(more: tuple[Any, ...]) -> None:
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


def test_a_shared_object_keeps_what_lies_in_it() -> None:
    user = User()
    outer = gridengine.share([used(user)])
    assert user.released == []
    outer.close()
    del outer
    assert len(user.released) == 1


def test_nothing_is_left_of_what_was_closed() -> None:
    shared = gridengine.share(np.arange(LARGE))
    shared.get()
    block = weakref.ref(shared_object_of(shared).payload.block)  # type: ignore[attr-defined]
    shared.close()
    assert block() is None


def test_a_payload_keeps_what_it_needs() -> None:
    shared = gridengine.share([1])
    gone: weakref.ref[SharedObject] = weakref.ref(shared_object_of(shared))
    payload = pickling.dump_calls([shared])
    shared.close()
    assert gone() is not None
    del payload
    assert gone() is None
