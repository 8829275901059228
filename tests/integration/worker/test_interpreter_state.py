"""What calls find of the interpreter of their caller."""

from __future__ import annotations

import contextvars
import decimal
import locale
import socket
import sys
import warnings
from collections.abc import Callable, Iterator

import pytest

import gridengine
from tests.integration.conftest import LOCAL_AND_TCP

pytestmark = LOCAL_AND_TCP


def third(_: int) -> str:
    return str(decimal.Decimal(1) / 3)


def warned(category: type[Warning]) -> str:
    warnings.warn("beware", category, stacklevel=1)
    return "went on"


def deep(calls: int) -> int:
    return 0 if calls == 0 else 1 + deep(calls - 1)


@pytest.mark.promise
def test_calls_have_the_decimal_context_of_their_map(scheduler: gridengine.Scheduler) -> None:
    with decimal.localcontext() as context:
        context.prec = 5
        assert gridengine.map(third, [0], scheduler=scheduler) == ["0.33333"]
    assert gridengine.map(third, [0], scheduler=scheduler) == [third(0)]


@pytest.mark.promise
def test_calls_have_the_warning_filters_of_their_map(scheduler: gridengine.Scheduler) -> None:
    class Ours(UserWarning):
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("error", Ours)
        with pytest.raises(Ours, match="beware"):
            gridengine.map(warned, [Ours], scheduler=scheduler)
        warnings.simplefilter("ignore", Ours)
        assert gridengine.map(warned, [Ours], scheduler=scheduler) == ["went on"]


@pytest.mark.promise
def test_calls_have_the_recursion_limit_of_their_map(
    scheduler: gridengine.Scheduler, request: pytest.FixtureRequest
) -> None:
    limit = sys.getrecursionlimit()
    request.addfinalizer(lambda: sys.setrecursionlimit(limit))
    sys.setrecursionlimit(limit + 2000)
    assert gridengine.map(deep, [limit + 1000], scheduler=scheduler) == [limit + 1000]


VARIABLE = contextvars.ContextVar("VARIABLE", default="initial")


def others() -> tuple[object, ...]:
    return socket.getdefaulttimeout(), locale.setlocale(locale.LC_NUMERIC), VARIABLE.get()


@pytest.mark.promise
def test_other_state_of_the_interpreter_stays_behind(
    scheduler: gridengine.Scheduler, request: pytest.FixtureRequest
) -> None:
    [before] = gridengine.starmap(others, [()], scheduler=scheduler)
    request.addfinalizer(lambda: socket.setdefaulttimeout(None))
    socket.setdefaulttimeout(5)
    VARIABLE.set("changed")
    assert gridengine.starmap(others, [()], scheduler=scheduler) == [before]


@pytest.fixture
def submit(scheduler: gridengine.Scheduler) -> Iterator[Callable[..., object]]:
    with gridengine.Executor(scheduler=scheduler) as executor:
        yield lambda *call: executor.submit(*call).result()


def test_calls_of_an_executor_have_the_decimal_context_of_their_functions_first_submission(
    submit: Callable[..., object],
) -> None:
    with decimal.localcontext() as context:
        context.prec = 4
        assert submit(third, 0) == "0.3333"
    assert submit(third, 1) == "0.3333"
