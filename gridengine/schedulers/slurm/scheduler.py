"""Workers on a cluster that runs Slurm, through its own commands."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType

from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY
from gridengine.resources.units import flag
from gridengine.schedulers.batch_system import BatchScheduler, shown_as
from gridengine.schedulers.launcher import LaunchContext
from gridengine.schedulers.slurm.commands import Slurm
from gridengine.schedulers.slurm.launcher import SlurmLauncher, site_for
from gridengine.schedulers.slurm.options import Option, own_options, own_walltime, sbatch_options
from gridengine.schedulers.slurm.site import Site
from gridengine.settings.values import settings
from gridengine.wire.connection_file import JOB_END

FIRST_LINES = """if [[ ${SLURM_RESTART_COUNT:-0} -gt 0 ]]; then
    echo "gridengine: Slurm has started this job again on $HOSTNAME;" \\
        "another has taken its place, and it ends" >&2
    exit 0
fi
[[ -z ${SLURM_SRUN_COMM_PORT-} ]] || export %s="scancel --quiet $SLURM_JOB_ID\""""
"""A task that Slurm put back into its queue and started again must not pass for the worker that it
was before. And a job of srun's outlives its worker when that srun is gone, as after a crash of the
machine that it ran on."""


class SlurmScheduler(BatchScheduler):
    """Runs calls in jobs of a Slurm.

    Args:
        partition, account, qos: `--partition`, `--account`, `--qos` (default: the settings', else
            Slurm's own).
        native: more options of sbatch, as they are.
        max_workers: the most cluster tasks at a time (default: the setting, 1000).
        min_workers: so many are asked for at the first use, and kept though they have nothing to do
            (default 0).
        start_timeout: for how many seconds calls may wait for their first worker, then they fail
            with `WorkerNotStarted` and what the
            batch system says of it (default: the setting, which is for ever).
        jobs_per_worker: after how many calls a cluster task ends (default: never).
        prologue: shell lines that run before the worker, as "module load python". With any, the
            shell is a login shell. When one fails, so does the task.
        environment: variables for the calls, besides those of their caller; None leaves them what
            the batch system gives.
        python: the interpreter on the nodes (default: this one); or the words of a command that
            acts as one, as `["apptainer", "exec", "image.sif", "python3"]`.
        worker_resources: what each worker holds, as `Cores(32) & Memory(120)`: calls share it, and
            each worker runs all that fits (default: each worker holds what one call asks for, and
            runs one call at a time).
        name: what the batch system calls the jobs (default: as the function whose calls they were
            first submitted for, or as the job).
        strict: what Slurm takes and can never start (it waits for `PartitionConfig`,
            `PartitionTimeLimit`, `BadConstraints` or the like) is an error at once; with False it
            waits, for somebody to change the site or the job.
        options: any option of sbatch by its name, with underscores for hyphens: `time="2:00:00"`,
        `mem="4G"`, `exclusive=True`.

    Raises:
        TypeError, ConfigurationError: an argument is not what it must be; the text names it and its
        value.
    """

    _start_at_once = True

    def __init__(
        self,
        *,
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        native: str = "",
        max_workers: int | None = None,
        min_workers: int = 0,
        start_timeout: float | None = None,
        jobs_per_worker: int | None = None,
        prologue: Sequence[str] = (),
        environment: Mapping[str, str] | None = MappingProxyType({}),
        python: str | Sequence[str] | None = None,
        worker_resources: Resource | None = None,
        name: str | None = None,
        strict: bool = True,
        **options: Option,
    ) -> None:
        super().__init__(
            max_workers=max_workers,
            min_workers=min_workers,
            start_timeout=start_timeout,
            jobs_per_worker=jobs_per_worker,
            prologue=prologue,
            environment=environment,
            python=python,
            worker_resources=worker_resources,
            name=name,
        )
        named = {"partition": partition, "account": account, "qos": qos}
        given = {name: value for name, value in named.items() if value is not None}
        self._options = own_options({**given, **options}, native)
        self.walltime = own_walltime(self._options)
        self._strict = flag("strict", strict)
        self._site_asked: Future[Site] | None = None

    def __repr__(self) -> str:
        return shown_as(self, shlex.join(self._options))

    def launcher(self, run: LaunchContext) -> SlurmLauncher:
        return SlurmLauncher(
            run,
            script=self.script(run, FIRST_LINES % JOB_END),
            name=self._name,
            options=self._options,
            strict=self._strict,
            site=self._site_asked,
        )

    def _prepare(self) -> None:
        """Ask Slurm what it allows, which takes about as long as to import what is needed next."""
        with self._lock:
            if self._shared is None and not self._closed and self._site_asked is None:
                self._site_asked = Future()
                threading.Thread(
                    target=ask_site,
                    args=(self._site_asked, Slurm(os.environ), self._options),
                    name="gridengine-slurm-site",
                    daemon=True,
                ).start()


def ask_site(answer: Future[Site], slurm: Slurm, options: Sequence[str]) -> None:
    """Set what is to be the answer to what this Slurm allows."""
    try:
        answer.set_result(site_for(slurm, options))
    except BaseException as error:
        answer.set_exception(error)


def system_here() -> str:
    """Return the name of the batch system whose commands are here, when a job of this user would be
    taken.

    Raises:
        ConfigurationError: a setting is wrong.
        BatchSystemError: there is none, or it takes no job.
    """
    Slurm(os.environ).probe(sbatch_options([], ANY, settings().slurm))
    return "Slurm"
