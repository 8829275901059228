"""`gridengine.share`. What handles are and when they go: `serialize/test_shared_objects.py`."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import gridengine
from gridengine.errors import PicklingError
from gridengine.serialize import pickling
from gridengine.serialize.shared_memory import StoredPayload
from gridengine.serialize.shared_objects import resolving_locally, shared_object_of

np = pytest.importorskip("numpy")


def arrived(value: Any) -> Any:
    """Return what a call gets of a value."""
    payload = pickling.dump(value)
    with resolving_locally():
        return pickling.load(payload)


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": (1, 2)}, lambda x: x])
def test_a_call_has_the_object_in_the_handles_place(value: Any) -> None:
    shared = gridengine.share(value)
    found = arrived([shared])[0]
    assert found == value or found(3) == value(3)


def test_all_handles_of_a_call_are_one_object() -> None:
    shared = gridengine.share([1])
    first, second = arrived([shared, shared])
    assert first is second


def test_it_is_copied_when_it_is_shared() -> None:
    values = [1]
    shared = gridengine.share(values)
    values.append(2)
    assert arrived(shared) == [1]


@pytest.mark.parametrize("size", [3, 1_000_000])
@pytest.mark.parametrize("step", [1, 2])
def test_arrays_large_or_small_with_gaps_or_without_cannot_be_written_to(
    size: int, step: int
) -> None:
    array = np.arange(size)[::step]
    shared = gridengine.share({"a": array})
    found = arrived(shared)["a"]
    assert np.array_equal(found, array)
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 5
    assert isinstance(shared_object_of(shared).payload, StoredPayload) is (size > 3)


def test_arrays_of_objects_travel_too() -> None:
    found = arrived(gridengine.share(np.array([{"a": 1}, None, 5], dtype=object)[::2]))
    assert list(found) == [{"a": 1}, 5]


def test_what_is_shared_may_refer_to_what_is() -> None:
    inner = gridengine.share([1])
    assert arrived(gridengine.share({"inner": inner})) == {"inner": [1]}


def test_what_cannot_travel_is_named() -> None:
    broken = SimpleNamespace(inner={"lock": threading.Lock()})
    with pytest.raises(PicklingError, match=r"the object to be shared[\s\S]*lock"):
        gridengine.share(broken)
