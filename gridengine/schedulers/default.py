"""The scheduler of calls that name none: that of the settings, or the best that is here."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

from gridengine.call_context.current_call import GVAR, calling_process
from gridengine.errors import SchedulerUnavailable
from gridengine.resources.base import ZERO, Resource
from gridengine.schedulers.base import ENTERED, Scheduler
from gridengine.schedulers.detect import read_setting, this_allocation
from gridengine.schedulers.registry import (
    BATCH_SYSTEMS,
    PROCESSES,
    STEPS,
    UNBOUNDED_PROCESSES,
    SchedulerEntry,
    entry_of,
)
from gridengine.settings.systems import SYSTEMS

_MADE: dict[tuple[int, str | None], Scheduler] = {}
"""The schedulers of this process and its forks, by process and name; by None the default one."""
_BLOCKS: dict[int, str] = {}
"""By process, the name that its `default_in_block` gives."""
THIS_MACHINE = "this machine"
KEEPS_HERE = "GRIDENGINE_SCHEDULER=processes keeps them here"
FIRST_WORKERS = 4
"""So many workers of a cluster that nobody named are requested until calls prove worth more."""
_ANNOUNCED: set[int] = set()
"""The processes that have said where their calls run."""


def best_available() -> Scheduler:
    """Return the best scheduler here, whatever the settings say.

    In a batch job, it has the job's cores: it is a `ProcessScheduler`, or, in the script of a Slurm
    job with several nodes, a scheduler with a worker on each node. Elsewhere it is a
    `GridEngineScheduler` if Grid Engine is here and takes this user's jobs, else a `SlurmScheduler`
    if Slurm does, and so on in the order of `registry`, else a `ProcessScheduler`. In a Flux
    instance (`FLUX_URI`) Flux comes first.

    Another system with a DRMAA library counts as Grid Engine, except a Slurm whose commands are
    here. The choice, and the reasons against the others, are logged at INFO.
    """
    return _widened(*_best())[0].make()


def best_place() -> str:
    """Return where the best scheduler here runs calls, in words, and how to keep them here."""
    _, system = _best()
    return system if system == THIS_MACHINE else f"{system}; {KEEPS_HERE}"


def _best() -> tuple[SchedulerEntry, str]:
    """Return the best scheduler here, and the system that takes this user's jobs; log why."""
    chosen, system, reasons = PROCESSES, THIS_MACHINE, []
    if (allocation := this_allocation()) is not None:
        # Jobs of a job would wait for slots that the job itself holds.
        _log_info("the best here is %s: this process has %s", chosen.class_name, allocation)
        return chosen, str(allocation)
    inside = {one.name for one in SYSTEMS if one.inside and os.environ.get(one.inside)}
    for entry in sorted(BATCH_SYSTEMS, key=lambda one: one.name not in inside):
        try:
            system = entry.system_here(os.environ)
        except SchedulerUnavailable as error:
            reasons.append(f"not {entry.system}, because {error}")
        else:
            reasons.append(f"{system} takes jobs of this user")
            chosen = entry
            break
    _log_info("the best here is %s: %s", chosen.class_name, "; ".join(reasons))
    return chosen, system


def _log_info(text: str, *values: object) -> None:
    """Log at INFO. Before `logging` is imported nobody has asked for that level, and importing it
    would delay the fork server of a first map by 4 ms.
    """
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.getLogger("gridengine").info(text, *values)


def _widened(entry: SchedulerEntry, system: str) -> tuple[SchedulerEntry, str]:
    """Return the scheduler to use, and where it runs calls, if this entry is the best on this
    machine: on all nodes of this process's batch job if it has several and they can be used.
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
    """Return this process's own scheduler: the settings', else the best available. It is made at
    the first call, announced (with the number of `calls` of the map that asks), and closed at exit.

    Inside a call it is the scheduler that runs the call. In a process that a call has forked, or in
    a call of an `InlineScheduler`, it is that process itself: a scheduler for each process that
    runs calls would start workers without bound.
    """
    if GVAR.inside:
        from gridengine.schedulers.workerless import NestedScheduler, inner_scheduler

        return _once("", NestedScheduler) if makes_calls() else inner_scheduler()
    made = _MADE.get((os.getpid(), None))
    if made is None:
        entry, system = _widened(*default_entry())
        made = _once(None, lambda: _default(entry, named=not system))
        _announce(made, system, calls)
    _warn_of_unused(made)
    return made


def _default(entry: SchedulerEntry, *, named: bool) -> Scheduler:
    """Return the scheduler for calls that name none. `named` says whether the settings name it.

    Calls with `scheduler="slurm"` share it with calls that name none, so that both use the same
    workers. One exception: on a cluster that only this package has chosen, the scheduler is apart,
    because it requests no more than `FIRST_WORKERS` workers at first.
    """
    if named or entry.scheduler_class().local:
        return _once(entry.name, entry.make)
    made = entry.make()
    made._first_workers = FIRST_WORKERS
    return made


def current_scheduler() -> Scheduler:
    """Return the scheduler of calls that name none: inside a call the one that runs the call,
    elsewhere this process's own. It may be passed as `scheduler=`, and need not be closed.
    """
    return default_scheduler()


def makes_calls() -> bool:
    """Return whether this code runs in a call whose nested calls go to the same scheduler."""
    return GVAR.in_runner and calling_process() is not None


def named_scheduler(name: str) -> Scheduler:
    """Return this process's own scheduler of a name, such as "slurm". It is made at the first call
    and closed at exit.

    Raises:
        ConfigurationError: there is no such name; the text lists those that there are.
    """
    return _once(name, entry_of(name).make)


def make_scheduler(name: str | None, max_workers: int | None) -> Scheduler:
    """Return a new scheduler of this name, or of the default kind."""
    entry, system = _widened(*default_entry()) if name is None else (entry_of(name), "")
    made = entry.make(max_workers=max_workers)
    _announce(made, system, None)
    return made


def default_entry() -> tuple[SchedulerEntry, str]:
    """Return the scheduler of calls that name none, and the place where they run; the place is
    empty if the settings name the scheduler. In a batch job of several nodes it is this node.
    """
    name = _BLOCKS.get(os.getpid()) or read_setting("scheduler", os.environ)
    return (entry_of(name), "") if name else _best()


@contextlib.contextmanager
def default_in_block(scheduler: Scheduler, name: str) -> Iterator[None]:
    """Within this block, `scheduler` runs the calls of this process that name no scheduler. A call
    that names only a number of workers gets a new scheduler of the name `name`. The end of the
    block closes the schedulers that were made for names within it. The caller closes `scheduler`.
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
    """Say once, at INFO, where calls run if nobody said so. If that is not this whole machine,
    which may surprise the user, say so on standard error too.
    """
    if not system or os.getpid() in _ANNOUNCED:
        return
    _ANNOUNCED.add(os.getpid())
    from gridengine.display import plural  # once

    what = "calls" if calls is None else f"map of {plural(calls, 'call')}"
    cores = scheduler.cores
    if cores is not None:
        limit = f"up to {plural(cores, 'call')} at a time"
        other = "scheduler= or GRIDENGINE_SCHEDULER names another place"
    else:
        first, most = scheduler._first_workers, scheduler.max_workers
        limit = f"up to {plural(most, 'task')} at a time"
        if 0 < first < most:
            limit = f"{plural(first, 'task')} at first, up to {most:,} if calls take long"
        other = KEEPS_HERE
    line = f"{what} on {system}, {limit}; {other}"
    _log_info("%s", line)
    if system != THIS_MACHINE and sys.stderr is not None:
        print(f"gridengine: {line}", file=sys.stderr)


def _warn_of_unused(default: Scheduler) -> None:
    """Warn once of each scheduler whose `with` block is open and that has no calls: the block does
    not make a scheduler the default, it only closes it at the end.
    """
    for entered in ENTERED:
        if entered is not default and entered.is_unused:
            ENTERED.discard(entered)
            import logging

            logging.getLogger("gridengine").warning(
                "these calls run on %r, not on %r: `with` only closes a scheduler at its end; "
                "give it to the calls as scheduler=",
                default,
                entered,
            )


def scheduler_of_jobs(resources: Resource) -> Scheduler:
    """Return the scheduler of a `Job` that is started without one: this process's own.

    Jobs on this machine that request nothing start at once, as processes do, and take no other
    job's place, because they may wait for one another. A call in its caller's own process starts
    them as processes of the same machine.
    """
    is_apart = GVAR.inside and not makes_calls()
    scheduler = named_scheduler(PROCESSES.name) if is_apart else default_scheduler()
    if resources == ZERO and isinstance(scheduler, PROCESSES.scheduler_class()):
        return _once(UNBOUNDED_PROCESSES.name, UNBOUNDED_PROCESSES.make)
    return scheduler


def _once(name: str | None, make: Callable[[], Scheduler]) -> Scheduler:
    """Return this process's scheduler of a name, the same in all threads; `make` makes it."""
    key = os.getpid(), name
    return _MADE[key] if key in _MADE else _MADE.setdefault(key, make())
