"""`GridEngineScheduler`: the class by which a user runs calls on Grid Engine, or on any other batch
system that has a DRMAA 1.0 library.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO
from gridengine.schedulers.batch_system import BatchScheduler, shown_as
from gridengine.schedulers.checks import Finding
from gridengine.schedulers.detect import why_no_command
from gridengine.schedulers.grid_engine import drmaa
from gridengine.schedulers.grid_engine.diagnostics import findings
from gridengine.schedulers.grid_engine.drmaa import GRID_ENGINE, GRID_ENGINE_UNNAMED, SLURM
from gridengine.schedulers.grid_engine.launcher import GridEngineLauncher
from gridengine.schedulers.grid_engine.options import (
    GridEngineWords,
    OwnArguments,
    TaskOptions,
    drmaa_words,
)
from gridengine.schedulers.launcher import LaunchContext, Unavailable
from gridengine.schedulers.registry import BY_NAME
from gridengine.schedulers.requests import own_options, own_walltime


class GridEngineScheduler(BatchScheduler):
    """Runs calls in jobs of a Grid Engine, or of another batch system that has a DRMAA library: the
    library says which.

    Requests to a Slurm are written in its own options. Other systems get the text of `native`, and
    everything else is an error.

    Args:
        queue: `-q`: the queue or queues to run in; Slurm's partition.
        parallel_environment: `-pe`: a name and a number of slots for each worker, such as "smp 4";
            or a name alone, and calls say how many slots, as by `resources=Ranks(32)`.
        drmaa_library: the path of the DRMAA library (default: the setting, else
            DRMAA_LIBRARY_PATH, else Grid Engine's own).
        options: `-l name=value`, such as `h_vmem="10G"`. Slurm takes `h_rt` and `h_vmem`.
    """

    _commands = GridEngineWords
    _own_arguments: ClassVar[Mapping[str, object]] = {
        "queue": None,
        "parallel_environment": None,
        "drmaa_library": "",
    }

    def _take_options(self, native: str, given: dict[str, Any]) -> None:
        self._library = library_path(given.pop("drmaa_library", ""))
        words = GridEngineWords()
        options = own_options(words, given, native)
        self._shown = TaskOptions.of(words, words.completed(options)).native
        held = self.worker_resources or ZERO
        self._own = OwnArguments(given, native, held, self._exclude_hosts)
        self.walltime = own_walltime(words, options)
        times = [word for word in options if word.startswith("--time=")]
        if self.walltime is None and times:
            self.walltime = own_walltime(drmaa_words(SLURM, "Slurm"), times)

    @classmethod
    def _findings(cls, environment: Mapping[str, str]) -> Iterator[Finding]:
        return findings(environment)

    @classmethod
    def _system_here(cls) -> str:
        """Open a session, and have a job taken.

        If Slurm's commands are here, a DRMAA library for Slurm is passed over: `SlurmScheduler`
        learns more from the commands.
        """
        with drmaa.shared_session() as session:
            system = session.start()
            if system.kind == SLURM and not why_no_command(BY_NAME[SLURM].command, os.environ):
                raise Unavailable(f"the DRMAA library speaks to {system}")
            session.probe()
        by_drmaa = f"{system} (through DRMAA)"
        return GRID_ENGINE_UNNAMED.name if system.kind == GRID_ENGINE else by_drmaa

    def __repr__(self) -> str:
        return shown_as(self, self._shown)

    def launcher(self, run: LaunchContext) -> GridEngineLauncher:
        script = self.script(run)
        return GridEngineLauncher(
            run, script=script, name=self._name, own=self._own, library=self._library
        )


def library_path(given: object) -> str:
    """Return the DRMAA library that an argument names: the absolute path of a file, or a name for
    the linker.

    Raises:
        TypeError, ConfigurationError: the argument is not a path, or there is no such file.
    """
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"drmaa_library must be a path, not {given!r}")
    path = os.fsdecode(given)
    if "/" not in path:
        return path
    if not Path(path).is_file():
        raise ConfigurationError(
            f"drmaa_library={path!r} is not a file",
            hint="it is the path of a library, such as /opt/lib/libdrmaa.so",
        )
    return str(Path(path).absolute())
