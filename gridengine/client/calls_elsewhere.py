"""Who has the calls of a run with a name that have no result yet: a script that has the run, or
stand-alone dispatchers that were handed some of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, State
from gridengine.errors import GridEngineError
from gridengine.journal import stored_runs
from gridengine.journal.handed_calls import handed_to
from gridengine.journal.lock_file import read_holder
from gridengine.journal.run_file import LOCK, SUFFIX
from gridengine.journal.stored_runs import RunSummary
from gridengine.schedulers.workerless import RemoteScheduler

log = logging.getLogger("gridengine")


def dispatchers_with(name: str, path: Path) -> list[DispatcherFolder]:
    """Return the dispatchers, whether they run or not, that were handed calls of a run of which the
    run's file does not know all that came of them.
    """
    keys = handed_to(name, path)
    return [one for one in DispatcherFolder.all() if one.server_key() in keys] if keys else []


def runs_at(folder: DispatcherFolder) -> Iterator[RunSummary]:
    """Yield the runs in the run directory of which a dispatcher has calls without a result in the
    run's file.
    """
    key = folder.server_key()
    for path in stored_runs.paths():
        name = path.name.removesuffix(SUFFIX)
        if key in handed_to(name, path) and (run := stored_runs.summary(path)).left:
            yield run


def who_has(name: str, path: Path) -> str:
    """Return who is at calls of a run that have no result, in words; empty when nobody is.

    Raises:
        JournalError: the run's file cannot be read.
    """
    if stored_runs.is_under_way(name, path):
        holder = read_holder(path.with_name(f"{path.name}{LOCK}"))
        return "a script" if holder is None else f"process {holder.pid} on {holder.host}"
    running = (one for one in dispatchers_with(name, path) if one.state() is State.RUNNING)
    return " and ".join(f"the dispatcher {one.name}" for one in running)


def how_left_go_on(name: str, path: Path) -> str:
    """Return how calls of a run that have no result get one."""
    if who := who_has(name, path):
        return f"{who} has them"
    for one in dispatchers_with(name, path):
        return (
            f"the dispatcher {one.name} has calls of it, and does not run: `gridengine dispatcher "
            f"start {one.name}` goes on with them"
        )
    return "run the script again"


def take_by_now(name: str, path: Path, client: RemoteScheduler | None) -> bool:
    """Write what a client's dispatcher has by now of a run to the run's file; without a client what
    any of this user's has. Return whether there is more to come.

    Raises:
        JournalError: the file cannot be written.
        DispatcherGone, ConfigurationError: the client's dispatcher cannot be asked; of others that
            is a warning.
    """
    if client is not None:
        return _take(name, path, client)
    more = False
    for one in dispatchers_with(name, path):
        if one.state() is State.RUNNING:
            try:
                more = _take(name, path, RemoteScheduler(one.client_file)) or more
            except GridEngineError as error:
                told = "the dispatcher %s does not tell of the run %r: %s"
                log.warning(told, one.name, name, error)
    return more


def _take(name: str, path: Path, client: RemoteScheduler) -> bool:
    if not handed_to(name, path):
        return False
    from gridengine.client.left_calls import take_what_has_ended  # imports ZeroMQ

    return take_what_has_ended(name, path, client)
