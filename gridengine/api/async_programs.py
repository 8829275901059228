"""Async programs: `run` runs one, with a scheduler for the calls of its delayed functions. A wait
group holds many calls and subtasks that end together; `exec1` awaits a single call.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Literal, TypeAlias

from gridengine.api.delayed import CURRENT, ProgramTarget, current_program
from gridengine.api.executor import Executor
from gridengine.call_context.current_call import in_event_loop, in_trio
from gridengine.client.loop_tasks import awaited, check_async, task_group, value_of
from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.schedulers.base import SchedulerSpec


class WaitGroup:
    """Calls and subtasks that are waited for together; `open_waitgroup` makes one."""

    def __init__(self, start: Callable[..., object]) -> None:
        self._start = start
        self._count = 0
        self._results: dict[int, Any] = {}
        self._kills: list[Callable[[], object]] = []

    @property
    def results(self) -> list[Any]:
        """The results of calls and subtasks, in the order in which they were submitted and started.

        Raises:
            RuntimeError: some have not ended; the block has to be left first.
        """
        if len(self._results) < self._count:
            raise RuntimeError(
                f"{self._count - len(self._results)} of {self._count} calls and subtasks have not "
                "ended: leave the block of the wait group first"
            )
        return [self._results[place] for place in range(self._count)]

    def submit(self, resources: Resource | None, fn: Callable[..., Any], /, *args: Any) -> None:
        """Call `fn(*args)` on a worker that gives it these resources.

        Raises:
            TypeError: `resources` is not a resource.
            ConfigurationError: no worker can give these resources.
            RuntimeError: the block has been left.
        """
        future, kill = _submitted(resources, fn, args)
        try:
            self.start_subtask(value_of, future)
        except BaseException:  # nobody would wait for it
            kill()
            raise
        self._kills.append(kill)

    def load_cache_or_submit(
        self, resources: Resource | None, fn: Callable[..., Any], /, *args: Any
    ) -> None:
        """Submit the call unless a cache has its result; see `load_cache_or_exec1`."""
        self.start_subtask(load_cache_or_exec1, resources, fn, *args)

    def start_subtask(self, async_fn: Callable[..., Awaitable[Any]], /, *args: Any) -> None:
        """Start `async_fn(*args)` as a task of this event loop.

        Raises:
            TypeError: `async_fn` is a call of an `async def`, not the function itself.
        """
        check_async(async_fn)
        place = self._count
        self._count += 1  # before starting: an eager task may start others at once
        try:
            self._start(self._collect, place, async_fn, args)
        except BaseException:  # the block has been left
            self._count -= 1
            raise

    async def _collect(
        self, place: int, async_fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
    ) -> None:
        self._results[place] = await awaited(async_fn, *args)


@contextlib.asynccontextmanager
async def open_waitgroup() -> AsyncIterator[WaitGroup]:
    """Yield a `WaitGroup`; the block ends when all its calls and subtasks have ended. Groups may be
    nested.

    An exception of the block, a call or a subtask ends the remaining calls and cancels the
    subtasks. It comes out in an `ExceptionGroup`, as with `asyncio.TaskGroup` and in trio.
    """
    group: WaitGroup | None = None
    try:
        async with task_group() as start:
            group = WaitGroup(start)
            yield group
    except BaseException:
        if group is not None:
            for kill in group._kills:
                kill()
        raise


async def exec1(resources: Resource | None, fn: Callable[..., Any], /, *args: Any) -> Any:
    """Call `fn(*args)` on a worker that gives it these resources, and return the result. If the
    task that awaits this is cancelled, the call is ended.

    Raises:
        TypeError: `resources` is not a resource.
        ConfigurationError: no worker can give these resources.
        Exception: the exception of the call.
    """
    future, kill = _submitted(resources, fn, args)
    try:
        return await value_of(future)
    except BaseException:
        kill()
        raise


async def load_cache_or_exec1(
    resources: Resource | None, fn: Callable[..., Any], /, *args: Any
) -> Any:
    """Return the result of `fn.cache_fn(*args)`. If `fn` has no `cache_fn`, or that raises a
    LookupError or a FileNotFoundError, return the result of `fn(*args)`. Both run on workers,
    `cache_fn` with the resources `fn.cache_res`, if there are any.
    """
    cache_fn = getattr(fn, "cache_fn", None)
    if cache_fn is not None:
        with contextlib.suppress(LookupError, FileNotFoundError):
            return await exec1(getattr(fn, "cache_res", None), cache_fn, *args)
    return await exec1(resources, fn, *args)


def _submitted(
    resources: Resource | None, fn: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Future[Any], Callable[[], object]]:
    """Submit a call; return its future, and a function that ends the call if it has not ended."""
    executor = current_program().asking(resources)
    future = executor.submit(fn, *args)
    return future, functools.partial(executor.kill, future)


Main: TypeAlias = Callable[..., Awaitable[Any]]
LoopRunner: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


def run(
    main: Main | Sequence[Main],
    *args: Any,
    scheduler: SchedulerSpec = None,
    backend: Literal["asyncio", "trio"] = "asyncio",
) -> Any:
    """Run a coroutine function in an event loop of its own, and return its result. Within it, calls
    of delayed functions, of `exec1` and of wait groups go to the workers of one scheduler. Calls
    that are left when it has ended are waited for.

    Args:
        main: an `async def`, or several, which run at the same time; the result of several is the
            list of their results, in order.
        args: passed to each.
        scheduler: as for `gridengine.map`.
        backend: the library of the loop. Trio has to be installed.

    Raises:
        TypeError: `main` is a call of an `async def`, not the function itself.
        ConfigurationError: there is no such backend, or it is not installed.
        RuntimeError: a loop of asyncio runs in this thread already.
        Exception: the exception of `main`. Of several, the first that raises cancels the others,
            and its exception comes out in an `ExceptionGroup`, as with `asyncio.TaskGroup` and in
            trio.
    """
    if backend not in ("asyncio", "trio"):
        raise ConfigurationError(
            f"backend must be 'asyncio' or 'trio', not {backend!r}", hint="say backend='asyncio'"
        )
    check_async(main)
    if not (callable(main) or isinstance(main, Iterable)):
        raise TypeError(f"main must be an `async def` or a list of them, not {main!r}")
    run_in_loop = _loop_of(backend)
    with Executor(scheduler=scheduler) as executor:
        token = CURRENT.set(ProgramTarget(executor))
        try:
            if not callable(main):
                main, args = _all_of, (main, *args)
            return run_in_loop(functools.partial(awaited, main, *args))
        finally:
            CURRENT.reset(token)


def _loop_of(backend: str) -> LoopRunner:
    """Return a function that runs a coroutine function in a loop of its own."""
    if backend == "asyncio":
        import asyncio

        if in_event_loop() and not in_trio():
            raise RuntimeError(
                "an event loop runs here already, as in a notebook: await main(...) itself; its "
                "calls go to the process's own scheduler"
            )
        return lambda program: asyncio.run(program())
    try:
        run: LoopRunner = importlib.import_module("trio").run
    except ImportError as error:
        raise ConfigurationError(
            f"backend='trio', and there is no trio here: {error}", hint="pip install trio"
        ) from None
    return run


async def _all_of(mains: Sequence[Main], *args: Any) -> list[Any]:
    async with open_waitgroup() as group:
        for main in mains:
            group.start_subtask(main, *args)
    return group.results
