from __future__ import annotations

import contextvars
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import gridengine
from gridengine.call_context import carried_state
from gridengine.call_context.carried_state import (
    Pair,
    Registration,
    Variable,
    present,
    present_numpy,
)
from gridengine.call_context.current_call import CARRIED, GVAR

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE")
LEVEL = [1]


def get() -> int:
    return LEVEL[0]


def set_(value: int) -> None:
    LEVEL[0] = value


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    errors, printing = numpy.geterr(), numpy.get_printoptions()
    yield
    carried_state.restore(())
    GVAR.pairs_set.clear()
    numpy.seterr(**errors)  # type: ignore[arg-type]
    numpy.seterrcall(None)
    numpy.set_printoptions(**printing)


# ---------------------------------------------------------------- what is registered


def test_a_variable_without_a_value_of_its_own_does_not_travel() -> None:
    CARRIED.append(Registration(Variable(VARIABLE)))
    assert present() == ()
    token = VARIABLE.set("mine")
    assert len(present()) == 1
    VARIABLE.reset(token)


def test_a_variable_that_the_next_caller_does_not_carry_has_no_value() -> None:
    CARRIED.append(Registration(Variable(VARIABLE)))
    values = []
    for value in ("first", "second"):
        token = VARIABLE.set(value)
        values.append(present())
        VARIABLE.reset(token)
    for state in (*values, values[0]):
        carried_state.restore(state)
    assert VARIABLE.get() == "first"
    carried_state.restore(())
    assert VARIABLE.get(None) is None
    carried_state.restore(values[1])
    assert VARIABLE.get() == "second"


def test_a_pair_sets_the_value_that_it_had_and_calls_carry_it_on() -> None:
    CARRIED.append(Registration(Pair(get, set_)))
    state = present()
    LEVEL[0] = 2
    carried_state.restore(state)
    assert LEVEL == [1]
    assert present() == state
    assert len(GVAR.pairs_set) == 1


@pytest.mark.parametrize("act", ["taking", "setting"])
def test_an_error_of_a_pair_names_the_state(act: str) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no")

    one = Pair(refuse, set_) if act == "taking" else Pair(get, refuse)
    CARRIED.append(Registration(one))
    with pytest.raises(ValueError, match="no") as caught:
        carried_state.restore(present())
    assert caught.value.__notes__ == [f"while {act} the carried state of {one}"]


def test_a_value_that_cannot_travel_says_which_state_it_was() -> None:
    for value in (lambda: Iterator, lambda: iter([open])):
        CARRIED[:] = [Registration(Pair(value, set_))]
        present()
    CARRIED[:] = [Registration(Pair(lambda: gridengine.share([1]), set_))]
    with pytest.raises(gridengine.PicklingError, match="no handle of gridengine") as caught:
        present()
    assert "while taking the carried state of" in caught.value.__notes__[0]


# ---------------------------------------------------------------- NumPy


def test_numpy_s_defaults_do_not_travel() -> None:
    assert present_numpy() == ()


def state_of_numpy() -> dict[str, Any]:
    return {**numpy.geterr(), **numpy.get_printoptions(), "call": numpy.geterrcall()}


@pytest.mark.parametrize("handler", [None, print])
def test_changed_numpy_options_are_set_and_set_back(handler: Any) -> None:
    default = state_of_numpy()
    numpy.seterr(all="call" if handler else "raise")
    numpy.seterrcall(handler)
    numpy.set_printoptions(precision=3, formatter={"float": "{:.1f}".format})
    wanted, state = state_of_numpy(), present_numpy()
    numpy.seterr(**carried_state.ERRORS)  # type: ignore[arg-type]
    numpy.seterrcall(None)
    numpy.set_printoptions(**carried_state.PRINTING)
    assert state_of_numpy() == default
    carried_state.restore(state)
    assert numpy.geterr() == {name: wanted[name] for name in carried_state.ERRORS}
    assert numpy.geterrcall() is handler
    assert str(numpy.array([1 / 3])) == "[0.3]"
    carried_state.restore(())
    assert state_of_numpy() == default


def test_a_formatter_that_cannot_travel_is_left_out() -> None:
    generator = (one for one in "ab")
    numpy.set_printoptions(precision=3, formatter={"float": lambda value: next(generator)})
    state = present_numpy()
    numpy.set_printoptions(**carried_state.PRINTING)
    carried_state.restore(state)
    assert str(numpy.array([1 / 3])) == "[0.333]"
