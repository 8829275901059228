"""The schedulers that there are, one entry for each; nothing else names them all.

An entry names modules below this package, which are imported when they are first needed: to choose
local processes imports nothing of a batch system.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gridengine.schedulers.detect import why_no_command, why_no_grid_engine

if TYPE_CHECKING:
    from gridengine.schedulers.base import Scheduler
    from gridengine.schedulers.checks import Finding
    from gridengine.schedulers.command_scheduler import CommandScheduler


PACKAGE = "gridengine.schedulers"


class SchedulerEntry(NamedTuple):
    """One scheduler.

    name: as `scheduler="slurm"`, on the command line (`--scheduler slurm`), in the settings, and of
        the table of the settings files that holds a batch system's own names.
    path: of its class, as "module:Class" in `package`.
    system: the batch system, for people; empty when there is none.
    command: the command that submits, of a batch system that is used by its commands: its class is
        a `CommandScheduler`, and what follows is the same for all of these.
    checks: of the function that yields what `gridengine doctor` finds, given an environment; empty
        where there is nothing to find, since no workers are started.
    why_absent: returns, at once, why there can be no such batch system here, or nothing.
    probe: the path of the function that returns which batch system takes this user's jobs, or
        raises a ConfigurationError or a BatchSystemError.
    options: the module with the words of its requests, for a DRMAA library that speaks to it:
        `drmaa_options` and `own_walltime`.
    """

    name: str
    path: str
    system: str = ""
    command: str = ""
    checks: str = ""
    why_absent: Callable[[Mapping[str, str]], str] | None = None
    probe: str = ""
    options: str = ""
    package: str = PACKAGE

    @property
    def class_name(self) -> str:
        """The public name of its class."""
        return self.path.partition(":")[2]

    @property
    def starts_workers(self) -> bool:
        return bool(self.checks or self.command)

    def scheduler_class(self) -> type[Scheduler]:
        return cast("type[Scheduler]", _imported(self.path, self.package))

    def is_of(self, scheduler: Scheduler) -> bool:
        """Return whether a scheduler is of this class, or of one that is derived from it."""
        return any(one.__name__ == self.class_name for one in type(scheduler).__mro__)

    def make(self, **options: Any) -> Scheduler:
        """Return a scheduler with these options, as `max_workers=4`."""
        return self.scheduler_class()(**options)

    def options_module(self) -> Any:
        """Return the module with the words of its requests."""
        return importlib.import_module(f"{PACKAGE}.{self.options}")

    def findings(self, environment: Mapping[str, str]) -> Iterator[Finding]:
        """Yield what there is of it on this machine, as it is found."""
        if self.checks:
            yield from _imported(self.checks)(environment)
        if self.command:
            from gridengine.schedulers.checks import findings

            kind = cast("type[CommandScheduler]", self.scheduler_class())
            yield from findings(kind._commands(), environment)

    def system_here(self, environment: Mapping[str, str]) -> str:
        """Return the name of the batch system that takes this user's jobs.

        Raises:
            SchedulerUnavailable: there is none; the text says why.
        """
        from gridengine.errors import ConfigurationError, SchedulerUnavailable

        if self.command:
            reason = why_no_command(self.command, environment)
        else:
            reason = self.why_absent(environment) if self.why_absent is not None else ""
        if reason:
            raise SchedulerUnavailable(reason)
        from gridengine.schedulers.launcher import BatchSystemError, Refused

        try:
            if self.command:
                return str(_imported("command_scheduler:system_here")(self.scheduler_class()))
            return str(_imported(self.probe)())
        except (BatchSystemError, ConfigurationError) as error:
            refused = "a job of this user is refused: " if isinstance(error, Refused) else ""
            raise SchedulerUnavailable(f"{refused}{error}") from None


def _imported(path: str, package: str = PACKAGE) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"{package}.{module}".lstrip(".")), name)


PROCESSES = SchedulerEntry("processes", "local:ProcessScheduler", checks="checks:machine_findings")
UNBOUNDED_PROCESSES = SchedulerEntry("jobs", "local:UnboundedProcessScheduler")
"""Of jobs that ask for nothing; nobody names it."""
STEPS = SchedulerEntry("steps", "slurm.steps:StepScheduler")
"""Of scripts that are a batch job of several nodes; nobody names it."""
SCHEDULERS = (
    PROCESSES,
    SchedulerEntry(
        "grid_engine",
        "grid_engine.scheduler:GridEngineScheduler",
        checks="grid_engine.diagnostics:findings",
        system="Grid Engine",
        why_absent=why_no_grid_engine,
        probe="grid_engine.scheduler:system_here",
    ),
    SchedulerEntry(
        "slurm", "slurm.scheduler:SlurmScheduler", "Slurm", "sbatch", options="slurm.commands"
    ),
    SchedulerEntry("htcondor", "htcondor:HTCondorScheduler", "HTCondor", "condor_submit"),
    SchedulerEntry("oar", "oar:OARScheduler", "OAR", "oarsub"),
    SchedulerEntry("pbs", "pbs:PBSScheduler", "PBS", "pbs_rstat"),
    SchedulerEntry("lsf", "lsf:LSFScheduler", "LSF", "bsub"),
    SchedulerEntry("flux", "flux:FluxScheduler", "Flux", "flux"),
    SchedulerEntry("inline", "workerless:InlineScheduler"),
)
"""All of them; batch systems in the order in which they are preferred."""
BY_NAME: Mapping[str, SchedulerEntry] = {entry.name: entry for entry in SCHEDULERS}
HAND_STARTED = SchedulerEntry("none", "workerless:HandStartedScheduler")
"""Of stand-alone dispatchers alone: calls of a script could only wait there for ever."""
STARTERS = tuple(entry.name for entry in SCHEDULERS if entry.starts_workers)
"""The names of those that start workers."""
OF_DISPATCHERS = (*STARTERS, HAND_STARTED.name)
"""The names of those that a stand-alone dispatcher may have."""
BATCH_SYSTEMS = tuple(entry for entry in SCHEDULERS if entry.system)
BY_CLASS: Mapping[str, SchedulerEntry] = {entry.class_name: entry for entry in SCHEDULERS}


def entry_of(name: str) -> SchedulerEntry:
    """Return the scheduler of this name.

    Raises:
        ConfigurationError: there is none; the text lists those that there are.
    """
    if name in BY_NAME:
        return BY_NAME[name]
    from importlib.metadata import entry_points

    from gridengine.settings.schema import OF_SITES

    for found in entry_points(group=OF_SITES, name=name):
        return SchedulerEntry(name, found.value, name, name, package="")
    from gridengine.errors import ConfigurationError
    from gridengine.settings.files import suggestion

    raise ConfigurationError(f"there is no scheduler {name!r}", hint=suggestion(name, BY_NAME))
