"""The schedulers that exist, one entry each; nothing else lists them all.

An entry names modules below this package, which are imported when first needed: choosing local
processes imports nothing of a batch system.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gridengine.schedulers.detect import why_no_command, why_no_grid_engine

if TYPE_CHECKING:
    from gridengine.schedulers.base import Scheduler
    from gridengine.schedulers.batch_words import BatchWords
    from gridengine.schedulers.checks import Finding
    from gridengine.schedulers.command_scheduler import CommandScheduler


PACKAGE = "gridengine.schedulers"


class SchedulerEntry(NamedTuple):
    """One scheduler.

    name: as in `scheduler="slurm"`, on the command line (`--scheduler slurm`), in the settings, and
        as the table of the settings files with a batch system's own names.
    path: its class, such as "module:Class" in `package`.
    system: the batch system, for people; empty if there is none.
    command: the command that submits, if the system is used by its commands: its class is a
        `CommandScheduler`, and the next three are not needed.
    checks: the path of the function that yields the findings of `gridengine doctor`, given an
        environment; empty if no workers are started.
    why_absent: returns, quickly, why there can be no such batch system here; empty if there can.
    probe: the path of the function that returns the batch system that takes this user's jobs, or
        raises a ConfigurationError or a BatchSystemError.
    drmaa: the path of the class of its words for a DRMAA library that speaks to it.
    """

    name: str
    path: str
    system: str = ""
    command: str = ""
    checks: str = ""
    why_absent: Callable[[Mapping[str, str]], str] | None = None
    probe: str = ""
    drmaa: str = ""
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
        """Return whether a scheduler is of this class, or of one derived from it."""
        return any(one.__name__ == self.class_name for one in type(scheduler).__mro__)

    def make(self, **options: Any) -> Scheduler:
        """Return a scheduler with these options, such as `max_workers=4`."""
        return self.scheduler_class()(**options)

    def drmaa_words(self, title: str) -> BatchWords:
        """Return the words of its requests by DRMAA; `title` names the system and the library."""
        return cast("BatchWords", _imported(self.drmaa)(title))

    def findings(self, environment: Mapping[str, str]) -> Iterator[Finding]:
        """Yield the findings of `gridengine doctor` on this scheduler and machine, as they are
        made.
        """
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

        absent = self.why_absent
        if self.command:
            reason = why_no_command(self.command, environment)
        else:
            reason = "" if absent is None else absent(environment)
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
"""For jobs that request nothing; it cannot be chosen by name."""
STEPS = SchedulerEntry("steps", "slurm.steps:StepScheduler")
"""For scripts that are a batch job of several nodes; it cannot be chosen by name."""
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
        "slurm",
        "slurm.scheduler:SlurmScheduler",
        "Slurm",
        "sbatch",
        drmaa="slurm.commands:DrmaaWords",
    ),
    SchedulerEntry("htcondor", "htcondor:HTCondorScheduler", "HTCondor", "condor_submit"),
    SchedulerEntry("oar", "oar:OARScheduler", "OAR", "oarsub"),
    SchedulerEntry("pbs", "pbs:PBSScheduler", "PBS", "pbs_rstat"),
    SchedulerEntry("lsf", "lsf:LSFScheduler", "LSF", "bsub"),
    SchedulerEntry("flux", "flux:FluxScheduler", "Flux", "flux"),
    SchedulerEntry("inline", "workerless:InlineScheduler"),
)
"""All of them; batch systems in the order of preference."""
BY_NAME: Mapping[str, SchedulerEntry] = {entry.name: entry for entry in SCHEDULERS}
HAND_STARTED = SchedulerEntry("none", "workerless:HandStartedScheduler")
"""For stand-alone dispatchers only: calls of a script would wait for ever."""
STARTERS = tuple(entry.name for entry in SCHEDULERS if entry.starts_workers)
"""The names of those that start workers."""
OF_DISPATCHERS = (*STARTERS, HAND_STARTED.name)
"""The names of those that a stand-alone dispatcher may have."""
BATCH_SYSTEMS = tuple(entry for entry in SCHEDULERS if entry.system)
BY_CLASS: Mapping[str, SchedulerEntry] = {entry.class_name: entry for entry in SCHEDULERS}


def entry_of(name: str) -> SchedulerEntry:
    """Return the scheduler of this name.

    Raises:
        ConfigurationError: there is no such scheduler; the text lists the known ones.
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
