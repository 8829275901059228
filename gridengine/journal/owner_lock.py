"""The lock of a named run, which tells others which process has the run."""

from __future__ import annotations

import logging
from pathlib import Path

from gridengine.errors import JournalError
from gridengine.journal.lock_file import Holder, LockFile, read_holder

log = logging.getLogger("gridengine")


def take_lock(path: Path, what: str, *, wait: bool) -> LockFile:
    """Return the lock at this path. One process on any machine has it at a time; it is released
    when that process closes it or dies. The file stays. On a file system without locks a warning is
    logged, and everybody gets the lock.

    what: the name of the locked thing in messages, such as 'the run "sweep"'. wait: whether to wait
        for the lock to be released.

    Raises:
        JournalError: another process has the lock; the text says which.
        OSError: the file cannot be created.
    """
    lock = LockFile.take(path)
    if lock is None:
        who = read_holder(path) or "a process that has not said who it is"
        told = f"{what} is in use by {who}"
        if not wait:
            raise JournalError(
                told, hint="wait=True waits for it to end; another name= is another run"
            )
        log.warning("%s; waiting for it to end", told)
        lock = LockFile.take(path, wait=True)
        assert lock is not None
    if lock.lacking:
        log.warning(
            "%s: the file system of %s has no locks (%s): see to it that no other script uses "
            "it at the same time",
            what,
            path,
            lock.lacking,
        )
    try:
        lock.write(Holder.here())
    except OSError as error:  # the lock holds all the same
        log.debug("%s cannot be written: %s", path, error)
    return lock
