"""`JobDispatcher`: runs several jobs on one scheduler and gathers their results."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from gridengine.api.job_result import JobResult
from gridengine.client.connect import connect
from gridengine.client.keywords_and_arguments import CallChanges, JobKeywords, takes
from gridengine.client.options import given, run_options
from gridengine.display import plural
from gridengine.errors import ConfigurationError, TimeoutError, trimmed
from gridengine.schedulers.base import SchedulerSpec
from gridengine.threads import Closing

if TYPE_CHECKING:
    from gridengine.api.job import Job
    from gridengine.client.named_run_calls import RunJobs


class JobDispatcher(Closing):
    """Runs jobs on a scheduler and gathers their results.

    Args:
        scheduler: an instance (left open), or a class or callable that returns one (closed with the
            dispatcher); a name, such as "slurm", or None is as for `gridengine.map`.
        retries, timeout, retry_on, escalate_memory, resources, priority, forward_logging: for jobs
            that do not set them themselves; see `Job`.
        run: with `name="night"` results are stored on disk, and jobs whose target returned with the
            same arguments are not run again, as for `gridengine.map`; `close` releases the run for
            others. Jobs that have no target, override `run` or are mutable are run each time.

    Raises:
        TypeError, ConfigurationError: an argument has a wrong type or value; the text names it.
    """

    @takes(JobKeywords, {})
    @trimmed
    def __init__(
        self,
        scheduler: SchedulerSpec = None,
        **keywords: Unpack[JobKeywords],
    ) -> None:
        run: Any = {**keywords}
        options: Any = {name: run.pop(name) for name in CallChanges.__annotations__ if name in run}
        self._options = given(type(self), options)
        named_run = run_options(run, type(self))
        self._named_run: RunJobs | None = None
        if named_run is not None:
            from gridengine.client.named_run_calls import RunJobs  # few need it

            self._named_run = RunJobs(named_run, scheduler)
            scheduler = self._named_run.place
        try:
            self._dispatcher, self._scheduler, self._own = connect(scheduler)
        except BaseException:
            if self._named_run is not None:
                self._named_run.close()
            raise
        self._jobs: Sequence[Job] = ()
        self._lock = threading.Lock()
        self._closed = False
        self.start_time: float | None = None
        """When the jobs were dispatched, as a `time.time()`: for people."""
        self.end_time: float | None = None
        """When the last job had ended, as a `time.time()`; None until `join` has seen it."""
        self._began = self._elapsed = 0.0

    @property
    def elapsed_time(self) -> float | None:
        """The seconds from the dispatch to the end of the last job, or until now, by a clock that
        does not jump; None before the dispatch.
        """
        if self.start_time is None:
            return None
        return time.monotonic() - self._began if self.end_time is None else self._elapsed

    @trimmed
    def dispatch(self, jobs: Iterable[Job]) -> None:
        """Start these jobs, none of which has been started.

        Raises:
            TypeError: one of them is not a job.
            RuntimeError: jobs that were dispatched before have not been joined.
            ConfigurationError: the dispatcher is closed.
            PicklingError: a job cannot be pickled; none is run.
        """
        chosen = list(jobs) if isinstance(jobs, Iterable) else [jobs]
        for job in chosen:
            if not (isinstance(job, JobResult) and isinstance(jobs, Iterable)):
                raise TypeError(f"dispatch takes jobs, such as [Job(target=f)], not {job!r}")
        with self._lock:
            if self._closed:
                raise ConfigurationError(
                    "this JobDispatcher has been closed", hint="make a new one"
                )
            if self._jobs:
                raise RuntimeError("jobs have been dispatched already; join them first")
            started, now = [], time.monotonic()
            start_time = time.time()
            try:
                for job in chosen:
                    job.start_at(self._dispatcher, self._options, self._named_run)
                    started.append(job)
            except BaseException:
                for job in started:
                    job.kill()
                raise
            self._jobs, self.start_time, self.end_time = chosen, start_time, None
            self._began = now

    @trimmed
    def join(self, timeout: float | None = None) -> list[Any]:
        """Wait for all jobs and return their results in order, with the exception of each failed
        job in the place of its result.

        Raises:
            RuntimeError: nothing has been dispatched.
            TimeoutError: they are not done within `timeout` seconds; the jobs run on.
        """
        if self.start_time is None or (not self._jobs and self.end_time is not None):
            raise RuntimeError("no jobs have been dispatched")
        until = None if timeout is None else time.monotonic() + timeout
        for job in self._jobs:
            job.join(None if until is None else max(0.0, until - time.monotonic()))
            if job.is_alive():
                alive = sum(one.is_alive() for one in self._jobs)
                of = f"of {plural(len(self._jobs), 'job')} not done after {timeout} s"
                raise TimeoutError(f"{alive} {of}; jobs that run go on")
        self.end_time, self._elapsed = time.time(), time.monotonic() - self._began
        results = [job.outcome() for job in self._jobs]
        self._jobs = ()
        return results

    def close(self) -> None:
        """End the jobs that still run, and the workers of a scheduler that was made for this
        dispatcher. May be called twice.
        """
        with self._lock:
            self._closed = True
            for job in self._jobs:
                job.kill()
        try:
            if self._own:
                self._scheduler.close()
        finally:
            if self._named_run is not None:
                self._named_run.close()
