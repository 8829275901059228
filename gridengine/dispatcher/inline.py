"""A hub without workers: what is submitted is run at once, in the caller's own process and
thread.
"""

from __future__ import annotations

import bdb
import contextlib
import io
import itertools
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TextIO

from gridengine.dispatcher.core.snapshot import Snapshot
from gridengine.dispatcher.core.tasks import (
    Attempt,
    CallsFinished,
    Function,
    Task,
    TaskMessage,
    TaskStarted,
)
from gridengine.dispatcher.interface import Listener
from gridengine.errors import Cancelled, ConfigurationError
from gridengine.resources.demand import Demand
from gridengine.serialize import pickling
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import SINGLE, STAR, Payload
from gridengine.serialize.shared_objects import resolving_locally
from gridengine.worker.call_context import GVAR, CurrentJob, process_name
from gridengine.worker.process_setup import Controller

PASSING = (KeyboardInterrupt, bdb.BdbQuit, GeneratorExit)
"""What ends the caller's own script and not only the call."""


class InlineDispatcher:
    """Takes the place of a `Hub`. Arguments and results are pickled all the same, so that what
    cannot travel is seen here too.
    """

    slots = 1
    at_once = True

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._cancelled: set[int] = set()
        self._cancelled_calls: set[tuple[int, int]] = set()
        self._closed = False

    def new_id(self) -> int:
        """Return an id for a task."""
        return next(self._ids)

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        """Run these tasks now.

        Raises:
            KeyboardInterrupt: Ctrl-C in a call ends the caller too; so does quitting `pdb`.
        """
        if self._closed:
            raise ConfigurationError("this scheduler has been closed", hint="make a new one")
        with resolving_locally():
            f, retry_on = pickling.load_function(function.payload)
        for task in tasks:
            self._run(_again_after(f, retry_on, task.retries), function.name, task, listener)

    def check(self, demand: Demand) -> None:
        """Take any request: this process is taken to have just what a call asks for."""

    def cancel(
        self, tasks: Iterable[int], number: int = 0, calls: Iterable[tuple[int, int, int]] = ()
    ) -> None:
        """End tasks that are being run, and calls of such, from inside a call: after the call."""
        self._cancelled.update(tasks)
        for task, start, stop in calls:
            self._cancelled_calls.update((task, index) for index in range(start, stop))

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        """Nothing waits here."""

    def catch_up(self) -> None:
        """Nothing is left to be done."""

    def snapshot(self) -> Snapshot:
        """Return nothing waiting and nothing running, as it is between calls."""
        return Snapshot(workers=1)

    def flush_output(self, seconds: float | None = None) -> None:
        """Return: what calls print is not passed on, it is printed."""

    def close(self, *, wait: bool = True) -> None:
        """Take no more."""
        self._closed = True

    def _run(self, f: Callable[..., Any], name: str, task: Task, listener: Listener) -> None:
        if task.watched:
            listener.began(TaskStarted(task.id, os.getpid(), socket.gethostname(), 1))
        done, asked = 0, task.demand.request
        given = asked.holder()._alloc(asked)
        try:
            with resolving_locally():
                calls, _ = pickling.load_items(task.payload)
            for index, call in enumerate(calls):
                if task.id in self._cancelled:
                    return
                if (task.id, index) in self._cancelled_calls:
                    self._cancelled_calls.discard((task.id, index))
                    error = Cancelled(f"a call of {name} was ended before it began")
                    done += 1
                    listener.settled(
                        CallsFinished(task.id, index, index + 1, None, error=error, exitcode=1)
                    )
                    continue
                began = time.monotonic()
                job = CurrentJob(task.id, 1, given, partial(int, task.first + index))
                named = process_name(task.name) if task.watched else contextlib.nullcontext()
                with _copied(task.watched) as copies, GVAR.running(job), named:
                    payload, raised = _outcome(f, call, task, listener)
                out, err = (copy.getvalue().encode() for copy in copies)
                done += 1
                attempts = [_attempt(began, raised=raised)] if task.watched else []
                listener.settled(
                    CallsFinished(
                        task.id,
                        index,
                        index + 1,
                        payload,
                        raised,
                        None,
                        int(raised),
                        out,
                        err,
                        attempts,
                    )
                )
        finally:
            self._cancelled.discard(task.id)
            if done < task.count:
                error = Cancelled(f"{name} was ended before it was done")
                listener.settled(
                    CallsFinished(task.id, done, task.count, None, error=error, exitcode=1)
                )


def _again_after(
    f: Callable[..., Any], retry_on: tuple[type[BaseException], ...], retries: int
) -> Callable[..., Any]:
    """Return what calls the function again when it raises one of these exceptions."""

    def call(*args: Any, **kwargs: Any) -> Any:
        for _ in range(retries):
            with contextlib.suppress(*retry_on):
                return f(*args, **kwargs)
        return f(*args, **kwargs)

    return call if retry_on else f


def _outcome(
    f: Callable[..., Any], call: Any, task: Task, listener: Listener
) -> tuple[Payload, bool]:
    keywords: dict[str, Any] = {}
    if task.controlled:
        keywords["controller"] = Controller(
            job_id=task.id,
            attempt=1,
            push=lambda value: listener.noted(TaskMessage(task.id, pickling.dump(value))),
        )
    try:
        if type(call) is Unloadable:
            raise call.error
        if task.form == SINGLE:
            value = f(call, **keywords)
        elif task.form == STAR:
            value = f(*call, **keywords)
        else:
            value = f(*call[0], **call[1], **keywords)
        return pickling.dump_values([value]), False
    except PASSING:
        raise
    except BaseException as error:
        return pickling.dump_exception(error), True


def _attempt(began: float, *, raised: bool) -> Attempt:
    outcome = "it raised an exception" if raised else "it returned"
    return Attempt(socket.gethostname(), "", began, time.monotonic(), outcome, exitcode=int(raised))


@contextlib.contextmanager
def _copied(wanted: bool) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Keep a copy of what is written to `sys.stdout` and `sys.stderr` meanwhile; it still goes
    where it went.
    """
    copies = io.StringIO(), io.StringIO()
    if not wanted:
        yield copies
        return
    with (
        contextlib.redirect_stdout(_Tee(sys.stdout, copies[0])),
        contextlib.redirect_stderr(_Tee(sys.stderr, copies[1])),
    ):
        yield copies


class _Tee:
    """A text stream that writes to a copy too."""

    def __init__(self, stream: TextIO, copy: io.StringIO) -> None:
        self._stream = stream
        self._copy = copy

    def write(self, text: str) -> int:
        """Write to both."""
        self._copy.write(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
