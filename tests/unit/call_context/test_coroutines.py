"""Coroutine functions are told from others, and return when they are called."""

from __future__ import annotations

import asyncio
import functools
import pickle
import types
import xmlrpc.client
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import gridengine
from gridengine.call_context.coroutines import (
    ASYNCIO,
    TRIO,
    Synchronous,
    finished,
    library_of,
    synchronous,
)


async def double(x: int, *, more: int = 0) -> int:
    await asyncio.sleep(0)
    return 2 * x + more


async def yielding(x: int) -> AsyncIterator[int]:
    yield x


class Doubler:
    async def __call__(self, x: int) -> int:
        return await double(x)

    async def method(self, x: int) -> int:
        return await double(x)

    @staticmethod
    async def static(x: int) -> int:
        return await double(x)


class Yielding:
    async def __call__(self, x: int) -> AsyncIterator[int]:
        yield x


def decorated(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def call(x: int) -> Any:
        return f(x)

    return call


@functools.wraps(yielding)
def collected(x: int) -> list[int]:
    async def collect() -> list[int]:
        return [one async for one in yielding(x)]

    return asyncio.run(collect())


@functools.wraps(double)
def blocking(x: int) -> int:
    return asyncio.run(double(x))


@pytest.mark.parametrize(
    "f",
    [
        double,
        Doubler(),
        Doubler().method,
        Doubler.static,
        functools.partial(double, more=0),
        functools.partial(functools.partial(Doubler())),
        gridengine.partial(double, more=0),
        decorated(double),
        functools.lru_cache(double),
        blocking,
    ],
)
def test_a_coroutine_function_of_any_kind_returns_its_result(f: Callable[..., Any]) -> None:
    assert isinstance(synchronous(f), Synchronous)
    assert synchronous(f)(4) == 8


@pytest.mark.parametrize(
    "f", [abs, len, int, Doubler, xmlrpc.client.ServerProxy("http://nowhere").f, print, collected]
)
def test_other_functions_stay_as_they_are(f: Callable[..., Any]) -> None:
    assert synchronous(f) is f


@pytest.mark.parametrize("f", [yielding, Yielding(), functools.partial(yielding, 1)])
def test_an_async_generator_function_is_refused_with_a_remedy(f: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"is an async generator function, .* returns a list"):
        synchronous(f)


def test_a_wrapped_coroutine_function_has_its_names_and_travels() -> None:
    made = synchronous(double)
    assert made.__qualname__ == made.__name__ == "double"
    assert pickle.loads(pickle.dumps(made))(1, more=3) == 5


def test_a_plain_value_is_finished() -> None:
    assert finished(3) == 3
    assert finished(double(3)) == 6


@pytest.mark.parametrize(
    ("home", "library"),
    [("trio", TRIO), ("trio.lowlevel", TRIO), ("triolet", ASYNCIO), ("asyncio.tasks", ASYNCIO)],
)
def test_the_library_of_a_coroutine_is_that_of_a_module_of_it_that_the_code_names(
    home: str, library: str
) -> None:
    names: dict[str, Any] = {"part": types.ModuleType(home)}
    exec("async def f():\n    await part.checkpoint()", names)
    assert library_of(names["f"]) == library
