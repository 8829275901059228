"""A started job on its host: the dispatcher's reports of it, and its outcome."""

from __future__ import annotations

import functools
import itertools
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeAlias

from msgspec import Struct

from gridengine.api.job_target import JobOutcome, attributes_of
from gridengine.calls.interface import Dispatcher, WithoutSlot
from gridengine.client.dependencies import Found, pickled, supply, unread
from gridengine.client.log_relay import drain_logs
from gridengine.client.outcomes import JOB, OutcomeListener, add_notes, name_arguments, outcomes_of
from gridengine.errors import Cancelled, OutOfMemory, PicklingError, TimeoutError, trimmed
from gridengine.requests import CallsFinished, ResultData, Task, TaskBegan, TaskMessage
from gridengine.schedulers.base import Scheduler, SchedulerSpec
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.serialize.references import Reference, ResultHolder
from gridengine.threads import wait_for
from gridengine.wire.messages import Attempt

Outcome: TypeAlias = tuple[Any, BaseException | None]
"""The return value of a job, and its exception."""
UNPRINTED = PicklingError.__name__, OutOfMemory.__name__
"""The names of errors that arise after a job has printed its exception, and so are not in its
output.
"""
log = logging.getLogger("gridengine")


class JobHandle(OutcomeListener):
    """A started job, and the dispatcher's reports of it (see `Listener`).

    The scheduler, and with it its workers, lives at least as long as the handle. With `ours` the
    scheduler is closed when the job has ended.
    """

    def __init__(
        self, dispatcher: Dispatcher, scheduler: Scheduler | None, *, ours: bool, daemon: bool
    ) -> None:
        self.task = 0
        self._named = ""
        self.daemon = daemon
        self.end: CallsFinished | None = None
        self.outcome: Outcome | None = None
        self.start: TaskBegan | None = None
        self._messages: list[Payload] = []
        self._sentinel: int | None = None
        self._at_end: list[Callable[[], object]] = []
        self._changed = threading.Condition()
        self.dispatcher = dispatcher
        self._scheduler = scheduler
        self.ours = ours

    def expect(self, task: Task) -> None:
        """Note the task that is about to be submitted."""
        self.task, self._named = task.id, JOB.format(name=task.options.name)

    def settled(self, event: CallsFinished) -> None:
        error: BaseException | None = event.error
        name_arguments(event)
        if event.raised and event.payload and pickling.raised_type(event.payload) in UNPRINTED:
            error = pickling.load_exception(event.payload)
            add_notes(error, [], event.attempts)
        if not isinstance(error, Cancelled | None):
            named = self._named in str(error)
            log.error("%s%s", "" if named else f"{self._named} could not be run: ", error)
        with self._changed:
            self.end = event
            for act in self._at_end:
                act()
            self._at_end.clear()
            self._changed.notify_all()

    def began(self, event: TaskBegan) -> None:
        self.start = event

    def noted(self, event: TaskMessage) -> None:
        super().noted(event)
        if not event.log:
            with self._changed:
                self._messages.append(event.payload)
                self._changed.notify_all()

    def wait(self, timeout: float | None, *, messages: float = math.inf) -> bool:
        """Wait for the end, or for more than `messages` messages. Return whether it has come within
        `timeout` seconds.
        """
        slot = None if self.end is not None or timeout == 0 else self.dispatcher.call_slot
        with WithoutSlot(slot) as wait:
            come = wait_for(
                self._changed,
                lambda: self.end is not None or len(self._messages) > messages,
                timeout,
            )
            wait.expired = not come
        if self.end is not None and timeout != 0:
            self.dispatcher.flush_output(timeout)
            drain_logs(timeout)
        if self.end is not None and self.ours and self._scheduler is not None:
            self.ours = False
            self._scheduler.close()
        return come

    def when_ended(self, act: Callable[[], object]) -> None:
        """Call this in the I/O thread when the job ends, before `wait` returns; now if it has
        ended.
        """
        with self._changed:
            if self.end is None:
                self._at_end.append(act)
                return
        act()

    def sentinel(self) -> int:
        """Return a descriptor that can be read once the job has ended, for
        `multiprocessing.connection.wait`.
        """
        if self._sentinel is None:
            self._sentinel, other = os.pipe()
            weakref.finalize(self, os.close, self._sentinel).atexit = False
            self.when_ended(functools.partial(os.close, other))
        return self._sentinel

    def messages(self) -> Iterator[Any]:
        """Yield the pushed values, as they come, until the job has ended."""
        for index in itertools.count():
            self.wait(None, messages=index)
            if index >= len(self._messages):
                return
            yield pickling.load(self._messages[index])

    def end_event(self) -> CallsFinished:
        """Return how the job ended. Call this only after its end."""
        assert self.end is not None
        return self.end

    def cancel(self, number: int) -> None:
        if self.end is None:
            self.dispatcher.cancel([self.task], number)


def exitcode_of(end: CallsFinished, error: BaseException | None) -> int:
    """Return the exit code that a process would have had; `error` is its exception, if any."""
    if end.payload is None or error is None:
        return end.exitcode
    if not isinstance(error, SystemExit):
        return end.exitcode or 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


class Host(Struct, eq=False):
    """The part of a job that is not pickled: its scheduler, and its handle once started. Where the
    job is unpickled, None takes its place.
    """

    scheduler: SchedulerSpec
    handle: JobHandle | None = None

    # Not in `Job.__getstate__`, so that a subclass may define its own.
    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


class JobSource(Struct, frozen=True, eq=False):
    """A started job whose result other calls need; see `ResultSource`."""

    _handle: JobHandle
    _name: str
    _mutable: bool

    def bind_reference(self, reference: Reference, dispatcher: Dispatcher) -> bool:
        """Ask the dispatcher to keep the job's result under this reference. Return False when the
        dispatcher does not run the job, or when the result is wrapped (a mutable job's) and must be
        unwrapped here. An inline dispatcher keeps no result, but is asked too: it may refuse.
        """
        handle = self._handle
        if handle.dispatcher is not dispatcher or handle.end is not None:
            return False
        if self._mutable and not dispatcher.at_once:
            return False
        act = functools.partial(supply, self, reference, dispatcher)
        missing = functools.partial(self.when_done, act)
        dispatcher.want(handle.task, 0, reference.number, missing)
        return True

    def when_done(self, act: Callable[[], object]) -> None:
        """Call this once the job has ended, in a thread of its own unless it has ended already: a
        result is unpickled there.
        """
        if self._handle.end is not None:
            act()
        else:

            def wait() -> None:
                self._handle.wait(None)
                act()

            threading.Thread(target=wait, name="gridengine-job-result", daemon=True).start()

    def data(self) -> ResultData:
        """Return the job's outcome."""
        event = self._handle.end_event()
        data = None if self._mutable else unread(event, 0, self._name)
        if data is None:
            _, value, error = _read(event, self._name)
            data = pickled(value, error, self._name)
        return data


def _read(
    event: CallsFinished, name: str
) -> tuple[dict[str, Any] | None, Any, BaseException | None]:
    """Return the attributes that a mutable job left, or None; its return value; its exception."""
    [end] = outcomes_of(event, name, JOB)
    value, error = end.values[0] if end.values else None, end.error
    if not isinstance(value, JobOutcome):
        return None, value, error
    if value.raised is not None:
        error = pickling.load_exception(value.raised)
        add_notes(error, [JOB.format(name=name)], event.attempts)
    return value.attributes, value.value, error


class JobResult(ResultHolder):
    """The methods of a job about its results, beside those of a process."""

    _name: str
    _mutable: bool
    _parent_pid: int
    _closed: bool
    _host: Host | None

    @trimmed
    def outcome(self, timeout: float | None = None) -> Any:
        """Return the result, or the exception that `result` would raise."""
        value, error = self._outcome_within(timeout)
        return value if error is None else error

    @trimmed
    def result(self, timeout: float | None = None) -> Any:
        """Return the return value of the target (or of `run`).

        Raises:
            Exception: the exception of the job, with a `RemoteTraceback` as its `__cause__`.
            CallError, ClusterError: the reason why the job could not end.
            TimeoutError: the job has not ended within `timeout` seconds; it runs on.
        """
        value, error = self._outcome_within(timeout)
        if error is None:
            return value
        raise error.with_traceback(None)  # drop the traceback of an earlier `result`

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a task of asyncio or trio for the same value as `result` returns. When the task
        is cancelled the job runs on, as a process does.
        """
        yield from self._ended().__await__()
        return self.result()

    async def _ended(self) -> None:
        from gridengine.client.loop_tasks import in_thread, task_waiter, task_without_slot

        handle, waiter = self._started(), task_waiter()
        handle.when_ended(waiter.release)
        async with task_without_slot(handle.dispatcher.call_slot):
            await waiter.wait()
        if handle.ours:
            await in_thread(self._end, lambda: None)

    @trimmed
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception that `result` would raise, or None.

        Raises:
            TimeoutError: the job has not ended within `timeout` seconds; it runs on.
        """
        return self._outcome_within(timeout)[1]

    def stdout(self) -> str:
        """Wait for the end. Return the standard output of the job and of all processes that it
        started, without its middle if it is very long.
        """
        return self._end().stdout.decode(errors="replace")

    def stderr(self) -> str:
        """Wait for the end. Return the standard error of the job and of all processes that it
        started, without its middle if it is very long.
        """
        return self._end().stderr.decode(errors="replace")

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The history of the job's attempts, including the last: on which machine each ran, for how
        long, and how it ended. Empty until the job has ended.

        A job that was ended on request before it ran has no attempts.
        """
        self._check_open()
        handle = self._handle
        return () if handle is None or handle.end is None else tuple(handle.end.attempts)

    def messages(self) -> Iterator[Any]:
        """Yield the values that the job pushed, from the first on, as they come; ends with the job.

        If the job was run again, the values of the lost attempts come first.
        """
        return self._started("can only read the messages of a started process").messages()

    # -------------------------------------------------------------- how

    def _find_source(self) -> Found | None:
        """Return the source of this job's result for calls that are given the job; None when it was
        not started here.
        """
        handle = self._handle
        if handle is None:
            return None
        return handle, JobSource(handle, self._name, self._mutable)

    @property
    def _handle(self) -> JobHandle | None:
        """The started job; None before the start, and in any other process."""
        return None if self._host is None else self._host.handle

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("process object is closed")

    def _own_host(self, message: str) -> Host:
        """Return the host part of a job that belongs to this process.

        Raises:
            AssertionError: the job belongs to another process; the text is `message`.
        """
        self._check_open()
        if self._host is None or self._parent_pid != os.getpid():
            raise AssertionError(message)
        return self._host

    def _started(self, message: str = "can only join a started process") -> JobHandle:
        handle = self._own_host("can only join a child process").handle
        if handle is None:
            error = AssertionError(message)  # `multiprocessing.Process` raises this text too
            error.add_note("try: call start() first, as the job's own, or JobDispatcher.dispatch")
            raise error
        return handle

    def _wait(self, timeout: float | None) -> bool:
        """Wait for the end; return whether it has come. At the end a mutable job gets the
        attributes that the run left.
        """
        ended = self._started().wait(timeout)
        if ended and self._mutable:
            self._outcome()
        return ended

    def _end(self) -> CallsFinished:
        self._wait(None)
        return self._started().end_event()

    def _outcome_within(self, timeout: float | None) -> Outcome:
        if not self._wait(timeout):
            raise TimeoutError(f"job {self._name} has not ended within {timeout:g} s; it runs on")
        return self._outcome()

    def _outcome(self) -> Outcome:
        """Return the ended job's result and exception, unpickled once."""
        handle = self._started()
        if handle.outcome is None:
            attributes, value, error = _read(handle.end_event(), self._name)
            if attributes is not None:
                for name in attributes_of(self):
                    delattr(self, name)
                vars(self).update(attributes)
            handle.outcome = value, error
        return handle.outcome
