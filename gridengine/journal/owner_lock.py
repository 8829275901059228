"""The lock of a run, which tells others who has it."""

from __future__ import annotations

import logging
from pathlib import Path

from gridengine.errors import JournalError
from gridengine.journal.lock_file import Holder, LockFile, read_holder

log = logging.getLogger("gridengine")


class OwnerLock:
    """Held by one process at a time, on whichever machine; let go of when that dies.

    Args:
        path: the file; it is made, and stays.
        what: what the lock is for, in messages: 'the run "sweep"'.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._lock: LockFile | None = None

    def acquire(self, *, wait: bool) -> None:
        """Take it; `wait` is for who has it to let go. A file system without locks is told of in
        the log, and then everybody has it.

        Raises:
            JournalError: another has it; the text says who.
            OSError: the file cannot be made.
        """
        lock = LockFile.take(self._path)
        if lock is None:
            who = read_holder(self._path) or "a process that has not said who it is"
            told = f"{self._what} is in use by {who}"
            if not wait:
                raise JournalError(
                    told, hint="wait=True waits for it to end; another name= is another run"
                )
            log.warning("%s; waiting for it to end", told)
            lock = LockFile.take(self._path, wait=True)
            assert lock is not None
        if lock.lacking:
            log.warning(
                "%s: the file system of %s has no locks (%s): see to it that no other script uses "
                "it at the same time",
                self._what,
                self._path,
                lock.lacking,
            )
        self._lock = lock
        try:
            lock.write(Holder.here())
        except OSError as error:  # the lock holds all the same
            log.debug("%s cannot be written: %s", self._path, error)

    def release(self) -> None:
        """Let go of it. May be called twice."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            lock.close()
