"""Waiting and subtasks in an event loop, asyncio's or trio's. No thread waits on behalf of a task:
each event loop has a function by which any thread can wake a task.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import CancelledError, Future
from types import CoroutineType
from typing import Any, TypeAlias

from gridengine.call_context.current_call import in_event_loop, in_trio
from gridengine.calls.interface import CallSlot
from gridengine.errors import short_repr


class TaskWaiter(ABC):
    """The waiter of the task that makes it. Any thread may call `release`."""

    @abstractmethod
    def release(self) -> None:
        """Wake the task."""

    @abstractmethod
    async def wait(self, timeout: float | None = None) -> None:
        """Wait until the waiter is released, or for `timeout` seconds. May be called again."""


def task_waiter() -> TaskWaiter:
    """Return a waiter for the present task.

    Raises:
        RuntimeError: no event loop runs here.
    """
    return TrioWaiter() if in_trio() else AsyncioWaiter()


class AsyncioWaiter(TaskWaiter):
    """A task of asyncio that waits."""

    def __init__(self) -> None:
        import asyncio

        self._timeout = asyncio.timeout
        self._loop = asyncio.get_running_loop()
        self._released = asyncio.Event()

    def release(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed, so nobody waits
            self._loop.call_soon_threadsafe(self._released.set)

    async def wait(self, timeout: float | None = None) -> None:
        with contextlib.suppress(TimeoutError):
            async with self._timeout(timeout):
                await self._released.wait()


class TrioWaiter(TaskWaiter):
    """A task of trio that waits."""

    def __init__(self) -> None:
        self._trio: Any = sys.modules["trio"]
        self._token = self._trio.lowlevel.current_trio_token()
        self._released = self._trio.Event()

    def release(self) -> None:
        with contextlib.suppress(self._trio.RunFinishedError):  # trio has ended, so nobody waits
            self._token.run_sync_soon(self._released.set)

    async def wait(self, timeout: float | None = None) -> None:
        with self._trio.move_on_after(math.inf if timeout is None else timeout):
            await self._released.wait()


@contextlib.asynccontextmanager
async def task_without_slot(slot: CallSlot | None) -> AsyncIterator[None]:
    """The same as `WithoutSlot`, in a task. If the task is cancelled meanwhile, it goes on at
    once, without waiting for the slot.
    """
    if slot is None:
        yield
        return
    slot.give_back()
    waiter = task_waiter()
    try:
        yield
    except BaseException:
        slot.take_again(waiter)
        raise
    if slot.take_again(waiter):
        await waiter.wait()
    slot.check()


def cancellation_type() -> type[BaseException]:
    """Return the exception that awaiting a cancelled call raises: asyncio has its own."""
    if in_trio():
        return CancelledError
    import asyncio

    return asyncio.CancelledError


def is_cancellation(error: BaseException | None) -> bool:
    """Return whether this exception is asyncio's cancellation of a task, which is raised once. Trio
    raises its own again at each wait.
    """
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


async def checkpoint() -> None:
    """Let other tasks run, and take a cancellation of this task."""
    if in_trio():
        await sys.modules["trio"].lowlevel.checkpoint()
    else:
        import asyncio

        await asyncio.sleep(0)


async def in_thread(act: Callable[[], object], interrupt: Callable[[], object]) -> None:
    """Run a function that blocks in a thread of its own, and wait for it. If this task is cancelled
    meanwhile, call `interrupt`, which makes the function end soon, and wait for that end.
    """
    waiter, errors = task_waiter(), list[BaseException]()

    def run() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)
        finally:
            waiter.release()

    threading.Thread(target=run, name="gridengine-leaving", daemon=True).start()
    try:
        await waiter.wait()
    except GeneratorExit:  # the coroutine is being closed, and cannot await
        interrupt()
        raise
    except BaseException:
        interrupt()
        shield: Any = sys.modules["trio"].CancelScope if in_trio() else contextlib.nullcontext
        with shield(**{"shield": True} if in_trio() else {}):
            await waiter.wait()
        raise
    for error in errors:
        raise error


AsyncFunction: TypeAlias = Callable[..., Awaitable[Any]]


@contextlib.asynccontextmanager
async def task_group() -> AsyncIterator[Callable[..., object]]:
    """Yield a function that starts a task in a group: it takes an `async def` and its arguments.
    The block ends when all tasks have ended. If one raises an exception, the others are cancelled,
    and an `ExceptionGroup` comes out.
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
                except BaseException:  # the group has ended, and takes no more tasks
                    task.close()
                    raise

            yield start


async def awaited(f: AsyncFunction, *args: Any) -> Any:
    """Return the result of a coroutine function.

    Raises:
        TypeError: `f` is another kind of function.
    """
    made = f(*args)
    if not isinstance(made, Awaitable):
        raise TypeError(
            f"{getattr(f, '__name__', f)} is not an `async def`: it returned {short_repr(made)}, "
            "which cannot be awaited"
        )
    return await made


def check_async(f: object) -> None:
    """Raise a TypeError if `f` is what an `async def` returned, and not the function."""
    if isinstance(f, CoroutineType):
        f.close()
        raise TypeError(
            f"this is a call of {f.__qualname__}: give the `async def` itself, and its arguments "
            "beside it"
        )


def start_task(f: AsyncFunction, *args: Any, **kwargs: Any) -> Future[Any]:
    """Start a task in the loop that runs here; return a future of its outcome. Tasks begin in the
    order in which they were started.

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
        """Cancel the future of a task that the loop's end has ended, or has kept from beginning."""
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
"""asyncio's running tasks, to which asyncio itself has weak references only."""


def _start_in_trio(run: Callable[[], Awaitable[None]], end: Callable[[], None]) -> None:
    """Start a system task, which belongs to no nursery. Trio runs runnable tasks in any order, so
    each task waits until the one that was started before it has begun.
    """
    trio: Any = sys.modules["trio"]
    last, begun = _last_begun(), trio.Event()
    previous = last.get()
    last.set(begun)

    async def begin() -> None:
        try:
            if previous is not None:
                await previous.wait()
            begun.set()
            await run()
        finally:
            end()

    trio.lowlevel.spawn_system_task(begin)


@functools.cache
def _last_begun() -> Any:
    """Return the variable of trio's runs that has the event of the task that was started last."""
    return sys.modules["trio"].lowlevel.RunVar("gridengine_last_begun", None)


async def value_of(future: Future[Any]) -> Any:
    """Wait in a task for the result of a future, and return it.

    Raises:
        CancelledError: the future was cancelled.
        Exception: the exception of the future.
    """
    if hasattr(future, "__await__"):
        return await future
    if not future.done():
        waiter = task_waiter()
        future.add_done_callback(lambda _: waiter.release())
        await waiter.wait()
    return future.result()
