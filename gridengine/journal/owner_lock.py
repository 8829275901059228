"""The lock of a run, which tells others who has it."""

from __future__ import annotations

import logging
from pathlib import Path

from gridengine.errors import JournalError
from gridengine.journal.lock_file import Holder, LockFile, read_holder

log = logging.getLogger("gridengine")


def take_lock(path: Path, what: str, *, wait: bool) -> LockFile:
    """Return the lock at this path, which one process has at a time, on whichever machine; it is
    released when that closes it, or dies. The file stays. A file system without locks is told of in
    the log, and then everybody has it.

    what: what the lock is for, in messages: 'the run "sweep"'. wait: for who has it to release it.

    Raises:
        JournalError: another has it; the text says who.
        OSError: the file cannot be made.
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
