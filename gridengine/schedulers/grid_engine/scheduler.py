"""Workers on a cluster that DRMAA 1.0 speaks to: Grid Engine first, and any other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO
from gridengine.resources.base import Resource as Held
from gridengine.schedulers.batch_system import BatchScheduler, shown_as
from gridengine.schedulers.detect import why_no_slurm
from gridengine.schedulers.grid_engine import drmaa
from gridengine.schedulers.grid_engine.drmaa_systems import GRID_ENGINE, GRID_ENGINE_UNNAMED, SLURM
from gridengine.schedulers.grid_engine.launcher import GridEngineLauncher
from gridengine.schedulers.grid_engine.options import own_walltime
from gridengine.schedulers.grid_engine.request import Request, Resource
from gridengine.schedulers.launcher import LaunchContext, Unavailable
from gridengine.schedulers.registry import BY_NAME


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
        min_workers: so many are asked for at the first use, and kept though they have nothing to do
            (default 0).
        start_timeout: for how many seconds calls may wait for their first worker, then they fail
            with `WorkerNotStarted` and what the batch system says of it (default: the setting,
            which is for ever).
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
        min_workers: int = 0,
        start_timeout: float | None = None,
        jobs_per_worker: int | None = None,
        prologue: Sequence[str] = (),
        environment: Mapping[str, str] | None = MappingProxyType({}),
        python: str | Sequence[str] | None = None,
        worker_resources: Held | None = None,
        name: str | None = None,
        drmaa_library: str | os.PathLike[str] = "",
        **resources: Resource,
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
        self._request = Request(queue, parallel_environment, native, resources)
        self.walltime = own_walltime(self._request)
        if self.walltime is None and "--time=" in native:  # a Slurm's
            self.walltime = (
                BY_NAME[SLURM]
                .options_module()
                .own_walltime([word for word in native.split() if word.startswith("--time=")])
            )
        self._library = library_path(drmaa_library)

    def __repr__(self) -> str:
        return shown_as(self, self._request.specification())

    def launcher(self, run: LaunchContext) -> GridEngineLauncher:
        return GridEngineLauncher(
            run,
            script=self.script(run),
            name=self._name,
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


def system_here() -> str:
    """Return the name of the batch system that takes this user's jobs through DRMAA: a session
    opens, and a job is taken.

    A library for Slurm is left where Slurm's own commands are: `SlurmScheduler` learns more from
    them.

    Raises:
        BatchSystemError: there is none, or it takes no job.
    """
    with drmaa.shared_session() as session:
        system = session.start()
        if system.kind == SLURM and not why_no_slurm(os.environ):
            raise Unavailable(f"the DRMAA library speaks to {system}")
        session.probe()
    return GRID_ENGINE_UNNAMED.name if system.kind == GRID_ENGINE else f"{system} (through DRMAA)"
