"""Objects whose pickles say more than their values: equal ones have the same key."""

from __future__ import annotations

import contextvars
import functools
import ipaddress
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gridengine.journal.call_keys import CallKeys


def key(obj: Any) -> bytes:
    return CallKeys().of_call([obj], 0)


class Slow:
    def __init__(self, size: int) -> None:
        self.size = size

    @functools.cached_property
    def total(self) -> int:
        return self.size * 2


class Jitted:
    """Pickles like a function of numba's: with a random name."""

    _can_compile = True
    signatures: tuple[str, ...] = ()

    def __init__(self, py_func: Callable[..., Any], **options: Any) -> None:
        self.py_func, self.targetoptions = py_func, options
        self.locals: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (os.urandom(8).hex(),)


Jitted.__module__, Jitted.__name__ = "numba.core", "Dispatcher"


def pandas() -> Any:
    return pytest.importorskip("pandas")


def frame(**more: Any) -> Any:
    days = pandas().date_range("2020", periods=3)
    return pandas().DataFrame({"a": [1, 2, 3], "b": [0.5, 1, 2], **more}, index=days)


def added(*columns: str) -> Any:
    """Return a frame of numbers whose columns were added one by one."""
    found = pandas().DataFrame({"x": [1, 2, 3]})
    for one in columns:
        found[one] = [4, 5, 6]
    return found


def sparse(values: Any = (1.0, 2.0, 3.0), kind: str = "csr_matrix") -> Any:
    module = pytest.importorskip("scipy.sparse")
    return getattr(module, kind)((values, ([0, 0, 2], [2, 1, 0])), shape=(3, 3))


def unsorted(indices: Any = (2, 0, 1)) -> Any:
    module = pytest.importorskip("scipy.sparse")
    return module.csr_array(([1.0, 2.0, 3.0], list(indices), [0, 2, 3, 3]), shape=(3, 3))


def tree(points: int = 20) -> Any:
    spatial = pytest.importorskip("scipy.spatial")
    return spatial.KDTree(np.arange(2.0 * points).reshape(points, 2))


READ: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a cached property": (lambda: Slow(3), lambda one: one.total),
    "a network": (
        lambda: ipaddress.ip_network("10.0.0.0/8"),
        lambda one: (one.broadcast_address, one.is_private),
    ),
    "a frame of days": (frame, lambda one: one.loc["2020-01-01"]),
    "a frame whose columns were added": (lambda: added("y", "z"), lambda one: one.copy().sum()),
    "a series": (lambda: frame()["a"], lambda one: one.loc["2020-01-01"]),
    "an index of days": (lambda: frame().index, lambda one: one.get_loc("2020-01-01")),
    "a sparse matrix": (
        sparse,
        lambda one: (one.has_sorted_indices, one.has_canonical_format, one[0, 1]),
    ),
    "a sparse matrix that is put in order": (unsorted, lambda one: one.sum_duplicates()),
    "a sparse matrix of coordinates": (
        lambda: sparse(kind="coo_array"),
        lambda one: (one.tocsr(), setattr(one, "has_canonical_format", True)),
    ),
    "a tree": (tree, lambda one: one.query([0.0, 0.0])),
}


@pytest.mark.parametrize("kind", READ)
def test_an_object_that_is_read_keeps_its_key(kind: str) -> None:
    make, read = READ[kind]
    one = make()
    before = key(one)
    read(one)
    assert key(one) == before == key(make())


OTHERS: dict[str, tuple[Callable[[], Any], ...]] = {
    "cached properties": (lambda: Slow(3), lambda: Slow(4)),
    "context variables": (
        lambda: contextvars.ContextVar("a"),
        lambda: contextvars.ContextVar("b"),
        lambda: contextvars.ContextVar("a", default=1),
    ),
    "frames": (
        frame,
        lambda: frame(a=[1, 2, 4]),
        lambda: frame(a=[1.0, 2, 3]),
        lambda: frame().rename(columns={"a": "c"}),
        lambda: frame().reset_index(),
        lambda: frame().iloc[::-1],
        lambda: frame(b=pandas().Categorical(["x", "y", "x"])),
        lambda: frame(b=["x", "y", "z"]),
    ),
    "frames of numbers": (
        added,
        lambda: added("y"),
        lambda: added("z"),
        lambda: added("y").astype(float),
        lambda: added("y").T,
    ),
    "series": (lambda: frame()["a"], lambda: frame()["b"], lambda: frame()["a"].rename("c")),
    "times": (
        lambda: frame().index,
        lambda: frame().index.tz_localize("UTC"),
        lambda: frame().index.rename("day"),
        lambda: frame().index.to_period("D"),
    ),
    "sparse matrices": (
        sparse,
        lambda: sparse((1.0, 2.0, 4.0)),
        lambda: sparse(kind="csr_array"),
        lambda: sparse(kind="csc_matrix"),
        lambda: sparse(kind="coo_array"),
        lambda: unsorted(),
        lambda: unsorted((2, 0, 2)),
    ),
    "trees": (tree, lambda: tree(21)),
    "functions of numba": (
        lambda: Jitted(lambda x: x + 1),
        lambda: Jitted(lambda x: x + 2),
        lambda: Jitted(lambda x: x + 1, fastmath=True),
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_equal_objects_have_one_key_and_others_have_others(kind: str) -> None:
    keys = [key(make()) for make in OTHERS[kind]]
    assert keys == [key(make()) for make in OTHERS[kind]]
    assert len(set(keys)) == len(keys)


def test_a_view_with_gaps_is_the_array_that_it_shows() -> None:
    view = np.arange(10)[::2]
    assert key(view) == key(view.copy()) != key(view + 1)


def test_a_function_of_numba_has_the_parts_of_the_function_that_it_was_made_of() -> None:
    def scale(x: int) -> int:
        return x * 2

    jitted = Jitted(lambda x: scale(x))
    parts = CallKeys().of_function(lambda x: jitted.py_func(x)).parts
    assert any("scale" in name for name in parts)


def test_an_object_that_its_recipe_does_not_fit_counts_by_its_pickle() -> None:
    class Dispatcher(Jitted):
        py_func = property()  # type: ignore[assignment]

        def __init__(self, size: int) -> None:
            self.size = size

        def __reduce__(self) -> tuple[Any, ...]:
            return str, (f"{self.size}",)

    assert key(Dispatcher(1)) == key(Dispatcher(1)) != key(Dispatcher(2))


@pytest.mark.parametrize(
    "change",
    [
        lambda torch, one: one + 1,
        lambda torch, one: one.double(),
        lambda torch, one: one.reshape(3, 2),
        lambda torch, one: torch.nn.Parameter(one),
        lambda torch, one: one.to_sparse(),
        lambda torch, one: one.t().contiguous().t(),
    ],
)
def test_tensors_count_by_their_kind_and_content(change: Callable[[Any, Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    one = torch.arange(6.0).reshape(2, 3)
    assert key(one) == key(torch.arange(6.0).reshape(2, 3)) != key(change(torch, one))
    assert key(change(torch, one)) == key(change(torch, one.clone()))


def test_a_function_of_numba_keeps_its_key_when_it_is_compiled() -> None:
    numba = pytest.importorskip("numba")
    keys = []
    for shift in (1, 1, 2):
        jitted = numba.njit(lambda x, shift=shift: x + shift)
        keys.append(key(jitted))
        jitted(1)
        assert key(jitted) == keys[-1]
    assert keys[0] == keys[1] != keys[2]
