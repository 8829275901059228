"""Waiting in a task of asyncio or of trio for what other threads do: no thread waits with it.

Each of the two has a function by which any thread may wake a task, and that waits for nothing.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from gridengine.worker.running_loop import in_trio


class TaskWaiter(ABC):
    """What the task that makes it waits with; `release` may be called once, in any thread."""

    _released = False

    @abstractmethod
    def release(self) -> None:
        """End the waiting."""

    @abstractmethod
    async def wait(self, timeout: float | None = None) -> None:
        """Wait until it is released, or `timeout` seconds. May be called again."""

    def _wake(self) -> None:
        """Note, in the loop's thread, that it was released."""
        self._released = True
        self._resume()

    @abstractmethod
    def _resume(self) -> None:
        """Have `wait` return, if the task is in it."""


def task_waiter() -> TaskWaiter:
    """Return what the present task can wait with.

    Raises:
        RuntimeError: there is none: no event loop runs here.
    """
    return TrioWaiter() if in_trio() else AsyncioWaiter()


class AsyncioWaiter(TaskWaiter):
    """A task of asyncio that waits."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] | None = None

    def release(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._wake)

    async def wait(self, timeout: float | None = None) -> None:
        if self._released:
            return
        self._end = self._loop.create_future()
        timer = None if timeout is None else self._loop.call_later(timeout, self._resume)
        try:
            await self._end
        finally:
            if timer is not None:
                timer.cancel()

    def _resume(self) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(None)


class TrioWaiter(TaskWaiter):
    """A task of trio that waits."""

    def __init__(self) -> None:
        self._trio: Any = sys.modules["trio"]
        self._token = self._trio.lowlevel.current_trio_token()
        self._task: Any = None

    def release(self) -> None:
        with contextlib.suppress(self._trio.RunFinishedError):  # nobody waits any more
            self._token.run_sync_soon(self._wake)

    async def wait(self, timeout: float | None = None) -> None:
        if self._released:
            return
        with self._trio.move_on_after(math.inf if timeout is None else timeout):
            self._task = self._trio.lowlevel.current_task()
            await self._trio.lowlevel.wait_task_rescheduled(self._leave)

    def _leave(self, _: object) -> Any:
        self._task = None
        return self._trio.lowlevel.Abort.SUCCEEDED

    def _resume(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            self._trio.lowlevel.reschedule(task)


def cancellation_type() -> type[BaseException]:
    """Return what awaiting a call that was cancelled raises: asyncio has an error of its own."""
    if in_trio():
        return CancelledError
    import asyncio

    return asyncio.CancelledError


def is_cancellation(error: BaseException | None) -> bool:
    """Return whether asyncio cancels a task by this, once; trio does at each wait."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


async def checkpoint() -> None:
    """Let other tasks run, and be cancelled if this one is to be."""
    if in_trio():
        await sys.modules["trio"].lowlevel.checkpoint()
    else:
        import asyncio

        await asyncio.sleep(0)


async def in_thread(act: Callable[[], object], interrupt: Callable[[], object]) -> None:
    """Do something that blocks in a thread of its own, and wait for it. When this task is cancelled
    meanwhile, `interrupt` is to have it end soon, and that is waited for.
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
    except GeneratorExit:  # nothing will go on here
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
