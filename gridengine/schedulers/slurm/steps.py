"""Workers on all nodes of the Slurm job whose script this process is: steps of that job.

A step uses resources that the job already has, so it never waits in a queue. With `--overlap` it
shares them with the batch script and with steps that calls start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gridengine.arguments import whole
from gridengine.errors import ConfigurationError, exit_words
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, Demand, encode_demand
from gridengine.resources.kinds import Cores
from gridengine.schedulers.allocation import Allocation
from gridengine.schedulers.batch_system import BatchLauncher, BatchScheduler, exit_report
from gridengine.schedulers.command import CommandRunner, Guard
from gridengine.schedulers.detect import this_allocation
from gridengine.schedulers.launcher import (
    BatchSystemError,
    Handle,
    LaunchContext,
    Report,
    TryAgain,
    WorkerStatus,
    failed,
)
from gridengine.schedulers.local import held_resources, memory_here
from gridengine.schedulers.slurm.commands import SlurmCommands
from gridengine.schedulers.slurm.srun import ANSWER_SECONDS, END_SECONDS, STEP, Srun

PROBE_SECONDS = 10.0
BUSY_SECONDS = 5
"""How long srun waits for a step."""
HAS_STEP = r"srun: launching StepId=(?P<id>\S+) on host (?P<host>[^\s,]+)"
LOGGED = 'exec >"$1" 2>&1; shift; exec "$0" "$@"'
"""Runs a script with its output in a file, opened on the worker's node, which reads its path."""
CANCEL = 'scancel --quiet "$@"; :'
"""Cancels steps. Some may have ended, which is an error to scancel."""


def why_no_steps(allocation: Allocation) -> str:
    """Try srun on all nodes of this job; return why it starts nothing there, empty if it does."""
    nodes = str(allocation.nodes)
    try:
        tasks = f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"
        _slurm().run([*_step(allocation.job, *tasks), "true"], PROBE_SECONDS)
    except BatchSystemError as error:
        return f"srun starts nothing on the others: {error}"
    return ""


def _slurm() -> CommandRunner:
    """Return a runner of Slurm's commands, without the variables of this job's own request."""
    own = {name: text for name, text in os.environ.items() if name != "SLURM_CLUSTERS"}
    return CommandRunner(SlurmCommands(), own)


def _step(job: str, *options: str) -> list[str]:
    return ["srun", f"--jobid={job}", f"--immediate={BUSY_SECONDS}", *options, *STEP]


class StepScheduler(BatchScheduler):
    """Runs calls on all nodes of the Slurm job whose script this process is, one worker on each.

    Args:
        max_workers: how many cores to use (default: all that the job has).

    Raises:
        TypeError, ConfigurationError: an argument has a wrong type or value, or this process is not
            the script of a job with several nodes.
    """

    _start_at_once = True

    def __init__(self, max_workers: int | None = None) -> None:
        allocation = this_allocation()
        if allocation is None or not allocation.shares:
            raise ConfigurationError("this process is not the script of a job with several nodes")
        most = sum(allocation.shares)
        cores = most if max_workers is None else whole("max_workers", max_workers)
        self._job = allocation.job
        self._held = list(_first_cores(allocation.shares, cores))
        super().__init__(
            max_workers=len(self._held),
            min_workers=len(self._held),  # the nodes are there, used or not
            worker_resources=max(self._held, key=_cores_of),
        )

    def _take_options(self, native: str, given: dict[str, Any]) -> None:
        """Do nothing: steps have no options."""

    def __repr__(self) -> str:
        return f"StepScheduler(max_workers={self.cores})"

    @property
    def cores(self) -> int:
        return sum(map(_cores_of, self._held))

    def launcher(self, run: LaunchContext) -> StepLauncher:
        script = self.script(run, more='"$@"')
        return StepLauncher(run, script=script, job=self._job, held=self._held)


def _first_cores(shares: Sequence[int], cores: int) -> Iterator[Resource]:
    """Yield the resources of the worker on each node, for this many cores in all, beginning with
    the first nodes. If the job does not say how many cores a node has, the node counts like this
    one.
    """
    for share in shares:
        if cores > 0:
            yield held_resources(memory_here(share), min(share, cores), asked=False)
        cores -= share


def _cores_of(held: Resource) -> int:
    return held.get(Cores).N  # type: ignore[union-attr]


class StepLauncher(BatchLauncher[Srun]):
    """Starts one worker on each node of a job, each by its own srun.

    Args:
        held: the resources of the worker on each node.
    """

    def __init__(
        self, run: LaunchContext, *, script: str, job: str, held: Sequence[Resource]
    ) -> None:
        super().__init__(run, script=script)
        self.largest = 1
        self._job = job
        self._held = held
        self._slurm = _slurm()
        self._steps: dict[int, Srun] = {}
        """The last srun for each node, by the node's place in the job."""
        self._failed = set[int]()
        """The places of nodes whose last worker failed: the others come first."""
        self._guard: Guard | None = None

    def _free_places(self) -> list[int]:
        running = {place for place, srun in self._steps.items() if srun.is_running}
        free = (place for place in range(len(self._held)) if place not in running)
        return sorted(free, key=self._failed.__contains__)

    def request(
        self, count: int, demand: Demand, log: Callable[[object], str]
    ) -> dict[str, list[str]]:
        place = next(iter(self._free_places()), 0)
        parts, _ = encode_demand(Demand(self._held[place]))
        held = msgspec.json.encode(parts).decode()
        options = "--verbose", f"--relative={place}", "--nodes=1", "--ntasks=1"
        shell = "/bin/bash", "-c", LOGGED
        return {"argv": [*_step(self._job, *options), *shell, str(self.script), log(1), held]}

    def submit(self, count: int, demand: Demand, log: Callable[[object], str]) -> list[str]:
        """Start a worker on the first node without one."""
        places = self._free_places()
        if not places:
            raise TryAgain("each node of this job has a worker")
        if self._guard is None:
            command = ["/bin/sh", "-c", CANCEL, "scancel"]
            self._guard = Guard(command, self.files, self._slurm.environment)
        argv = self.request(count, demand, log)["argv"]
        step = Srun(argv, self._slurm.environment, log(1), HAS_STEP)
        self._steps[places[0]] = step
        if not step.wait_for_answer(time.monotonic() + BUSY_SECONDS + ANSWER_SECONDS):
            step.end()
        if not step.job:
            self._failed.add(places[0])
            raise TryAgain(f"srun starts no worker on another node of this job: {step.words}")
        self._failed.discard(places[0])
        self._guard.add(step.job)
        return [step.job]

    def launched(self, handles: Sequence[Handle], demand: Demand = ANY) -> None:
        steps = {step.job: step for step in self._steps.values()}
        self.tasks.update((handle, steps[handle.id]) for handle in handles)

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        known = {handle: self.tasks[handle] for handle in handles if handle in self.tasks}
        reports = {handle: _report(handle, step) for handle, step in known.items()}
        failed_steps = [
            known[handle] for handle, one in reports.items() if one.state is WorkerStatus.FAILED
        ]
        self._failed.update(place for place, step in self._steps.items() if step in failed_steps)
        self.forget(
            [handle for handle, one in reports.items() if one.state is not WorkerStatus.RUNNING]
        )
        return reports

    def delete(self, ids: Sequence[str]) -> None:
        """End these steps: Slurm ends a step with its srun."""
        for step in self._steps.values():
            if step.job in ids:
                step.end()

    def close(self) -> None:
        """Wait for all workers, which have been told to leave; end those that do not in time."""
        if os.getpid() != self.owner:
            return
        deadline = time.monotonic() + END_SECONDS
        for step in self._steps.values():
            if not step.wait_for_end(deadline):
                step.end()
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.dismiss()
        self.script.unlink(missing_ok=True)


def _report(handle: Handle, step: Srun) -> Report:
    if step.is_running:
        return Report(WorkerStatus.RUNNING)
    status = step.status
    words = exit_words(status if status <= 128 else 128 - status)
    end = failed(f"{words}: {step.words}") if status else Report(WorkerStatus.ENDED, words)
    return exit_report(handle, end, step.host)
