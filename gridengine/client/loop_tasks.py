"""Tasks of the event loop that runs, asyncio's or trio's: groups of them, and single ones whose
outcome is a future.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from types import CoroutineType
from typing import Any, TypeAlias

from gridengine.client.async_waiting import task_waiter
from gridengine.errors import short_repr
from gridengine.worker.running_loop import in_event_loop, in_trio

AsyncFunction: TypeAlias = Callable[..., Awaitable[Any]]


@contextlib.asynccontextmanager
async def task_group() -> AsyncIterator[Callable[..., object]]:
    """Yield what starts a task in a group: an `async def` and its arguments. The block ends when
    all have; what one raises cancels the others, and comes out in an `ExceptionGroup`.
    """
    if in_trio():
        async with sys.modules["trio"].open_nursery() as nursery:
            yield nursery.start_soon
    else:
        import asyncio

        async with asyncio.TaskGroup() as group:

            def start(f: AsyncFunction, *args: Any) -> object:
                task = awaited(f, *args)
                try:
                    return group.create_task(task)
                except BaseException:  # the block has been left
                    task.close()
                    raise

            yield start


async def awaited(f: AsyncFunction, *args: Any) -> Any:
    """Return what a coroutine function returns.

    Raises:
        TypeError: it is another function.
    """
    made = f(*args)
    if not isinstance(made, Awaitable):
        raise TypeError(
            f"{getattr(f, '__name__', f)} is no `async def`: it returned {short_repr(made)}, which "
            "cannot be awaited"
        )
    return await made


def check_async(f: object) -> None:
    """Raise a TypeError if this is what an `async def` returned, and not the function."""
    if isinstance(f, CoroutineType):
        f.close()
        raise TypeError(
            f"this is a call of {f.__qualname__}: give the `async def` itself, and its arguments "
            "beside it"
        )


def start_task(f: AsyncFunction, *args: Any, **kwargs: Any) -> Future[Any]:
    """Start a task in the loop that runs here; return what becomes of it. Tasks begin in the order
    in which they were started.

    Raises:
        RuntimeError: no event loop runs here.
    """
    future: Future[Any] = Future()

    async def run() -> None:
        try:
            future.set_result(await f(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)

    def end(_: object = None) -> None:
        """Cancel the future of a task that the end of its loop has ended, or not let begin."""
        if not future.done():
            future.cancel()
            future.set_running_or_notify_cancel()

    if not in_event_loop():
        raise RuntimeError(
            f"{getattr(f, '__name__', f)} is an `async def`, and no event loop runs here: call it "
            "in a program that gridengine.run, asyncio or trio runs, or say resources= to have a "
            "worker run it"
        )
    if in_trio():
        _start_in_trio(run, end)
    else:
        import asyncio

        task = asyncio.get_running_loop().create_task(run())
        _TASKS.add(task)
        task.add_done_callback(_TASKS.discard)
        task.add_done_callback(end)
    return future


_TASKS: set[Any] = set()
"""Those of asyncio, which itself refers to them weakly."""


def _start_in_trio(run: Callable[[], Awaitable[None]], end: Callable[[], None]) -> None:
    """Start a system task, which belongs to no nursery. Trio runs those that may run in any order,
    so each waits for that which was started before it to begin.
    """
    trio: Any = sys.modules["trio"]
    previous, begun = _last_begun(trio), trio.Event()
    _last_begun(trio, begun)

    async def begin() -> None:
        try:
            if previous is not None:
                await previous.wait()
            begun.set()
            await run()
        finally:
            end()

    trio.lowlevel.spawn_system_task(begin)


def _last_begun(trio: Any, begun: Any = None) -> Any:
    """Return, or set, the event of the task that was started last in this run of trio."""
    global _RUN_VARIABLE
    if _RUN_VARIABLE is None:
        _RUN_VARIABLE = trio.lowlevel.RunVar("gridengine_last_begun", None)
    return _RUN_VARIABLE.get() if begun is None else _RUN_VARIABLE.set(begun)


_RUN_VARIABLE: Any = None


async def value_of(future: Future[Any]) -> Any:
    """Return the result of a future, waiting for it in a task.

    Raises:
        CancelledError: it was cancelled.
        Exception: that of the future.
    """
    if hasattr(future, "__await__"):
        return await future
    if not future.done():
        waiter = task_waiter()
        future.add_done_callback(lambda _: waiter.release())
        await waiter.wait()
    return future.result()
