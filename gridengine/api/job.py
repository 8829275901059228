"""`Job`: one call on a worker, with the API of `multiprocessing.Process`."""

from __future__ import annotations

import functools
import itertools
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from gridengine.api.job_result import Host, JobHandle, JobResult, exitcode_of
from gridengine.api.job_target import Target, accepts_controller, run_job
from gridengine.arguments import flag
from gridengine.call_context.coroutines import synchronous
from gridengine.client.connect import connect
from gridengine.client.functions import make_function
from gridengine.client.hand_in import TaskMaker
from gridengine.client.keywords_and_arguments import CallChanges, is_iterable, takes
from gridengine.client.options import CallOptions, given
from gridengine.display import html_table
from gridengine.errors import short_repr, trimmed
from gridengine.requests import Function
from gridengine.schedulers.base import SchedulerSpec
from gridengine.schedulers.default import scheduler_of_jobs
from gridengine.serialize import pickling
from gridengine.serialize.payload import FULL, SINGLE, Payload
from gridengine.threads import once

if TYPE_CHECKING:
    from gridengine.calls.interface import Dispatcher
    from gridengine.client.named_run_calls import RunJobs


def active_children() -> list[Job]:
    """Return the jobs that this process has started and that have not ended, as
    `multiprocessing.active_children` does.
    """
    return [job for job in list(_running().values()) if job._parent_pid == os.getpid()]


@once
def _running() -> dict[int, Job]:
    """Return the jobs under way by `id`, because jobs of a subclass may not be hashable."""
    return {}


class Job(JobResult):
    """A callable and its arguments, run on a worker; used like a `multiprocessing.Process`.

    Args:
        target: the callable. If it has a parameter named `controller`, it gets a controller
            (`job_id`, `attempt`, `push(value)`, `cancelled`).
        name: the name for people; by default "Job-1" and so on.
        daemon: whether the job ends with the interpreter instead of being waited for.
        scheduler: where `start` runs the job: an instance, or a class or callable that returns one,
            closed when the job has ended; a name, such as "slurm", or None is as for
            `gridengine.map`. On this machine a job without `scheduler` and `resources` starts at
            once, however many run.
        mutable: whether the job's attributes come back as its run has left them.
        retries: how often the job is run again after its process died or after it raised one of
            `retry_on`; default 2.
        timeout: the seconds it may take; default no limit. A job over its time is not run again.
        retry_on: the exception classes after which the job is run again, such as `(OSError,)`; by
            default none.
        escalate_memory: with 2, a job that ran out of memory is run again with twice the memory; by
            default it fails at once.
        resources: the resources that it needs; `Memory(0.5)` is also its memory limit in GB: see
            `docs/resources.md`.
        priority: jobs with a higher one begin before others that wait; default 0.
        forward_logging: as for `gridengine.map`.

    For each of the last seven, None takes the value of the `JobDispatcher` that starts the job,
    else the default.

    A subclass may define `run(self)` or `run(self, controller)` instead; its return value is the
    job's result.

    Raises:
        TypeError: `target` is not callable.
    """

    _numbers = itertools.count(1)

    @takes(CallChanges, {})
    @trimmed
    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
        scheduler: SchedulerSpec = None,
        mutable: bool = False,
        **options: Unpack[CallChanges],
    ) -> None:
        args_meant = tuple(one for one in (target, name) if one is not None)
        _require(
            group is None,
            "group argument must be None for now; the function and its arguments are given by "
            f"name: Job(target={getattr(group, '__name__', group)}, args={short_repr(args_meant)})",
        )
        if target is not None and not callable(target):
            raise TypeError(f"target {target!r} is not callable")
        self._options = given(type(self), options)
        self._target = target
        if not is_iterable(args):
            raise TypeError(f"args must be the target's arguments, as (x,), not {args!r}")
        self._args = tuple(args)
        self._kwargs = dict(kwargs or {})
        number = next(Job._numbers)  # a job with a name counts too, as with processes
        self._name = name or f"{type(self).__name__}-{number}"
        self._daemon = daemon is not None and flag("daemon", daemon)
        self._mutable = flag("mutable", mutable)
        self._parent_pid = os.getpid()
        self._closed = False
        self._is_running_here = False
        self._host = Host(scheduler)

    # -------------------------------------------------------------- as multiprocessing.Process

    def run(self, controller: Any = None) -> Any:
        """Call the target in this process, and return its result. A subclass may override this."""
        if self._target is None:
            return None
        kwargs = self._kwargs
        if controller is not None and accepts_controller(self._target, self._args, kwargs):
            kwargs = {**kwargs, "controller": controller}
        return self._target(*self._args, **kwargs)

    @trimmed
    def start(self) -> None:
        """Submit the job to its scheduler. May be called once.

        Raises:
            PicklingError: the target or an argument cannot be pickled; the text names it.
        """
        self._start(CallOptions(**self._options), None)

    def start_at(
        self,
        dispatcher: Dispatcher,
        defaults: Mapping[str, Any] | None = None,
        run: RunJobs | None = None,
    ) -> None:
        """Submit the job to this dispatcher, whatever its own scheduler. The caller keeps the
        dispatcher's scheduler alive.

        defaults: values for the options that the job does not set itself.
        run: the named run that stores its outcome.
        """
        self._start(CallOptions(**{**(defaults or {}), **self._options}), dispatcher, run)

    @trimmed
    def join(self, timeout: float | None = None) -> None:
        """Wait until the job has ended, or `timeout` seconds; `exitcode` tells which."""
        self._wait(timeout)

    def is_alive(self) -> bool:
        """Return whether the job was started and has not ended; it may still wait for a worker."""
        self._check_open()
        if self._is_running_here:
            return True
        host = self._own_host("can only test a child process")
        return host.handle is not None and not self._wait(0)

    def interrupt(self) -> None:
        """Raise `KeyboardInterrupt` in the job (SIGINT), and end it with SIGKILL after the grace
        time. A job that has not begun never runs.
        """
        self.cancel(signal.SIGINT)

    def terminate(self) -> None:
        """End the job with SIGTERM, and SIGKILL after the grace time. A job that has not begun
        never runs.
        """
        self.cancel(signal.SIGTERM)

    def kill(self) -> None:
        """End the job with SIGKILL. A job that has not begun never runs."""
        self.cancel(signal.SIGKILL)

    def close(self) -> None:
        """Release everything the job holds; it cannot be used any more.

        Raises:
            ValueError: it is still running.
        """
        if self._host is not None and self._handle is not None:
            if not self._handle.wait(0):
                raise ValueError(
                    "Cannot close a process while it is still running. You should first call "
                    "join() or terminate()."
                )
            self._host.handle = None
        self._closed = True

    @property
    def name(self) -> str:
        """The job's name, for people."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        _require(isinstance(name, str), "name must be a string")
        self._name = name

    @property
    def daemon(self) -> bool:
        """Whether it ends with the interpreter instead of being waited for."""
        return self._daemon

    @daemon.setter
    def daemon(self, daemonic: bool) -> None:
        _require(self._handle is None, "process has already started")
        self._daemon = flag("daemon", daemonic)

    @property
    def ident(self) -> int | None:
        """The id of the process, on its machine, that runs the job or ran it last; None before."""
        self._check_open()
        if self._is_running_here:
            return os.getpid()
        handle = self._handle
        return None if handle is None or handle.start is None else handle.start.pid

    pid = ident

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes ready to read when the job ends;
        `multiprocessing.connection.wait` takes it.

        Raises:
            ValueError: the job has not been started.
        """
        host = self._own_host("can only wait for a child process")
        if host.handle is None:
            raise ValueError("process not started")
        return host.handle.sentinel()

    @property
    def authkey(self) -> bytes:
        """The authentication key of `multiprocessing`: this process's own."""
        import multiprocessing

        return multiprocessing.current_process().authkey

    @property
    def exitcode(self) -> int | None:
        """0, or 1 for an uncaught exception, n for `sys.exit(n)`, -n when signal n ended it; None
        while it has not ended.
        """
        self._check_open()
        if self._handle is None or not self._wait(0):
            return None
        end = self._handle.end_event()
        # Only an exception has an exit code of its own, so do not unpickle a result here.
        return exitcode_of(end, self._outcome()[1] if end.raised or self._mutable else None)

    def __repr__(self) -> str:
        words = [type(self).__name__, f"name={self._name!r}", f"parent={self._parent_pid}"]
        if self._closed:
            words.append("closed")
        elif self._parent_pid != os.getpid():
            words.append("started" if self._is_running_here else "unknown")
        elif self._handle is None:
            words.append("initial")
        elif self._handle.end is None:
            words.append("started")
        else:
            words += ["stopped", f"exitcode={self.exitcode}"]
        if self._daemon:
            words.append("daemon")
        return f"<{' '.join(words)}>"

    def _repr_html_(self) -> str:
        facts: list[tuple[str, object]] = []
        start = None if self._closed or self._handle is None else self._handle.start
        if start is not None:
            facts.append(("process", f"{start.pid} on {start.host}"))
        if not self._closed:
            facts += [(f"attempt {n}", one) for n, one in enumerate(self.attempts, 1)]
        return html_table(repr(self), facts)

    # -------------------------------------------------------------- besides

    def cancel(self, number: int) -> None:
        """End the job with this signal; nothing happens if it has ended already."""
        host = self._own_host("can only end a child process")
        if host.handle is None:
            raise AttributeError("cannot end a process that has not been started")
        host.handle.cancel(number)

    # -------------------------------------------------------------- how

    def _start(
        self,
        options: CallOptions,
        dispatcher: Dispatcher | None,
        run: RunJobs | None = None,
    ) -> None:
        """Submit the job to this dispatcher, or to that of its own scheduler. The job is pickled
        before the scheduler is made.
        """
        _require(self._handle is None, "cannot start a process twice")
        host = self._own_host("can only start a process object created by current process")
        function, payload, form = self._pickled(options)
        forget = functools.partial(_running().pop, id(self), None)
        scheduler, ours = None, False
        if dispatcher is None:
            place = host.scheduler
            dispatcher, scheduler, ours = connect(
                scheduler_of_jobs(options.demand.resources) if place is None else place
            )
        try:
            handle = JobHandle(dispatcher, scheduler, ours=ours, daemon=self._daemon)
            host.handle = handle
            _running()[id(self)] = self
            maker = TaskMaker(dispatcher, function, form, options)
            needed = maker.introduce(function.payload, payload)
            task = maker.task(
                payload,
                needed=needed,
                watched=True,
                controlled=self._is_controlled(),
                name=self._name,
            )
            handle.expect(task)
            if run is not None and (call := self._target_call()) is not None:
                run.submit_job(dispatcher, function, task, handle, call)
            else:
                dispatcher.submit(function, [task], handle)
        except BaseException:
            forget()
            host.handle = None
            if ours and scheduler is not None:
                scheduler.close()
            raise
        handle.when_ended(forget)
        # As with processes, the target and its arguments are dropped once pickled: they may be
        # large.
        del self._target, self._args, self._kwargs

    def _pickled(self, options: CallOptions) -> tuple[Function, Payload, int]:
        """Return the function that the worker calls, and its one call with the form."""
        call: tuple[Callable[..., Any], Any, int] = run_job, self, SINGLE
        if self._has_own_run:
            synchronous(self.run)  # raises for an async generator function
        elif not self._mutable:
            call = Target(self._target), (self._args, self._kwargs), FULL
        called, arguments, form = call
        function = make_function(called, options.exceptions, logs=options.logs)
        payload = pickling.dump_calls([arguments], form=form, describe=lambda _: self._name)
        return function, payload, form

    def _target_call(self) -> tuple[Callable[..., Any], Any] | None:
        """Return the target and its arguments if the job just calls its target, else None."""
        if self._target is None or self._has_own_run or self._mutable:
            return None
        return self._target, (self._args, self._kwargs)

    @property
    def _has_own_run(self) -> bool:
        return type(self).run is not Job.run or "run" in vars(self)

    def _is_controlled(self) -> bool:
        """Return whether the call takes a controller."""
        if self._has_own_run:
            return accepts_controller(self.run)
        return accepts_controller(self._target, self._args, self._kwargs)


def _require(condition: bool, message: str) -> None:
    """Raise the error that `multiprocessing` raises for misuse, also under `python -O`."""
    if not condition:
        raise AssertionError(message)
