"""The results of a job on its host: whether it has ended, and its outcome."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from msgspec import Struct

from gridengine.api.job_handle import JobHandle, Outcome
from gridengine.api.job_target import JobOutcome, attributes_of
from gridengine.calls.interface import Dispatcher
from gridengine.client.dependencies import Found, pickled, supply, unread
from gridengine.client.outcomes import JOB, add_notes, outcomes_of
from gridengine.dispatcher.core.tasks import CallsFinished, ResultData
from gridengine.errors import TimeoutError, trimmed
from gridengine.schedulers.base import SchedulerSpec
from gridengine.serialize import pickling
from gridengine.serialize.references import Reference, ResultHolder
from gridengine.wire.messages import Attempt


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
        dispatcher does not run the job, or the result is wrapped (a mutable job's). An inline
        dispatcher has no result to keep, but may refuse.
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
            wait = functools.partial(_wait_and_do, self._handle, act)
            threading.Thread(target=wait, name="gridengine-job-result", daemon=True).start()

    def data(self) -> ResultData:
        """Return the job's outcome."""
        event = self._handle.end_event()
        data = None if self._mutable else unread(event, 0, self._name)
        if data is None:
            _, value, error = _read(event, self._name)
            data = pickled(value, error, self._name)
        return data


def _wait_and_do(handle: JobHandle, act: Callable[[], object]) -> None:
    handle.wait(None)
    act()


def _read(
    event: CallsFinished, name: str
) -> tuple[dict[str, Any] | None, Any, BaseException | None]:
    """Return the attributes that a mutable job left, and what a job returned and raised."""
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
        """Return the target's (or `run`'s) return value.

        Raises:
            Exception: what it raised, with a `RemoteTraceback` as its `__cause__`.
            CallError, ClusterError: what kept it from ending.
            TimeoutError: it has not ended within `timeout` seconds; it runs on.
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
        """Wait for the end. Return what the job, and all processes it started, wrote to standard
        output; the middle of very much is left out.
        """
        return self._end().stdout.decode(errors="replace")

    def stderr(self) -> str:
        """Wait for the end. Return what the job, and all processes it started, wrote to standard
        error; the middle of very much is left out.
        """
        return self._end().stderr.decode(errors="replace")

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """How each of its attempts went, including the last: on which machine, how long, how it
        ended. Empty until the job has ended.

        A job that was ended on request before it had run has none.
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
            AssertionError: it does not, with this message.
        """
        self._check_open()
        if self._host is None or self._parent_pid != os.getpid():
            raise AssertionError(message)
        return self._host

    def _started(self, message: str = "can only join a started process") -> JobHandle:
        handle = self._own_host("can only join a child process").handle
        if handle is None:
            raise AssertionError(message)
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
