"""The asyncio event loop in which calls of coroutine functions run, one after the other.

A runner keeps its loop from one call to the next. So objects bound to the loop, such as the
connections of a client that a module holds, serve all calls; a new loop for each call would also
take ten times as long. Everything that a call leaves behind ends with the call, as with
`asyncio.run`: tasks are cancelled, async generators closed, threads of `asyncio.to_thread` waited
for.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import importlib
import os
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Collection, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

from gridengine.call_context.current_call import GVAR, in_event_loop

Outcome: TypeAlias = list[tuple[Any, BaseException | None]]
"""The result or the exception of a coroutine. It is a list so that `_settle` can empty it: a
traceback keeps the frames of the event loop alive, and they must not keep the error.
"""


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end and return its result, in a copy of the present context.

    If an event loop runs already in this thread, as around a call made in the caller's own process,
    another thread runs the coroutine, because a thread has at most one loop. The caller waits all
    the same.
    """
    outcome: Outcome = []
    _run(_complete(coroutine, outcome))
    return _settle(outcome)


def run_in_trio(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a loop of trio. Each call has a loop of its own; trio itself ends
    everything that the call leaves behind.
    """
    outcome: Outcome = []
    trio = importlib.import_module("trio")
    if in_event_loop():
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as thread:
            thread.submit(context.run, trio.run, _note, coroutine, outcome).result()
    else:
        trio.run(_note, coroutine, outcome)
    return _settle(outcome)


def _settle(outcome: Outcome) -> Any:
    """Return the value of an outcome, or raise its error."""
    value, error = outcome.pop()
    if error is None:
        return value
    try:
        raise error
    finally:
        del error  # break the cycle between the error and the traceback's frame


async def _note(coroutine: Coroutine[Any, Any, Any], outcome: Outcome) -> None:
    try:
        outcome.append((await coroutine, None))
    except Exception as error:
        outcome.append((None, error))


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    if in_event_loop():
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as thread:
            thread.submit(context.run, _run_apart, coroutine).result()
    elif not GVAR.in_runner or threading.current_thread() is not threading.main_thread():
        _run_apart(coroutine)
    else:
        _process_loop(os.getpid()).run(coroutine)


def _run_apart(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner() as runner:
        runner.run(coroutine, context=contextvars.copy_context())


@functools.lru_cache(maxsize=1)
def _process_loop(process: int) -> CallLoop:
    """Return the loop of this process. The process id is part of the cache's key, so that a forked
    process does not get its parent's loop.
    """
    return CallLoop()


class CallLoop:
    """An event loop for calls that run one after the other."""

    def __init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self._runner = asyncio.Runner()
        self._use_threads()

    def _use_threads(self) -> None:
        self._threads = Threads()
        self._runner.get_loop().set_default_executor(self._threads)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end. By then it must have ended all tasks and generators that it
        started, as `_complete` does.
        """
        loop = self._runner.get_loop()
        try:
            # Not `asyncio.Runner.run`: it sets signal handlers, which takes ten times as long.
            loop.run_until_complete(loop.create_task(coroutine, context=contextvars.copy_context()))
        except BaseException:  # the loop may be in any state, as after `sys.exit` in a task
            try:
                self._runner.close()
            finally:
                self._open()
            raise
        if self._threads.used:
            self._threads.shutdown()
            self._use_threads()


class Threads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`. Idle threads would keep a runner from ending."""

    used = False

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.used = True
        return super().submit(*args, **kwargs)


async def _complete(coroutine: Coroutine[Any, Any, Any], outcome: Outcome) -> None:
    """Record a coroutine's result or exception, without frames of asyncio in its traceback, and end
    everything that it leaves behind.
    """
    generators: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()
    begin, _ = sys.get_asyncgen_hooks()
    iterates = False

    def note(generator: AsyncGenerator[Any, Any]) -> None:
        nonlocal iterates
        iterates = True
        generators.add(generator)
        if begin is not None:
            begin(generator)

    sys.set_asyncgen_hooks(firstiter=note)  # until the loop stops
    try:
        outcome.append((await coroutine, None))
    except asyncio.CancelledError:
        raise  # asyncio delivers Ctrl-C as a cancellation
    except BaseException as error:
        outcome.append((None, error))
    finally:
        if iterates:
            # Generators that were dropped need two turns of the loop: one to schedule their
            # closing, one to close them.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await _end(tasks)
        await _end([generator.aclose() for generator in list(generators)])


async def _end(last: Collection[Awaitable[Any]]) -> None:
    """Await these; report their exceptions as asyncio does."""
    for end in await asyncio.gather(*last, return_exceptions=True) if last else ():
        if isinstance(end, Exception):
            asyncio.get_running_loop().call_exception_handler(
                {"message": "exception in a task that a call has left behind", "exception": end}
            )
