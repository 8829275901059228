"""The folders of runs: what they are called, and when those of runs that have ended are removed."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import stat
import time
from pathlib import Path

from gridengine.errors import ConfigurationError
from gridengine.wire.connection_file import Connection

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
    return facts.st_mtime < least and (files <= {LOGS, SUCCEEDED} or _was_killed(folder))


def _was_killed(folder: Path) -> bool:
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
