from __future__ import annotations

import contextvars
from collections.abc import Iterator
from typing import Any

import pytest

import gridengine
from gridengine.call_context import carried_state
from gridengine.call_context.current_call import CARRIED

VARIABLE = contextvars.ContextVar("VARIABLE", default="initial")
LEVEL = [1]


def get() -> int:
    return LEVEL[0]


def set_(value: int) -> None:
    LEVEL[0] = value


async def get_later() -> int:
    return 1


@pytest.fixture(autouse=True)
def nothing_carried() -> Iterator[None]:
    yield
    CARRIED.clear()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((5, set_), "get must be a function without arguments, .* not 5"),
        ((get,), "set must be a function of one argument, .* not None"),
        ((get, "level"), "set must be .* not 'level'"),
        ((get_later, set_), "get must be .* not the coroutine function"),
        ((VARIABLE, set_), r"set: a context variable needs none, .* carry\(variable\)"),
    ],
)
def test_state_that_is_no_pair_nor_variable_is_refused_by_name(
    arguments: tuple[Any, ...], named: str
) -> None:
    with pytest.raises(TypeError, match=named):
        gridengine.carry(*arguments)
    assert CARRIED == []


def test_the_same_again_replaces_the_first() -> None:
    first, second = gridengine.carry(get, set_), gridengine.carry(get, set_)
    gridengine.carry(VARIABLE)
    gridengine.carry(VARIABLE)
    assert len(CARRIED) == 2
    first.close()  # is registered no more, and the second stays
    assert len(CARRIED) == 2
    second.close()
    second.close()
    assert [str(one.carried) for one in CARRIED] == ["VARIABLE"]


def test_a_block_carries_until_its_end() -> None:
    with gridengine.carry(get, set_) as carrying:
        assert len(carried_state.present()) == 1
        assert repr(carrying) == "<carried state of get and set_>"
    assert carried_state.present() == ()
    assert repr(carrying) == "<carried state of get and set_, closed>"


def test_inline_calls_find_the_value_that_set_has_set() -> None:
    seen: list[int] = []
    LEVEL[0] = 3
    with gridengine.InlineScheduler() as scheduler, gridengine.carry(get, seen.append):
        assert gridengine.map(lambda _: 0, [1, 2], scheduler=scheduler) == [0, 0]
    assert {*seen} == {3}


def test_a_set_that_raises_fails_calls_inline() -> None:
    def refuse(value: int) -> None:
        raise ValueError(f"no {value}")

    LEVEL[0] = 4
    with gridengine.InlineScheduler() as scheduler, gridengine.carry(get, refuse):
        errors = gridengine.map(abs, [1, 2], scheduler=scheduler, reraise=False)
    assert list(map(str, errors)) == ["no 4", "no 4"]
    assert "while setting the carried state of get and" in errors[0].__notes__[0]
