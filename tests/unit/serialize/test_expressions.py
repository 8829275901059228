"""Operations as a graph, as instructions, and computed."""

from __future__ import annotations

import operator
import pickle
import sys
import weakref
from typing import Any

import pytest

from gridengine.serialize.expressions import Operation, compute, instructions_of


def value(of: Any) -> Operation:
    return Operation(None, (of,))


def computed(operation: Operation, **more: Any) -> Any:
    return compute(pickle.loads(pickle.dumps(instructions_of(operation))), **more)


def test_arguments_are_operations_or_values_by_place_and_by_name() -> None:
    x = value(3)
    square = Operation(operator.mul, (x, x))
    made = Operation(dict, ([("z", 0)],), {"a": square, "b": 1, "c": x})
    assert computed(made) == {"z": 0, "a": 9, "b": 1, "c": 3}
    assert list(computed(made)) == ["z", "a", "b", "c"]


def test_each_operation_is_computed_once() -> None:
    calls = []

    def note(value: Any) -> Any:
        calls.append(value)
        return value

    x = Operation(note, (value(1),))
    y = Operation(operator.add, (x, x))
    assert compute(instructions_of(Operation(operator.mul, (y, x)))) == 2
    assert calls == [1]


def test_results_from_elsewhere_are_resolved() -> None:
    assert computed(Operation(operator.add, (value("a"), value("b"))), resolve=str.upper) == "AB"


@pytest.mark.parametrize("wide", [False, True])
def test_ten_thousand_operations_need_no_recursion(wide: bool) -> None:
    sum_ = value(0)
    for _ in range(10_000):
        sum_ = Operation(operator.add, (sum_, value(1) if wide else 1))
    assert sys.getrecursionlimit() < 10_000
    assert computed(sum_) == 10_000


def test_a_value_is_let_go_of_when_nothing_needs_it_any_more() -> None:
    class Big:
        pass

    made: list[weakref.ref[Big]] = []
    alive: list[int] = []

    def make(before: Any) -> Big:
        big = Big()
        made.append(weakref.ref(big))
        alive.append(sum(one() is not None for one in made))
        return big

    chain = value(None)
    for _ in range(10):
        chain = Operation(make, (chain,))
    compute(instructions_of(chain))
    assert max(alive) <= 2


def test_an_exception_of_an_operation_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        computed(Operation(operator.truediv, (value(1), 0)))
