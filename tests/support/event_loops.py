"""asyncio and trio, as far as a test has to tell them apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

LOOPS = ("asyncio", "trio")


def run_in(loop: str, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Run an async function to its end in a loop of this kind."""
    if loop == "trio":
        return pytest.importorskip("trio").run(function, *args)
    return asyncio.run(function(*args))  # type: ignore[arg-type]


async def until(condition: Callable[[], object]) -> None:
    """Wait, and let other tasks run, until something is so."""
    sleep = _sleep()
    while not condition():
        await sleep(0.005)


async def cancelled_once(
    function: Callable[[], Awaitable[Any]], condition: Callable[[], object]
) -> None:
    """Run an async function in a task, cancel that once something is so, and wait for its end."""
    if _sleep() is asyncio.sleep:
        task = asyncio.ensure_future(function())
        await until(condition)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return
    import trio

    async with trio.open_nursery() as nursery:
        nursery.start_soon(function)
        await until(condition)
        nursery.cancel_scope.cancel()


async def all_of(functions: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Run async functions at once, each in a task of its own, and return what they return."""
    results: list[Any] = [None] * len(functions)

    async def note(index: int) -> None:
        results[index] = await functions[index]()

    if _sleep() is asyncio.sleep:
        await asyncio.gather(*map(note, range(len(functions))))
        return results
    import trio

    async with trio.open_nursery() as nursery:
        for index in range(len(functions)):
            nursery.start_soon(note, index)
    return results


def _sleep() -> Callable[[float], Awaitable[Any]]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return trio.sleep
    return asyncio.sleep
