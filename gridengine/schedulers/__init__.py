"""Where workers run: this process, this machine, or a cluster.

In: how many workers are wanted, and what calls ask for. Out: workers that connect to their
dispatcher, and reports on those that wait, run or have ended; nothing here knows of tasks. Read
`launcher` first, which is what a dispatcher sees, then `base`, which is what a user holds. A new
batch system is a folder beside `slurm`, with a class derived from each of the two in `batch`, and
an entry in `registry`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gridengine.display import plural
from gridengine.errors import SchedulerUnavailable
from gridengine.resources.base import ZERO, Resource
from gridengine.schedulers.base import ENTERED, Scheduler
from gridengine.schedulers.detect import said_setting, this_allocation
from gridengine.schedulers.registry import (
    BATCH_SYSTEMS,
    BY_CLASS,
    PROCESSES,
    STEPS,
    UNBOUNDED_PROCESSES,
    SchedulerEntry,
    entry_of,
)
from gridengine.worker.call_context import GVAR

if TYPE_CHECKING:
    from gridengine.schedulers.flux import FluxScheduler
    from gridengine.schedulers.grid_engine.scheduler import GridEngineScheduler
    from gridengine.schedulers.htcondor import HTCondorScheduler
    from gridengine.schedulers.inline import InlineScheduler
    from gridengine.schedulers.local import ProcessScheduler
    from gridengine.schedulers.lsf import LSFScheduler
    from gridengine.schedulers.oar import OARScheduler
    from gridengine.schedulers.pbs.scheduler import PBSScheduler
    from gridengine.schedulers.slurm.scheduler import SlurmScheduler

__all__ = [
    "FluxScheduler",
    "GridEngineScheduler",
    "HTCondorScheduler",
    "InlineScheduler",
    "LSFScheduler",
    "OARScheduler",
    "PBSScheduler",
    "ProcessScheduler",
    "Scheduler",
    "SlurmScheduler",
    "best_available",
    "current_scheduler",
    "default_entry",
    "default_in_block",
    "default_scheduler",
    "make_scheduler",
    "makes_calls",
    "named_scheduler",
    "scheduler_of_jobs",
]

logger = logging.getLogger("gridengine")

_MADE: dict[tuple[int, str | None], Scheduler] = {}
"""The schedulers of each process, by name, and by None that of who names none: a fork has its own.
"""
_BLOCKS: dict[int, str] = {}
"""Of each process in a `default_in_block`, the name that it gives."""
THIS_MACHINE = "this machine"
_ANNOUNCED: set[int] = set()
"""The processes that have said where their calls run."""


def __getattr__(name: str) -> Any:
    """Import a scheduler when it is first asked for: a worker needs none of them."""
    if name not in BY_CLASS:
        instead = f"; it is gridengine.{name}" if name == "TimeoutError" else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{instead}")
    return BY_CLASS[name].scheduler_class()


def best_available() -> Scheduler:
    """Return the best scheduler here, whatever the settings say.

    Inside a batch job that is one with the job's cores: a `ProcessScheduler`, or, in the script of
    a Slurm job with several nodes, one with a worker on each of them. Elsewhere it is a
    `GridEngineScheduler` when Grid Engine is here and takes this user's jobs, else a
    `SlurmScheduler` when Slurm does, so on in the order of `registry`, else a `ProcessScheduler`.

    Another system that has a DRMAA library counts as Grid Engine, but for a Slurm whose commands
    are here. What was chosen, and why not the others, is logged at INFO.
    """
    return _widened(*_best())[0].make()


def _best() -> tuple[SchedulerEntry, str]:
    """Return what is best here, and what takes this user's jobs; log why not the others."""
    chosen, system, reasons = PROCESSES, THIS_MACHINE, []
    if (allocation := this_allocation()) is not None:
        # Jobs of a job would wait for slots that this one holds.
        logger.info("the best here is %s: this process has %s", chosen.class_name, allocation)
        return chosen, str(allocation)
    for entry in BATCH_SYSTEMS:
        try:
            system = entry.system_here(os.environ)
        except SchedulerUnavailable as error:
            reasons.append(f"not {entry.system}, because {error}")
        else:
            reasons.append(f"{system} takes jobs of this user")
            chosen = entry
            break
    logger.info("the best here is %s: %s", chosen.class_name, "; ".join(reasons))
    return chosen, system


def _widened(entry: SchedulerEntry, system: str) -> tuple[SchedulerEntry, str]:
    """Return what runs calls, and where, where this entry is the best on this machine: all nodes of
    the batch job of this process, if it has several that can be used.
    """
    allocation = this_allocation()
    if entry is not PROCESSES or not system or allocation is None or allocation.nodes == 1:
        return entry, system
    reason = allocation.why_here
    if allocation.shares:
        from gridengine.schedulers.slurm.steps import why_no_steps

        reason = why_no_steps(allocation)
        if not reason:
            return STEPS, system
    return entry, f"{allocation.here} ({reason})"


def default_scheduler(calls: int | None = None) -> Scheduler:
    """Return this process's own scheduler, that of the settings, else the best available, made at
    the first call and closed at exit. What it is, and how to have another, is said then; `calls` is
    how many a map has that asks.

    Inside a call it is that which runs the call; or, in a process that a call has forked, or a
    call that an `InlineScheduler` makes, that very process: a scheduler for each process that runs
    calls would start workers without bound.
    """
    if GVAR.inside:
        from gridengine.schedulers.inline import inner_scheduler
        from gridengine.schedulers.nested import NestedScheduler

        return _once("", NestedScheduler) if makes_calls() else inner_scheduler()
    if (os.getpid(), None) not in _MADE:
        entry, system = _widened(*default_entry())
        made = _once(None, lambda: _once(entry.name, entry.make))
        _announce(made, system, calls)
    _warn_of_unused(_MADE[os.getpid(), None])
    return _MADE[os.getpid(), None]


def current_scheduler() -> Scheduler:
    """Return the scheduler of calls that name none: inside a call that which runs the call,
    elsewhere this process's own. It may be given as `scheduler=`, and need not be closed.
    """
    return default_scheduler()


def makes_calls() -> bool:
    """Return whether this code runs in a call whose own calls go to the scheduler that runs it."""
    if not GVAR.in_runner:
        return False
    from gridengine.worker.call_context import calling_process

    return calling_process() is not None


def named_scheduler(name: str) -> Scheduler:
    """Return this process's own scheduler of a name, as "slurm", made at the first call and closed
    at exit.

    Raises:
        ConfigurationError: there is no such name; the text lists those that there are.
    """
    return _once(name, entry_of(name).make)


def make_scheduler(name: str | None, max_workers: int | None) -> Scheduler:
    """Return a new scheduler of a name, or of the kind that is the default."""
    entry, system = _widened(*default_entry()) if name is None else (entry_of(name), "")
    made = entry.make(max_workers=max_workers)
    _announce(made, system, None)
    return made


def default_entry() -> tuple[SchedulerEntry, str]:
    """Return what runs calls when nobody says, by its name, and where, if it was not the settings
    that said. Of a batch job with several nodes it is this node.
    """
    name = _BLOCKS.get(os.getpid()) or said_setting("scheduler", os.environ)
    return (entry_of(name), "") if name else _best()


@contextlib.contextmanager
def default_in_block(scheduler: Scheduler, name: str) -> Iterator[None]:
    """Within this block, run calls of this process that name no scheduler on this one, and those
    that name a number of workers alone on a new scheduler of this name. Schedulers that calls name
    are the block's own: its end closes them. The caller closes `scheduler`.
    """
    pid = os.getpid()
    before, name_before = _taken(pid), _BLOCKS.get(pid, "")
    _MADE[pid, None], _BLOCKS[pid] = scheduler, name
    try:
        yield
    finally:
        made = _taken(pid)
        _MADE.update(before)
        _BLOCKS[pid] = name_before
        for one in made.values():
            if one is not scheduler:
                one.close()


def _taken(pid: int) -> dict[tuple[int, str | None], Scheduler]:
    """Remove the schedulers of a process from `_MADE`, and return them."""
    return {key: _MADE.pop(key) for key in list(_MADE) if key[0] == pid}


def _announce(scheduler: Scheduler, system: str, calls: int | None) -> None:
    """Say where calls run for which nobody said it: once for each process, at INFO; on standard
    error too when it is not this machine as a whole, which may surprise its user.
    """
    if not system or os.getpid() in _ANNOUNCED:
        return
    _ANNOUNCED.add(os.getpid())
    what = "calls" if calls is None else f"map of {plural(calls, 'call')}"
    cores = scheduler.cores
    if cores is not None:
        limit, other = (
            plural(cores, "call"),
            "scheduler= or GRIDENGINE_SCHEDULER names another place",
        )
    else:
        limit = plural(scheduler.max_workers, "task")
        other = "GRIDENGINE_SCHEDULER=processes keeps them here"
    line = f"{what} on {system}, up to {limit} at a time; {other}"
    logger.info("%s", line)
    if system != THIS_MACHINE and sys.stderr is not None:
        print(f"gridengine: {line}", file=sys.stderr)


def _warn_of_unused(default: Scheduler) -> None:
    """Warn, once for each, of schedulers whose `with` block this is and that have no calls yet: the
    block closes a scheduler at its end, and makes it nobody's default.
    """
    for entered in tuple(ENTERED):
        if entered is not default and entered.is_unused:
            ENTERED.discard(entered)
            logger.warning(
                "these calls run on %r, not on %r: `with` only closes a scheduler at its end; "
                "give it to the calls as scheduler=",
                default,
                entered,
            )


def scheduler_of_jobs(resources: Resource) -> Scheduler:
    """Return where a `Job` that asks for these resources runs when it is started without a
    scheduler: this process's own scheduler.

    But jobs on this machine that ask for nothing start at once, as processes do, and take nobody's
    place: they may wait for one another. Those that a call starts that is made in its caller's own
    process are processes of the same machine.
    """
    is_apart = GVAR.inside and not makes_calls()
    scheduler = named_scheduler(PROCESSES.name) if is_apart else default_scheduler()
    if resources == ZERO and isinstance(scheduler, PROCESSES.scheduler_class()):
        return _once(UNBOUNDED_PROCESSES.name, UNBOUNDED_PROCESSES.make)
    return scheduler


def _once(name: str | None, make: Callable[[], Scheduler]) -> Scheduler:
    """Return this process's scheduler of a name, for all threads the same; `make` makes it."""
    key = os.getpid(), name
    return _MADE[key] if key in _MADE else _MADE.setdefault(key, make())
