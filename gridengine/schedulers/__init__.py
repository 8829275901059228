"""Where workers run: this process, this machine, or a cluster.

In: how many workers are wanted, and what calls request. Out: workers that connect to their
dispatcher, and reports on those that wait, run or have ended. Nothing here knows of tasks or calls.

A `Scheduler` (`base`) is what a user holds: settings. Its `Launcher` (`launcher`) starts, watches
and stops workers, in a thread of the dispatcher's own, since batch systems answer slowly.

    Scheduler                           Launcher
      ProcessScheduler      local         processes of this machine
      BatchScheduler        batch_system  tasks of array jobs, with a script and a log each
        CommandScheduler                    by commands: command_launcher, for all systems
          slurm htcondor oar pbs lsf flux     their commands and words (batch_commands, batch_words)
        GridEngineScheduler                 by DRMAA, in a process of its own
      workerless                          no workers: this process, a dispatcher elsewhere

`default` chooses where calls run that name no scheduler, `registry` lists all schedulers,
`requests` writes the requests of calls as options, and explains refusals.

What must be kept in step:

- A launcher never takes silence for a death. A task is gone when two listings lack it, or the
  system says how it ended; a command that fails, or gives no answer, says nothing.
- Every submitted job is deleted in the end, also if this process is killed. For that a second
  process outlives this one (`cleanup_process`, `drmaa_process`). It finds the jobs by their name,
  which no other jobs have, or by its DRMAA session, and needs no list of ids: a submission that
  seemed to fail may still have made jobs.
- A worker is identified by the path of its log (`batch_system`).

One launcher serves all systems with commands. When each system had its own, each repeated faults
that had been mended in the others. `docs/decisions.md` has the other designs that were rejected,
and the measurements.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gridengine.schedulers.registry import BY_CLASS

if TYPE_CHECKING:
    from gridengine.schedulers.base import Scheduler as Scheduler
    from gridengine.schedulers.default import best_available as best_available
    from gridengine.schedulers.default import current_scheduler as current_scheduler
    from gridengine.schedulers.flux import FluxScheduler as FluxScheduler
    from gridengine.schedulers.grid_engine.scheduler import (
        GridEngineScheduler as GridEngineScheduler,
    )
    from gridengine.schedulers.htcondor import HTCondorScheduler as HTCondorScheduler
    from gridengine.schedulers.local import ProcessScheduler as ProcessScheduler
    from gridengine.schedulers.lsf import LSFScheduler as LSFScheduler
    from gridengine.schedulers.oar import OARScheduler as OARScheduler
    from gridengine.schedulers.pbs import PBSScheduler as PBSScheduler
    from gridengine.schedulers.slurm.scheduler import SlurmScheduler as SlurmScheduler
    from gridengine.schedulers.workerless import InlineScheduler as InlineScheduler

_MODULES = {"Scheduler": "base", "best_available": "default", "current_scheduler": "default"}
__all__ = sorted([*_MODULES, *BY_CLASS])


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a worker needs none of them."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    if name not in BY_CLASS:
        instead = f"; it is gridengine.{name}" if name == "TimeoutError" else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{instead}")
    return BY_CLASS[name].scheduler_class()
