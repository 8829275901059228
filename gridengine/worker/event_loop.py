"""The event loop of asyncio in which calls of coroutine functions run, one after the other.

A runner keeps its loop from one call to the next, so that what is bound to it, as the connections
of a client that a module holds, serves all calls. What a call leaves behind ends with it, as with
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

from gridengine.worker.call_context import GVAR
from gridengine.worker.running_loop import in_event_loop

Outcome: TypeAlias = list[tuple[Any, BaseException | None]]
"""What a coroutine returned and what it raised, to be taken out: the frames of the event loop are
kept by a traceback, and must not keep the error.
"""


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end and return what it returns, in a copy of the present context.

    Where an event loop runs already, as around a call that is made in the caller's own process,
    another thread runs it: a thread has one loop at most. The caller waits all the same.
    """
    outcome: Outcome = []
    _run(_complete(coroutine, outcome))
    return _settle(outcome)


def run_in_trio(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Do the same in a loop of trio, of which each call has its own: trio itself sees to it that
    nothing is left.
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
        del error  # the traceback would hold it, and it the traceback


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
        _kept(os.getpid()).run(coroutine)


def _run_apart(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner() as runner:
        runner.run(coroutine, context=contextvars.copy_context())


@functools.lru_cache(maxsize=1)
def _kept(process: int) -> CallLoop:
    """Return the loop of this process: none of that which it was forked from."""
    return CallLoop()


class CallLoop:
    """An event loop for calls that are made one after the other."""

    def __init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self._runner = asyncio.Runner()
        self._use_threads()

    def _use_threads(self) -> None:
        self._threads = Threads()
        self._runner.get_loop().set_default_executor(self._threads)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine, which is to leave nothing behind."""
        loop = self._runner.get_loop()
        try:
            # Not the runner's own `run`: it sets signal handlers, which takes ten times as long.
            loop.run_until_complete(loop.create_task(coroutine, context=contextvars.copy_context()))
        except BaseException:  # it may have been cut off, as by `sys.exit` in another of its tasks
            try:
                self._runner.close()
            finally:
                self._open()
            raise
        if self._threads.used:
            self._threads.shutdown()
            self._use_threads()


class Threads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`. Idle ones would keep a runner from ending."""

    used = False

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.used = True
        return super().submit(*args, **kwargs)


async def _complete(coroutine: Coroutine[Any, Any, Any], outcome: Outcome) -> None:
    """Note what a coroutine returns, and what it raises, so that no frame of asyncio is in the
    traceback, and end what it leaves behind.
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
        raise  # by it a Ctrl-C comes here
    except BaseException as error:
        outcome.append((None, error))
    finally:
        if iterates:
            # one turn of the loop to begin the closing of those that were dropped, one to do it
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await _end(tasks)
        await _end([generator.aclose() for generator in list(generators)])


async def _end(last: Collection[Awaitable[Any]]) -> None:
    """Await what is to end; what it raises is told as asyncio tells it."""
    for end in await asyncio.gather(*last, return_exceptions=True) if last else ():
        if isinstance(end, Exception):
            asyncio.get_running_loop().call_exception_handler(
                {"message": "exception in what a call has left behind", "exception": end}
            )
