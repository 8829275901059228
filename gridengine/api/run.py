"""`run`: a program of coroutine functions whose delayed functions run on a scheduler's workers."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Literal, TypeAlias

from gridengine.api.delayed import CURRENT, Program
from gridengine.api.executor import Executor
from gridengine.api.waitgroup import open_waitgroup
from gridengine.client.loop_tasks import awaited, check_async
from gridengine.errors import ConfigurationError
from gridengine.schedulers.base import SchedulerSpec
from gridengine.worker.call_context import in_event_loop, in_trio

Main: TypeAlias = Callable[..., Awaitable[Any]]
LoopRunner: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


def run(
    main: Main | Sequence[Main],
    *args: Any,
    scheduler: SchedulerSpec = None,
    backend: Literal["asyncio", "trio"] = "asyncio",
) -> Any:
    """Run a coroutine function in an event loop of its own, and return its result. Within it, calls
    of delayed functions, of `exec1` and of wait groups go to the workers of one scheduler. When it
    has ended, remaining calls are waited for.

    Args:
        main: an `async def`; of several, which run at once, the result is the list of their
            results, in order.
        args: passed to each.
        scheduler: as for `gridengine.map`.
        backend: the library of the loop. Trio has to be installed.

    Raises:
        TypeError: `main` is a call of an `async def`, not the function itself.
        ConfigurationError: the backend is another one, or not installed.
        RuntimeError: a loop of asyncio runs in this thread already.
        Exception: what `main` raised. Of several, the first that raises cancels the others, and its
        exception comes out in an `ExceptionGroup`, as with `asyncio.TaskGroup` and in trio.
    """
    if backend not in ("asyncio", "trio"):
        raise ConfigurationError(
            f"backend must be 'asyncio' or 'trio', not {backend!r}", hint="say backend='asyncio'"
        )
    check_async(main)
    if not (callable(main) or isinstance(main, Iterable)):
        raise TypeError(f"main must be an `async def`, which run calls, or a list, not {main!r}")
    run_in_loop = _loop_of(backend)
    with Executor(scheduler=scheduler) as executor:
        token = CURRENT.set(Program(executor))
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
