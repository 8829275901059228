"""The schedulers that exist, one entry each: those of `settings/systems`, and those without a batch
system.

An entry names modules below this package, which are imported when first needed: choosing local
processes imports nothing of a batch system.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gridengine.errors import ConfigurationError, SchedulerUnavailable
from gridengine.schedulers.detect import why_no_command, why_no_grid_engine
from gridengine.schedulers.launcher import BatchSystemError, BatchSystemRefusal
from gridengine.settings.systems import SYSTEMS

if TYPE_CHECKING:
    from gridengine.schedulers.base import Scheduler
    from gridengine.schedulers.batch_system import BatchScheduler
    from gridengine.schedulers.checks import Finding

PACKAGE = "gridengine.schedulers"


class SchedulerEntry(NamedTuple):
    """One scheduler.

    name, path, system, command: as those of a `BatchSystem`; of a scheduler without one, `system`
        and `command` are empty.
    package: the package that the path is in.
    """

    name: str
    path: str
    system: str = ""
    command: str = ""
    package: str = PACKAGE

    @property
    def class_name(self) -> str:
        """The public name of its class."""
        return self.path.partition(":")[2]

    def scheduler_class(self) -> type[Scheduler]:
        module, _, name = self.path.partition(":")
        kind = getattr(importlib.import_module(f"{self.package}.{module}".lstrip(".")), name)
        return cast("type[Scheduler]", kind)

    def system_class(self) -> type[BatchScheduler]:
        """Return the same for a batch system."""
        return cast("type[BatchScheduler]", self.scheduler_class())

    def is_of(self, scheduler: Scheduler) -> bool:
        """Return whether a scheduler is of this class, or of one derived from it."""
        return any(one.__name__ == self.class_name for one in type(scheduler).__mro__)

    def make(self, **options: Any) -> Scheduler:
        """Return a scheduler with these options, such as `max_workers=4`."""
        return self.scheduler_class()(**options)

    def findings(self, environment: Mapping[str, str]) -> Iterator[Finding]:
        """Yield the findings of `gridengine doctor` on this scheduler and machine, as they are
        made.
        """
        if self.system:
            return self.system_class()._findings(environment)
        from gridengine.schedulers.checks import machine_findings

        return machine_findings() if self.name == PROCESSES.name else iter(())

    def system_here(self, environment: Mapping[str, str]) -> str:
        """Return the name of the batch system that takes this user's jobs.

        Raises:
            SchedulerUnavailable: there is none; the text says why.
        """
        reason = (
            why_no_command(self.command, environment)
            if self.command
            else why_no_grid_engine(environment)
        )
        if reason:
            raise SchedulerUnavailable(reason)
        try:
            return self.system_class()._system_here()
        except (BatchSystemError, ConfigurationError) as error:
            refused = (
                "a job of this user is refused: " if isinstance(error, BatchSystemRefusal) else ""
            )
            raise SchedulerUnavailable(f"{refused}{error}") from None


PROCESSES = SchedulerEntry("processes", "local:ProcessScheduler")
UNBOUNDED_PROCESSES = SchedulerEntry("jobs", "local:UnboundedProcessScheduler")
"""For jobs that request nothing; it cannot be chosen by name."""
STEPS = SchedulerEntry("steps", "slurm.steps:StepScheduler")
"""For scripts that are a batch job of several nodes; it cannot be chosen by name."""
BATCH_SYSTEMS = tuple(SchedulerEntry(one.name, one.path, one.title, one.command) for one in SYSTEMS)
"""In the order of preference."""
SCHEDULERS = (PROCESSES, *BATCH_SYSTEMS, SchedulerEntry("inline", "workerless:InlineScheduler"))
BY_NAME: Mapping[str, SchedulerEntry] = {entry.name: entry for entry in SCHEDULERS}
HAND_STARTED = SchedulerEntry("none", "workerless:HandStartedScheduler")
"""For stand-alone dispatchers only: calls of a script would wait for ever."""
STARTERS = tuple(entry.name for entry in (PROCESSES, *BATCH_SYSTEMS))
"""The names of those that start workers."""
OF_DISPATCHERS = (*STARTERS, HAND_STARTED.name)
"""The names of those that a stand-alone dispatcher may have."""
BY_CLASS: Mapping[str, SchedulerEntry] = {entry.class_name: entry for entry in SCHEDULERS}


def entry_of(name: str) -> SchedulerEntry:
    """Return the scheduler of this name.

    Raises:
        ConfigurationError: there is no such scheduler; the text lists the known ones.
    """
    found = BY_NAME.get(name) or next((one for one in of_sites() if one.name == name), None)
    if found is not None:
        return found
    from gridengine.settings.files import suggestion

    raise ConfigurationError(f"there is no scheduler {name!r}", hint=suggestion(name, BY_NAME))


def of_sites() -> Iterator[SchedulerEntry]:
    """Yield the schedulers of the site's own, by their entry points."""
    from importlib.metadata import entry_points

    from gridengine.settings.schema import OF_SITES

    for one in entry_points(group=OF_SITES):
        yield SchedulerEntry(one.name, one.value, one.name, one.name, package="")


def of_class(name: str) -> SchedulerEntry | None:
    """Return the scheduler whose class has this name, one of the site's own too."""
    own = (one for one in of_sites() if one.class_name == name)
    return BY_CLASS.get(name) or next(own, None)
