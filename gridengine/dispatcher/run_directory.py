"""The folders of a dispatcher: the run directory of each run, with its connection file and logs,
and the folder of a stand-alone dispatcher. This module begins and ends a run in them, and removes
old runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gridengine._version import __version__
from gridengine.dispatcher.core_policy import beat_seconds
from gridengine.errors import ConfigurationError
from gridengine.schedulers.base import Scheduler, adopt_none
from gridengine.schedulers.launcher import LaunchContext
from gridengine.schedulers.registry import SCHEDULERS
from gridengine.serialize.byte_code import PYTHON
from gridengine.settings.values import Settings
from gridengine.system.machine import exists
from gridengine.wire.connection_file import (
    Connection,
    ServerKeys,
    make_private_folder,
    replace_private,
    to_json,
)

if TYPE_CHECKING:
    from gridengine.wire.session_server import SessionServer

log = logging.getLogger("gridengine")

DISPATCHERS = "dispatchers"
SERVER, WORKER, CLIENT, WATCHER = "server.json", "worker.json", "client.json", "watcher.json"
"""Files of a stand-alone dispatcher. The first has all keys and ports, and survives restarts;
workers, clients and watchers connect by the others, each of which has only its own keys.
"""
LAUNCHES = "launches.json"
"""The record of the workers that the batch system was asked for."""
JOURNAL = "journal.sqlite"
"""The journal."""
CONNECTION = "connection.json"
LOGS = "logs"
EXCHANGE = "exchange"
"""The exchange folder, where messages travel as files."""
SUCCEEDED = "succeeded"
"""This file marks the folder of a run in which nothing failed."""
FAILED_FACTOR = 4
"""The folder of a run that is not marked is kept this many times as long."""
DAY_SECONDS = 86400.0
MOST_LOOKED_AT = 50
MOST_SECONDS = 0.1
"""The start of one run removes no more old runs than this; the next ones go on."""
RUN_NAME = re.compile(r"(\d{8}-\d{6})-(?:up-)?(?:(.+)-)?(\d+)-[0-9a-f]{6}")
"""The name of a run's folder: when the run began, on which machine and by which process."""


class StoredIdentity(Struct, frozen=True, forbid_unknown_fields=True):
    """The identity of a stand-alone dispatcher, which survives restarts: the run id, by which its
    workers know it, and the keys and ports of its sockets for workers and clients.
    """

    run_id: str
    workers: ServerKeys
    clients: ServerKeys


class Home(Struct, frozen=True):
    """The folder of a stand-alone dispatcher, and the identity stored in it. `epoch` is the
    dispatcher's epoch; 0 without a journal. `output` are the descriptors for the output of calls on
    this machine; without them, it goes to a log in the folder.
    """

    folder: Path
    stored: StoredIdentity
    epoch: int = 0
    output: tuple[int, int] | None = None


def folder_of(name: str, settings: Settings) -> Path:
    """Return the folder of the dispatcher with this name."""
    return settings.runs / DISPATCHERS / name


def new_run_id(kind: str = "") -> str:
    """Return a name for a run's folder: when the run begins, on which machine, by which process."""
    began = time.strftime("%Y%m%d-%H%M%S")
    return f"{began}-{kind}{_host()}-{os.getpid()}-{os.urandom(3).hex()}"


def remove_old_runs(new: Path, keep_days: float) -> None:
    """Remove some of the folders beside `new`, which was made just now, whose runs ended more than
    `keep_days` ago.

    Entries that do not look like a run's folder, that are links, or that belong to somebody else
    stay; so do folders of runs that may still be under way, on this machine or another. Other
    processes may be removing the same folders.
    """
    try:
        # The file system's clock, which may differ from this machine's.
        now = new.stat().st_mtime
        least = time.strftime("%Y%m%d-%H%M%S", time.localtime(now - keep_days * DAY_SECONDS))
        found = [
            one for one in new.parent.iterdir() if one.name < least and RUN_NAME.fullmatch(one.name)
        ]
    except (OSError, ValueError, OverflowError) as error:
        log.debug("old runs cannot be looked for: %s", error)
        return
    until = time.monotonic() + MOST_SECONDS
    # In random order: otherwise each start would look at the same folders, which are kept longer.
    for folder in sorted(found, key=lambda folder: os.urandom(4))[:MOST_LOOKED_AT]:
        if _may_go(folder, now - keep_days * DAY_SECONDS, now):
            _remove(folder, until)
        if time.monotonic() > until:
            return


def _remove(folder: Path, until: float) -> None:
    """Remove a run's folder; of very many logs only as many as there is time for, at least one."""
    logs = folder / LOGS
    with contextlib.suppress(OSError):  # there are no logs, or other processes remove them
        for number, log in enumerate(() if logs.is_symlink() else logs.iterdir()):
            if number and time.monotonic() > until:
                return
            log.unlink()
    import shutil  # here: it takes milliseconds to import, and every dispatcher has this module

    shutil.rmtree(folder, ignore_errors=True)  # follows no links


def _may_go(folder: Path, least: float, now: float) -> bool:
    """Return whether the folder of a run that ended before `least` may be removed. Runs that may
    have failed are kept longer.
    """
    try:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
            return False
        files = {one.name for one in folder.iterdir()}
    except OSError:  # another process has removed it
        return False
    if SUCCEEDED not in files:
        least = now - FAILED_FACTOR * (now - least)
    # The last act of a run that ends is to remove files from its folder, so this is when it ended.
    return facts.st_mtime < least and (files <= {LOGS, SUCCEEDED, EXCHANGE} or was_killed(folder))


def was_killed(folder: Path) -> bool:
    """Return whether a run was killed before it could remove its files: its process ran on this
    machine, and is gone. Always False for runs of other machines, whose processes are not visible.
    """
    match = RUN_NAME.fullmatch(folder.name)
    if match is None or match[2] != _host() or exists(int(match[3])):
        return False
    return not is_under_way(folder / CONNECTION)


def is_under_way(file: Path) -> bool:
    """Return whether the dispatcher of a connection file can be reached."""
    from gridengine.wire.exchange_folder import is_listening  # imported here, because few runs ask

    try:
        return any(map(is_listening, Connection.load(file).addresses))
    except ConfigurationError:  # there is no such file, or another version left it
        return False


def _host() -> str:
    return re.sub(r"[^\w.]", "_", socket.gethostname())


def folder_of_run(settings: Settings, run_id: str, home: Home | None) -> Path:
    """Return the run directory: the folder of a stand-alone dispatcher, if it is one."""
    return settings.runs / run_id if home is None else home.folder


def write_connection(
    server: SessionServer,
    scheduler: Scheduler,
    settings: Settings,
    run_id: str,
    home: Home | None = None,
) -> LaunchContext:
    """Make the run directory, or use the folder of a stand-alone dispatcher. Write the file in it
    by which workers find the dispatcher.

    Raises:
        ConfigurationError: the folder or file cannot be made or written.
    """
    directory = folder_of_run(settings, run_id, home)
    path = directory / (CONNECTION if home is None else WORKER)
    epoch = 0 if home is None else home.epoch
    run = LaunchContext(run_id, directory, path, adopt_none, server.addresses, epoch)
    try:
        if home is None:
            make_private_folder(directory)
        connection = _connection(server, scheduler, settings, run_id)
        replace_private(path, to_json(replace(connection, returns=epoch > 0)))
        if home is None:
            remove_old_runs(directory, settings.keep_runs)
    except ConfigurationError:  # somebody else's folder may be there
        raise
    except BaseException as error:
        if home is None:
            import shutil  # here, as in `_remove`

            shutil.rmtree(directory, ignore_errors=True)
        if not isinstance(error, OSError):  # a Ctrl-C
            raise
        raise ConfigurationError(
            f"cannot write {run.connection}: {error.strerror}",
            hint="free space there, or set GRIDENGINE_RUN_DIRECTORY to another folder",
        ) from error
    return run


def _connection(
    server: SessionServer, scheduler: Scheduler, settings: Settings, run_id: str
) -> Connection:
    """Return the content of the file by which workers connect."""
    ports = settings.port_range
    return Connection(
        run_id=run_id,
        addresses=server.addresses,
        slots=scheduler.slots,
        version=__version__,
        python=PYTHON,
        beat_seconds=beat_seconds(scheduler, settings),
        lease_seconds=settings.lease_seconds,
        start_seconds=settings.start_seconds,
        grace_seconds=settings.grace_seconds,
        output_bytes=settings.output_bytes,
        log_bytes=settings.log_bytes,
        kept_bytes=settings.kept_bytes,
        checkpoint_seconds=settings.checkpoint_seconds,
        server_key=server.keys.public,
        worker_public=server.keys.peer_public,
        worker_secret=server.keys.peer_secret,
        scheduler=next((one.name for one in SCHEDULERS if one.is_of(scheduler)), ""),
        ports=(ports[0], ports[-1]) if ports else (0, 0),
    )


def tidy_logs(folder: Path) -> None:
    """Remove the empty logs below a folder."""
    from gridengine.schedulers.logs import is_empty  # here: a map on this machine has no logs

    for path in folder.rglob("*.log"):
        if path.is_file() and is_empty(path):
            path.unlink(missing_ok=True)


def tidy(run: LaunchContext, *, failed: bool) -> None:
    """Remove a run directory except for logs with text. If nothing failed, mark the directory, so
    that it is kept less long.
    """
    from gridengine.schedulers.logs import is_empty  # here, as in `tidy_logs`

    for path in run.directory.rglob("*"):
        if path.is_file() and (path.suffix != ".log" or is_empty(path)):
            path.unlink(missing_ok=True)
    folders = sorted(path for path in run.directory.rglob("*") if path.is_dir())
    for folder in (*reversed(folders), run.directory):
        with contextlib.suppress(OSError):
            folder.rmdir()
    run.connection.unlink(missing_ok=True)
    if not failed and run.directory.exists():
        with contextlib.suppress(OSError):  # without the mark, the logs are kept longer
            (run.directory / SUCCEEDED).touch()
