"""The folders of a dispatcher: the run directory of each run, with its connection file and logs,
and the folder of a stand-alone dispatcher. Begins and ends a run in them, and removes old runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gridengine._version import __version__
from gridengine.dispatcher.core.policy import Policy
from gridengine.errors import ConfigurationError
from gridengine.schedulers.base import Scheduler, adopt_none
from gridengine.schedulers.launcher import MARGIN_SECONDS, LaunchContext
from gridengine.schedulers.logs import is_empty
from gridengine.schedulers.registry import SCHEDULERS
from gridengine.settings.values import Settings
from gridengine.wire.connection_file import (
    Connection,
    ServerKeys,
    make_private_folder,
    replace_private,
    to_json,
)

if TYPE_CHECKING:
    from gridengine.wire.server import Server

DISPATCHERS = "dispatchers"
SERVER, WORKER, CLIENT, WATCHER = "server.json", "worker.json", "client.json", "watcher.json"
"""All keys and ports, kept over restarts; and what workers, clients, and those who may only look,
connect by: each has its own keys, and no other.
"""
LAUNCHES = "launches.json"
"""What the batch system was asked for."""
JOURNAL = "journal.sqlite"
"""What clients have handed in, and what has come of it."""


class KeptKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """What a stand-alone dispatcher keeps over restarts: its number, by which its workers know it,
    and the keys and ports of the sockets for workers and for clients.
    """

    run_id: str
    workers: ServerKeys
    clients: ServerKeys


class Home(Struct, frozen=True):
    """Where a stand-alone dispatcher is at home: its folder, and what it has kept. With a journal
    `epoch` is the number of this process among those that are one dispatcher, else 0. `output`: the
    descriptors where what calls print on this machine goes; without them there is a log of it.
    """

    folder: Path
    kept: KeptKeys
    epoch: int = 0
    output: tuple[int, int] | None = None


def folder_of(name: str, settings: Settings) -> Path:
    """Return the folder of the dispatcher of this name."""
    return settings.runs / DISPATCHERS / name


log = logging.getLogger("gridengine")

CONNECTION = "connection.json"
LOGS = "logs"
SUCCEEDED = "succeeded"
"""The file that marks the folder of a run in which nothing failed."""
FAILED_FACTOR = 4
"""How many times as long a run is kept of which that is not known."""
DAY_SECONDS = 86400.0
MOST_LOOKED_AT = 50
MOST_SECONDS = 0.1
"""How much is done at the start of one run; the next ones go on."""
RUN_NAME = re.compile(r"(\d{8}-\d{6})-(?:up-)?(?:(.+)-)?(\d+)-[0-9a-f]{6}")
"""The name of a run's folder: when it began, on which machine and by which process."""


def new_run_id(kind: str = "") -> str:
    """Return a name for a run's folder: when, on which machine and by which process it began."""
    began = time.strftime("%Y%m%d-%H%M%S")
    return f"{began}-{kind}{_host()}-{os.getpid()}-{os.urandom(3).hex()}"


def remove_old_runs(new: Path, keep_days: float) -> None:
    """Remove some of the folders beside `new`, which was made just now, of runs that ended longer
    ago than they are kept.

    What does not look like a run's folder, is a link or belongs to somebody else stays; so does
    what may be under way, on this machine or another. Others may be removing the same.
    """
    try:
        # As the file system's clock has it: that of this machine may be another.
        now = new.stat().st_mtime
        least = time.strftime("%Y%m%d-%H%M%S", time.localtime(now - keep_days * DAY_SECONDS))
        found = [
            one for one in new.parent.iterdir() if one.name < least and RUN_NAME.fullmatch(one.name)
        ]
    except (OSError, ValueError, OverflowError) as error:
        log.debug("old runs cannot be looked for: %s", error)
        return
    until = time.monotonic() + MOST_SECONDS
    # In no order: else those that are kept for longer would be looked at again and again.
    for folder in sorted(found, key=lambda folder: os.urandom(4))[:MOST_LOOKED_AT]:
        if _may_go(folder, now - keep_days * DAY_SECONDS, now):
            _remove(folder, until)
        if time.monotonic() > until:
            return


def _remove(folder: Path, until: float) -> None:
    """Remove a run's folder; of very many logs those that there is time for, and one in any
    case.
    """
    logs = folder / LOGS
    with contextlib.suppress(OSError):  # there are none, or others remove them
        for number, log in enumerate(() if logs.is_symlink() else logs.iterdir()):
            if number and time.monotonic() > until:
                return
            log.unlink()
    import shutil  # here, since it takes some ms to import, and every dispatcher has this module

    shutil.rmtree(folder, ignore_errors=True)  # follows no links


def _may_go(folder: Path, least: float, now: float) -> bool:
    """Return whether a run that ended before `least` is over; kept are those that may have
    failed.
    """
    try:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
            return False
        files = {one.name for one in folder.iterdir()}
    except OSError:  # another has removed it
        return False
    if SUCCEEDED not in files:
        least = now - FAILED_FACTOR * (now - least)
    # The last that an ending run does is to remove files of its folder.
    return facts.st_mtime < least and (files <= {LOGS, SUCCEEDED} or was_killed(folder))


def was_killed(folder: Path) -> bool:
    """Return whether a run was killed whose files were not removed: its process was one of this
    machine, and is gone. Of others nobody can know.
    """
    match = RUN_NAME.fullmatch(folder.name)
    if match is None or match[2] != _host() or Path("/proc", match[3]).exists():
        return False
    return not is_under_way(folder / CONNECTION)


def is_under_way(file: Path) -> bool:
    """Return whether the dispatcher of a connection file can be reached."""
    from gridengine.worker.main import is_listening  # here, since a run seldom asks

    try:
        return any(map(is_listening, Connection.load(file).addresses))
    except ConfigurationError:  # it is not there, or was left by another version
        return False


def _host() -> str:
    return re.sub(r"[^\w.]", "_", socket.gethostname())


GATHER_SECONDS = 0.05


def python_version() -> str:
    """Return this interpreter's minor version, `3.11`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def policy_of(scheduler: Scheduler, settings: Settings, run: LaunchContext) -> Policy:
    """Return the numbers by which the core of a scheduler's dispatcher decides."""
    return Policy(
        max_workers=scheduler.max_workers if scheduler.starts_workers else 0,
        min_workers=scheduler.min_workers,
        slots=scheduler.slots,
        idle_seconds=scheduler.idle_seconds,
        pooled=scheduler.starts_workers and not scheduler.local,
        resources=scheduler.worker_resources,
        walltime=scheduler.walltime,
        margin_seconds=0.0 if scheduler.local else MARGIN_SECONDS,
        gather_seconds=0.0 if scheduler.local else GATHER_SECONDS,
        start_at_once=scheduler._start_at_once,
        jobs_per_worker=scheduler.jobs_per_worker,
        beat_seconds=settings.beat_seconds,
        lease_seconds=settings.lease_seconds,
        start_seconds=settings.start_seconds,
        start_timeout=settings.start_timeout
        if scheduler.start_timeout is None
        else scheduler.start_timeout,
        max_nesting=settings.max_nesting,
        version=__version__,
        python=python_version(),
        run_id=run.id,
        addresses=run.addresses,
        epoch=run.epoch,
    )


def write_connection(
    server: Server, scheduler: Scheduler, settings: Settings, run_id: str, home: Home | None = None
) -> LaunchContext:
    """Make the run directory, or take a stand-alone dispatcher's own folder for it, and write down
    in it how workers find the dispatcher.

    Raises:
        ConfigurationError: it cannot be made or written.
    """
    directory = make_private_folder(settings.runs / run_id) if home is None else home.folder
    path = directory / (CONNECTION if home is None else WORKER)
    epoch = 0 if home is None else home.epoch
    run = LaunchContext(run_id, directory, path, adopt_none, server.addresses, epoch)
    connection = _connection(server, scheduler, settings, run_id)
    try:
        replace_private(path, to_json(replace(connection, returns=epoch > 0)))
    except OSError as error:
        if home is None:
            import shutil

            shutil.rmtree(directory, ignore_errors=True)
        raise ConfigurationError(
            f"cannot write {run.connection}: {error.strerror}",
            hint="free space there, or set GRIDENGINE_RUN_DIRECTORY to another folder",
        ) from error
    if home is None:
        remove_old_runs(directory, settings.keep_runs)
    return run


def _connection(
    server: Server, scheduler: Scheduler, settings: Settings, run_id: str
) -> Connection:
    return Connection(
        run_id=run_id,
        addresses=server.addresses,
        slots=scheduler.slots,
        version=__version__,
        python=python_version(),
        beat_seconds=settings.beat_seconds,
        lease_seconds=settings.lease_seconds,
        start_seconds=settings.start_seconds,
        grace_seconds=settings.grace_seconds,
        output_bytes=settings.output_bytes,
        log_bytes=settings.log_bytes,
        kept_bytes=settings.kept_bytes,
        server_key=server.keys.public,
        worker_public=server.keys.peer_public,
        worker_secret=server.keys.peer_secret,
        scheduler=next((one.name for one in SCHEDULERS if one.is_of(scheduler)), ""),
    )


def tidy_logs(folder: Path) -> None:
    """Remove the logs below a folder in which nothing stands."""
    for path in folder.rglob("*.log"):
        if path.is_file() and is_empty(path):
            path.unlink(missing_ok=True)


def tidy(run: LaunchContext, *, failed: bool) -> None:
    """Remove a run directory but for the logs in which something stands; those of a run in which
    nothing failed are marked, and kept less long.
    """
    for path in run.directory.rglob("*"):
        if path.is_file() and (path.suffix != ".log" or is_empty(path)):
            path.unlink(missing_ok=True)
    for folder in (*(path for path in run.directory.glob("*") if path.is_dir()), run.directory):
        with contextlib.suppress(OSError):
            folder.rmdir()
    run.connection.unlink(missing_ok=True)
    if not failed and run.directory.exists():
        with contextlib.suppress(OSError):  # then they are kept for longer
            (run.directory / SUCCEEDED).touch()
