"""Begins and ends a dispatcher's run: builds the core's policy, writes the connection file, tidies
up the run directory and its logs.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gridengine._version import __version__
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.old_runs import CONNECTION, SUCCEEDED, remove_old_runs
from gridengine.dispatcher.standalone_files import WORKER, Home
from gridengine.errors import ConfigurationError
from gridengine.schedulers.base import Scheduler, adopt_none
from gridengine.schedulers.launcher import MARGIN_SECONDS, LaunchContext
from gridengine.schedulers.logs import is_empty
from gridengine.settings.values import Settings
from gridengine.wire.connection_file import (
    Connection,
    make_private_folder,
    replace_private,
    to_json,
)

if TYPE_CHECKING:
    from gridengine.wire.server import Server

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
