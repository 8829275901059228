"""Workers on a cluster that DRMAA 1.0 speaks to: Grid Engine first, and any other."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gridengine.errors import (
    ClusterError,
    ConfigurationError,
    SchedulerUnavailable,
    SubmissionRefused,
)
from gridengine.resources.base import ZERO
from gridengine.resources.base import Resource as Held
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.batch import BatchLauncher, BatchScheduler, TooMany, not_started
from gridengine.schedulers.detect import library_paths, without_slurm
from gridengine.schedulers.grid_engine import drmaa
from gridengine.schedulers.grid_engine.diagnostics import Failure, NoWords, Words
from gridengine.schedulers.grid_engine.drmaa_systems import (
    GRID_ENGINE,
    GRID_ENGINE_UNNAMED,
    SLURM,
    System,
    worded,
)
from gridengine.schedulers.grid_engine.options import asked, own_walltime
from gridengine.schedulers.grid_engine.request import Request, Resource
from gridengine.schedulers.launcher import (
    Handle,
    LaunchContext,
    LaunchPlan,
    Report,
    TryAgain,
    WorkerStatus,
)
from gridengine.schedulers.slurm.options import own_walltime as slurm_walltime
from gridengine.settings.values import settings

logger = logging.getLogger("gridengine")

POLL_SECONDS = 1.0
"""How long one round of questions may take: to ask for one job takes Grid Engine 0.2 to 10 ms, a
second when its master is busy.
"""
MOST_ASKED = 5000
FIRST_QUEUED = 20
"""Tasks of an array start in order, so of those that wait the first are asked for most often."""
REASON_SECONDS = 17.0
"""How long the reason of a failed start is looked for: Grid Engine writes its accounts every 15
s.
"""
END_SECONDS = 6.0
"""How long DRMAA may take to say how a job ended after it said that it has: it learns of it every 5
s.
"""

STATES = {
    **dict.fromkeys(
        ("queued_active", "system_on_hold", "user_on_hold", "user_system_on_hold"),
        WorkerStatus.QUEUED,
    ),
    "running": WorkerStatus.RUNNING,
    **dict.fromkeys(
        ("system_suspended", "user_suspended", "user_system_suspended"), WorkerStatus.SUSPENDED
    ),
}
"""DRMAA's states of jobs that have not ended (GFD.22); of "undetermined" nothing is known."""


class GridEngineScheduler(BatchScheduler):
    """Runs calls in jobs of a Grid Engine, or of another batch system that has a DRMAA library: the
    library says which it speaks to.

    What is asked of a Slurm is written in its own options. For other systems there are no words
    here: they are told what `native` says, and all else is an error.

    Args:
        queue: `-q`: the queue or queues to run in; Slurm's partition.
        parallel_environment: `-pe`: a name and a number of slots for each worker, as "smp 4".
        native: more options, as they are; the batch system's own.
        max_workers: the most cluster tasks at a time (default: the setting, 1000).
        start_timeout: for how many seconds calls may wait for their first worker, then they fail
            with `WorkerNotStarted` and what the batch system says of it (default: the setting,
            which is for ever).
        jobs_per_worker: after how many calls a cluster task ends (default: never).
        prologue: shell lines that run before the worker, as "module load python". With any, the
            shell is a login shell. When one fails, so does the task.
        environment: variables for the worker.
        python: the interpreter on the nodes (default: this one).
        worker_resources: what each worker holds, as `Cores(32) & Memory(120)`: calls share it, and
            each worker runs all that fits (default: each worker holds what one call asks for, and
            runs one call at a time).
        drmaa_library: the path of the DRMAA library (default: the setting, else what
            DRMAA_LIBRARY_PATH says, else Grid Engine's own).
        resources: `-l name=value`, as `h_vmem="10G"`. Slurm is told `h_rt` and `h_vmem`.

    Raises:
        TypeError, ConfigurationError: an argument is not what it must be; the text names it and its
        value.
    """

    def __init__(
        self,
        *,
        queue: str | None = None,
        parallel_environment: str | None = None,
        native: str = "",
        max_workers: int | None = None,
        start_timeout: float | None = None,
        jobs_per_worker: int | None = None,
        prologue: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        python: str | None = None,
        worker_resources: Held | None = None,
        drmaa_library: str | os.PathLike[str] = "",
        **resources: Resource,
    ) -> None:
        super().__init__(
            max_workers=max_workers,
            start_timeout=start_timeout,
            jobs_per_worker=jobs_per_worker,
            prologue=prologue,
            environment=environment,
            python=python,
        )
        self._request = Request(queue, parallel_environment, native, resources)
        self.walltime = own_walltime(self._request) or slurm_walltime(
            [word for word in native.split() if word.startswith("--time=")]
        )
        self._library = library_path(drmaa_library)
        if worker_resources is not None:
            self.hold(worker_resources)

    def __repr__(self) -> str:
        return f"GridEngineScheduler({self._request.specification() or 'no special request'})"

    def launcher(self, run: LaunchContext) -> GridEngineLauncher:
        """Return what starts this scheduler's workers, as array jobs."""
        return GridEngineLauncher(
            run,
            script=self.script(run),
            request=self._request,
            library=self._library,
            held=self.worker_resources or ZERO,
        )


def library_path(given: object) -> str:
    """Return the DRMAA library that an argument names: a file's whole path, or what the linker is
    to look for.

    Raises:
        TypeError, ConfigurationError: it is no path, or there is no such file.
    """
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"drmaa_library must be a path, not {given!r}")
    path = os.fsdecode(given)
    if "/" not in path:
        return path
    if not Path(path).is_file():
        raise ConfigurationError(
            f"drmaa_library={path!r} is no file",
            hint="it is the path of a library, as /opt/lib/libdrmaa.so",
        )
    return str(Path(path).absolute())


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, as DRMAA told."""

    reason: str
    clean: bool = False
    deleted: bool = False
    started: bool = True
    killed: bool = False
    usage: Mapping[str, str] = field(default_factory=dict)


def ending(told: Mapping[str, Any], kind: str = GRID_ENGINE) -> Ending:
    """Return what DRMAA's exit information means, as told by a library for this kind of system.

    Grid Engine's `wait` says only "aborted" of a job that was deleted and of one that failed to
    start; but it gives the time of the start of the first, none for the second, and no usage at all
    for one that was deleted while it waited. Others say less.
    """
    if "status" in told:
        return Ending(f"exit status {told['status']}", clean=told["status"] == 0)
    if "signal" in told:
        return Ending(f"killed by {told['signal']}", killed=True, usage=told.get("usage") or {})
    if not told.get("aborted"):
        return Ending(told.get("words") or "the batch system does not say how it ended")
    if kind != GRID_ENGINE:
        return Ending("aborted: deleted, killed, or not even started")
    usage = told.get("usage") or {}
    if not usage:
        return Ending("deleted while it waited", deleted=True, started=False)
    if float(usage.get("start_time") or 0) > 0:
        return Ending("deleted while it ran", deleted=True)
    return Ending("could not be started", started=False)


class GridEngineLauncher(BatchLauncher):
    """Starts workers through DRMAA, and asks for them one by one."""

    def __init__(
        self,
        run: LaunchContext,
        *,
        script: str,
        request: Request,
        library: str = "",
        held: Held = ZERO,
    ) -> None:
        super().__init__(run, script=script)
        self._request = request
        self._library = library
        self._held = held
        self._system = GRID_ENGINE_UNNAMED
        self._words = Words(os.environ)
        self._asked: dict[Handle, float] = {}
        self._queued: set[Handle] = set()
        self._requests: dict[Handle, Request] = {}
        self._ended: dict[Handle, tuple[Ending, float]] = {}
        self._ending_since: dict[Handle, float] = {}
        self._session: drmaa.Session | None = drmaa.shared_session(library).__enter__()
        self._guarded = False

    def _opened(self) -> drmaa.Session:
        if self._session is None:
            raise ClusterError("this launcher has been closed")
        return self._session

    def _know(self, system: System) -> None:
        """Speak to this system from now on."""
        self._system = system
        self._words = Words(os.environ) if system.kind == GRID_ENGINE else NoWords(os.environ)

    def _request_for(self, demand: Demand) -> Request:
        if self._system.kind == GRID_ENGINE:
            return asked(
                self._request, demand, settings().grid_engine, self._words.parallel_environment
            )
        return worded(self._system, self._request, demand, self._held, settings())

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return what would be submitted first, in the words of the system that the library speaks
        to; without a library, Grid Engine's.

        Raises:
            SchedulerUnavailable: the library does not load.
        """
        libraries = library_paths(os.environ, self._library)
        if libraries:
            try:
                self._know(drmaa.named_system(libraries[0], os.environ))
            except drmaa.Unavailable as error:
                raise unavailable(error) from error
        return super().plan(count, demand)

    def submit(self, count: int, demand: Demand, log: Callable[[object], str]) -> list[str]:
        """Submit one array job through DRMAA."""
        session = self._opened()
        try:
            if self._system is GRID_ENGINE_UNNAMED:
                self._know(session.start())
            template = self.request(count, demand, log)
            if not self._guarded:
                session.guard(self.files)
                self._guarded = True
            return session.submit(template, count)
        except drmaa.Unavailable as error:
            raise unavailable(error) from error
        except drmaa.Trouble as error:
            raise TryAgain(f"the batch system cannot be reached: {error}") from error
        except drmaa.Refused as error:
            raise refusal(error, str(template["nativeSpecification"])) from error

    def launched(self, handles: Sequence[Handle], demand: Demand) -> None:
        """Note these new tasks."""
        self._asked.update(dict.fromkeys(handles, 0.0))
        self._queued.update(handles)
        self._requests.update(dict.fromkeys(handles, self._request_for(demand)))

    def request(
        self, count: int, demand: Demand, log: Callable[[object], str]
    ) -> dict[str, object]:
        """Return the job template, by DRMAA's names."""
        return {
            "remoteCommand": str(self.script),
            "workingDirectory": str(self.run.directory),
            "jobName": "gridengine",
            "outputPath": f":{log('$drmaa_incr_ph$')}",
            "joinFiles": True,
            "nativeSpecification": self._request_for(demand).specification(),
        }

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return what is known of these tasks; of many, those that matter first and the others in
        turn.
        """
        now = time.monotonic()
        known = {handle.id: handle for handle in handles if handle in self._asked}
        try:
            told = self._opened().status(
                [handle.id for handle in self._in_turn(known.values())[:MOST_ASKED]], POLL_SECONDS
            )
        except (drmaa.Trouble, drmaa.Unavailable, drmaa.Refused) as error:
            logger.info("the batch system does not say how the workers are: %s", error)
            told = {}
        reports = {}
        for id, (state, end) in told.items():
            handle = known[id]
            self._asked[handle] = now
            if state in STATES:
                reports[handle] = Report(STATES[state])
                (
                    self._queued.add
                    if STATES[state] is WorkerStatus.QUEUED
                    else self._queued.discard
                )(handle)
            elif end is not None:
                self._ended[handle] = (ending(end, self._system.kind), now)
            elif state != "undetermined":
                self._ending_since.setdefault(handle, now)
        return reports | self._inquests(known.values(), now)

    def _in_turn(self, handles: Iterable[Handle]) -> list[Handle]:
        """Return whom to ask, the most urgent first: in turn one that runs, one of the first that
        wait, one of the others.
        """
        open_ones = [handle for handle in handles if handle not in self._ended]
        queued = [handle for handle in open_ones if handle in self._queued]
        active = [handle for handle in open_ones if handle not in self._queued]
        groups = [
            sorted(group, key=self._asked.__getitem__)
            for group in (active, queued[:FIRST_QUEUED], queued[FIRST_QUEUED:])
        ]
        return [
            handle for row in itertools.zip_longest(*groups) for handle in row if handle is not None
        ]

    def _inquests(self, handles: Iterable[Handle], now: float) -> dict[Handle, Report]:
        """Return a report for each task that has ended, once its reason is known or has been looked
        for long enough.
        """
        reports = {}
        for handle in handles:
            report = None
            if handle in self._ended:
                report = self._inquest(handle, *self._ended[handle], now)
            elif now - self._ending_since.get(handle, now) > END_SECONDS:
                report = self._in_error(handle)
            if report is not None:
                self._forget([handle])
                reports[handle] = report
        return reports

    def _inquest(self, handle: Handle, end: Ending, since: float, now: float) -> Report | None:
        failure = None
        if not end.clean and not end.deleted:
            failure = (
                self._words.logged_failure(handle.id)
                if end.started
                else self._words.failure(handle.id)
            )
            if failure is None and not end.started and now - since < REASON_SECONDS:
                return None
        reason = "; ".join(filter(None, [end.reason, failure.words if failure else ""]))
        request = self._requests[handle]
        fault = request.fault(end.usage) if end.killed else None
        if end.killed and request.limits:
            reason += f" (its limits: {request.limits})"
        return replace(
            self._report(handle, reason, failure, clean=end.clean, deleted=end.deleted), fault=fault
        )

    def _in_error(self, handle: Handle) -> Report:
        """Report a task that the batch system calls failed, and which has not ended: it is in the
        error state.
        """
        reason = self._words.error_state(handle.id)
        self.cancel([handle])
        return self._report(
            handle,
            f"in the error state: {reason}"
            if reason
            else "failed, and the batch system does not say why",
            None,
        )

    def _report(
        self,
        handle: Handle,
        reason: str,
        failure: Failure | None,
        *,
        clean: bool = False,
        deleted: bool = False,
    ) -> Report:
        error = not_started(handle, reason, deleted=deleted, host=failure.host if failure else "")
        return Report(WorkerStatus.ENDED if clean else WorkerStatus.FAILED, reason, error, deleted)

    def _forget(self, handles: Iterable[Handle]) -> None:
        for handle in handles:
            self._asked.pop(handle, None)
            self._queued.discard(handle)
            self._ended.pop(handle, None)
            self._ending_since.pop(handle, None)
            self._requests.pop(handle, None)

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Delete these tasks; when the batch system cannot be reached, as soon as it can."""
        ours = [handle for handle in handles if handle in self._asked]
        if not ours or os.getpid() != self.owner:
            return
        try:
            self._opened().terminate([handle.id for handle in ours])
        except (drmaa.Trouble, drmaa.Unavailable, drmaa.Refused) as error:
            logger.warning("%d cluster tasks could not be deleted yet: %s", len(ours), error)
        self._forget(ours)

    def explain(self, handles: Sequence[Handle]) -> str:
        """Return what the first of these tasks waits for, as `qstat -j` explains it."""
        return self._words.waiting(handles[0].id) if handles else ""

    def close(self) -> None:
        """Delete the tasks that are left, and give back the session."""
        if self._session is None or os.getpid() != self.owner:
            return
        self.cancel(list(self._asked))
        session, self._session = self._session, None
        try:
            if self._guarded:
                session.unguard(self.files)
        except (drmaa.Trouble, drmaa.Unavailable, drmaa.Refused) as error:
            logger.debug("the DRMAA process cannot be told: %s", error)
        session.__exit__()
        if self._guarded:
            self.script.unlink(missing_ok=True)


def unavailable(error: drmaa.Unavailable) -> SchedulerUnavailable:
    """Return what to raise when DRMAA cannot be used."""
    return SchedulerUnavailable(f"no batch system can be used through DRMAA: {error}")


def refusal(error: drmaa.Refused, native: str) -> TryAgain | SubmissionRefused:
    """Return what a refusal of a job that was asked for in these words means."""
    limit = drmaa.TASKS_LIMIT.search(str(error))
    if limit:
        return TooMany(str(error), int(limit[1]))
    if error.for_now:
        return TryAgain(str(error))
    asked = f"; it was asked for: {native}" if native else ""
    hint = (
        "no queue has all of this, even when it is empty: ask for less"
        if "no suitable queues" in str(error)
        else None
    )
    return SubmissionRefused(f"the batch system refuses the job: {error}{asked}", hint=hint)


def system_here() -> str:
    """Return the name of the batch system that takes this user's jobs through DRMAA: a session
    opens, and a job is taken.

    A library for Slurm is left where Slurm's own commands are: `SlurmScheduler` learns more from
    them.

    Raises:
        SchedulerUnavailable: there is none.
    """
    with drmaa.shared_session() as session:
        try:
            system = session.start()
            if system.kind == SLURM and not without_slurm(os.environ):
                raise SchedulerUnavailable(f"the DRMAA library speaks to {system}")
            session.probe()
        except drmaa.Refused as error:
            raise SchedulerUnavailable(f"a job of this user is refused: {error}") from error
        except (drmaa.Trouble, drmaa.Unavailable) as error:
            raise SchedulerUnavailable(str(error)) from error
    return GRID_ENGINE_UNNAMED.name if system.kind == GRID_ENGINE else f"{system}, through DRMAA,"
