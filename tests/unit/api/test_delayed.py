"""Delayed functions and their values, in this process."""

from __future__ import annotations

import copy
import math
import operator
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import gridengine
from gridengine import ConfigurationError, Cores, Memory
from gridengine.api.delayed import Delayed, delayed, delayedval, each
from gridengine.errors import PicklingError
from gridengine.serialize import pickling
from tests.support.fake_dispatcher import FakeScheduler


def add(a: int, b: int = 1) -> int:
    """Add two."""
    return a + b


def test_a_delayed_function_looks_like_its_function() -> None:
    f = delayed(add)
    assert (f.__name__, f.__doc__) == ("add", "Add two.")
    assert "add" in repr(f)


def test_resources_that_are_said_twice() -> None:
    f = delayed(resources=Cores(2))(add)
    g = f @ Memory(1)
    assert g is not f
    with pytest.raises(ConfigurationError, match=r"Cores\(2\) already.*Cores again"):
        _ = f @ Cores(4)
    with pytest.raises(ConfigurationError, match="Memory"):
        _ = g @ Memory(1)
    with pytest.raises(TypeError):
        _ = f @ 3  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"nout": -1}, "nout"),
        ({"retries": "2"}, "retries"),
        ({"resources": 4}, "resources"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_options_are_checked_at_once(options: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ConfigurationError), match=error):
        delayed(**options)


def test_only_functions_are_delayed() -> None:
    with pytest.raises(TypeError, match="delayedval"):
        delayed(3)  # type: ignore[call-overload]


def test_the_function_below_is_had_by_its_name() -> None:
    assert vars(delayed(add))["__wrapped__"] is add


def test_a_delayed_function_is_not_mapped_or_submitted() -> None:
    words = r"submits its calls by itself: write \[f\(x\)"
    with FakeScheduler() as scheduler, gridengine.Executor(scheduler=scheduler) as executor:
        with pytest.raises(TypeError, match=words):
            gridengine.map(delayed(abs), [1], scheduler=scheduler)
        assert str(executor.submit(delayed(abs), 1).exception()).startswith("<delayed <built-in")


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Numbers:
    first: Any
    numbers: list[Any]


@dataclass(frozen=True, slots=True)
class Slotted:
    number: Any


BINARY = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(operator.pow, divmod, operator.lshift, operator.rshift, operator.and_, operator.or_),
    *(operator.xor, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
]
UNARY = [
    *(operator.neg, operator.pos, operator.invert, abs, round, math.floor, math.ceil, math.trunc)
]


@pytest.mark.parametrize("function", BINARY)
def test_operators_of_two(function: Callable[[Any, Any], Any]) -> None:
    expected = function(13, 3)
    for left, right in [(delayedval(13), 3), (13, delayedval(3)), (delayedval(13), delayedval(3))]:
        made = function(left, right)
        assert type(made) is Delayed
        assert made.result() == expected


@pytest.mark.parametrize("function", UNARY)
def test_operators_of_one(function: Callable[[Any], Any]) -> None:
    assert function(delayedval(-7)).result() == function(-7)


def test_matrices_and_numpy_functions() -> None:
    a = np.arange(6.0).reshape(2, 3)
    d: Any = delayedval(a)
    for made, expected in [
        (d @ a.T, a @ a.T),
        (a @ d.T, a @ a.T),
        (np.sin(d), np.sin(a)),
        (np.add(a, d), a + a),
        (a + d, a + a),
        (np.add.reduce(d), np.add.reduce(a)),
        (np.mean(d, axis=0), a.mean(axis=0)),
        (np.concatenate([d, a]), np.concatenate([a, a])),
        (d[0, 1:], a[0, 1:]),
    ]:
        assert type(made) is Delayed
        assert np.array_equal(made.result(), expected)


def test_attributes_methods_calls_and_items() -> None:
    d = delayedval(SimpleNamespace(words=["b", "a"], join="-".join))
    assert d.words[0].upper().result() == "B"
    assert d.join(d.words).result() == "b-a"
    assert d.words[delayedval(1)].result() == "a"
    assert delayedval({"k": [1, 2, 3]})["k"][:2].result() == [1, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda d: [d, 1],
        lambda d: (d, (d, 2)),
        lambda d: {"a": d, "b": [d]},
        lambda d: {d: 1},
        lambda d: {d},
        lambda d: Pair(d, [Pair(1, d)]),
        lambda d: Numbers(d, [d, Numbers(1, [])]),
        lambda d: [Slotted(d), Slotted(2)],
    ],
)
def test_containers_of_delayed_values(make: Callable[[Any], Any]) -> None:
    assert delayedval(make(delayedval(3))).result() == make(3)
    assert each(make(delayedval(3)), 4).result() == [make(3), 4]


def test_a_container_without_such_stays_as_it_is() -> None:
    for value in (Pair(1, [2]), Numbers(1, [2]), Slotted(3)):
        assert delayedval(value).result() is value


def test_dataclasses_may_refer_to_each_other() -> None:
    d, circle = delayedval(3), Numbers(1, [])
    circle.numbers += [circle, d]
    found = each(circle).result()[0]
    assert found.numbers == [circle, 3]
    assert circle.numbers == [circle, d]


def test_setting_an_item_changes_the_delayed_value() -> None:
    original = [1, 2]
    d = delayedval(original, 2)
    before, (first, _) = d * 1, d
    d[0] = delayedval(5)
    assert (d.result(), before.result(), first.result()) == ([5, 2], [1, 2], 1)
    assert original == [1, 2]
    d = delayedval(original, copy_on_setitem=False)
    d[0] = 5
    assert d.result() is original
    assert original == [5, 2]


def test_unpacking_needs_a_length() -> None:
    a, b = delayedval((1, 2), length=2)
    assert (a + b).result() == 3
    with pytest.raises(TypeError, match="nout"):
        a, b = delayedval((1, 2))
    with pytest.raises(TypeError, match="length"):
        len(delayedval((1, 2)))


@pytest.mark.parametrize(
    "use",
    [
        bool,
        int,
        lambda d: operator.delitem(d, 0),
        lambda d: 1 in d,
        lambda d: setattr(d, "x", 1),
        lambda d: delattr(d, "x"),
        lambda d: 1 if d else 2,
        lambda d: 1 < d < 3,
        float,
        complex,
        range,
    ],
)
def test_operations_that_need_the_value_say_so(use: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="not there yet"):
        use(delayedval(2))


def test_hidden_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="__array_interface__ of a value that is not there"):
        _ = delayedval(1).__array_interface__
    assert not hasattr(delayedval(1), "_private")


def test_a_delayed_is_told_apart_and_travels_as_its_value() -> None:
    d = delayedval(1)
    assert len({d, d, delayedval(1)}) == 2
    assert pickle.loads(pickle.dumps([d + 1, d])) == [2, 1]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda d: d, "load(...)"),
        (lambda d: (d + 2) * -d, "(load(...) + 2) * (-load(...))"),
        (lambda d: 2**d, "2 ** load(...)"),
        (lambda d: pow(d, 2, 5), "pow(load(...), 2, 5)"),
        (lambda d: d.rows[3](1, key=d), "load(...).rows[3](1, key=load(...))"),
        (lambda d: np.sin(d), "sin(load(...))"),
        (lambda d: np.concatenate([d, d]), "concatenate([load(...), load(...)])"),
        (lambda d: each(d, (d, "a"), {d}), "[load(...), (load(...), 'a'), {load(...)}]"),
        (lambda d: delayedval({"a": d}), "dict(('a', load(...)))"),
        (lambda d: delayedval(Pair(d, 2)), "Pair(load(...), 2)"),
        (lambda d: delayedval(Numbers(d, [])), "Numbers(first=load(...), ...)"),
        (lambda d: delayedval("abc"), "'abc'"),
        (lambda d: delayedval(Future()) == 1, "a future == 1"),
        (lambda d: d + 1 + 1 + 1 + 1 + 1, "(((... + 1) + 1) + 1) + 1"),
    ],
)
def test_a_delayed_shows_its_expression(
    make: Callable[[Any], Any], text: str, executor: gridengine.Executor
) -> None:
    def load() -> None:
        pass

    future = executor.submit(load)
    assert repr(make(delayedval(future))) == f"<Delayed: {text}>"


def test_the_repr_of_a_delayed_is_short() -> None:
    d = delayedval(["word"] * 1000)
    for _ in range(20):
        d = each(d, d, "words" * 1000)
    assert len(repr(d)) < 130


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy])
def test_a_copy_is_not_there_yet_either(make_copy: Callable[[Any], Any]) -> None:
    outcome = Future[Any]()
    d = delayedval(outcome, length=2)
    first, _ = copied = make_copy(d)
    copied[1] = 5
    outcome.set_result([1, 2])
    assert (d.result(), copied.result(), first.result()) == ([1, 2], [1, 5], 1)


def test_slices_of_delayed_values() -> None:
    d = delayedval("abcdef")
    assert d[delayedval(1) : delayedval(2) * 2].result() == "bcd"
    assert d[:: delayedval(-1)].result() == "fedcba"


def test_long_chains_of_operators() -> None:
    d = delayedval(0)
    for _ in range(100_000):
        d += 1
    assert d.result() == 100_000
    assert pickle.loads(pickle.dumps(d)) == 100_000


def test_resources_of_a_call_that_has_been_made() -> None:
    with pytest.raises(TypeError, match=r"\(f @ Cores\(2\)\)\(...\)"):
        _ = delayedval(1) @ Cores(2)


def test_a_delayed_function_called_by_another_is_an_error_with_a_remedy() -> None:
    with pytest.raises(PicklingError, match=r"try: return its result\(\).*`__wrapped__`"):
        pickling.dump_values([delayedval(threading.Lock())])


def test_a_delayed_returned_by_a_call_is_an_error_with_a_remedy(
    executor: gridengine.Executor,
) -> None:
    d = delayedval(executor.submit(abs, -1)) + 1
    with pytest.raises(PicklingError) as caught:
        pickling.dump_values([{"found": d}], describe=lambda _: "the result of f")
    assert str(caught.value).startswith(
        "the result of f, at ['found'] (a gridengine.api.delayed.Delayed) cannot be pickled: "
        "it stands for calls that were made in this process, and is known here alone\n"
        "  try: return its result(), as in `return f(x).result()`; "
    )


@pytest.mark.parametrize(
    "given",
    [
        [delayedval(1), 2],
        (delayedval(1), 2),
        (delayedval(number) for number in (1, 2)),
        map(delayedval, (1, 2)),
        range(1, 3),
        {1: delayedval(1), 2: 2}.values(),
    ],
)
def test_one_iterable_stands_for_its_items(given: Any) -> None:
    assert each(given).result() == [1, 2]


@pytest.mark.parametrize("given", ["words", {"a": 1}, 5])
def test_one_value_that_is_no_list_is_itself(given: Any) -> None:
    assert each(given).result() == [given]


def test_one_delayed_list_is_one_value() -> None:
    assert each(delayedval([1, 2], 2)).result() == [[1, 2]]


def test_compute_says_to_take_the_result() -> None:
    with pytest.raises(AttributeError, match=r"has no compute\(\): take its result\(\)"):
        delayedval(1).compute()
