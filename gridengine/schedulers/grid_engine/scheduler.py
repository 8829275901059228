"""Workers on a cluster that DRMAA 1.0 speaks to: Grid Engine first, and any other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO
from gridengine.schedulers.batch_system import BatchScheduler, shown_as
from gridengine.schedulers.detect import why_no_command
from gridengine.schedulers.grid_engine import drmaa
from gridengine.schedulers.grid_engine.drmaa import GRID_ENGINE, GRID_ENGINE_UNNAMED, SLURM
from gridengine.schedulers.grid_engine.launcher import GridEngineLauncher
from gridengine.schedulers.grid_engine.options import Request, own_walltime
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
        drmaa_library: the path of the DRMAA library (default: the setting, else what
            DRMAA_LIBRARY_PATH says, else Grid Engine's own).
        options: `-l name=value`, as `h_vmem="10G"`. Slurm is told `h_rt` and `h_vmem`.
    """

    def _take_options(self, native: str, given: dict[str, Any]) -> None:
        self._library = library_path(given.pop("drmaa_library", ""))
        queue, environment = given.pop("queue", None), given.pop("parallel_environment", None)
        self._request = Request(queue, environment, native, given)
        self.walltime = own_walltime(self._request)
        if self.walltime is None and "--time=" in native:  # a Slurm's
            self.walltime = (
                BY_NAME[SLURM]
                .options_module()
                .own_walltime([word for word in native.split() if word.startswith("--time=")])
            )

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
        if system.kind == SLURM and not why_no_command("sbatch", os.environ):
            raise Unavailable(f"the DRMAA library speaks to {system}")
        session.probe()
    return GRID_ENGINE_UNNAMED.name if system.kind == GRID_ENGINE else f"{system} (through DRMAA)"
