"""A thread that writes to an SQLite file: changes within some milliseconds are one commit."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from gridengine.display import plural
from gridengine.errors import JournalError
from gridengine.settings.files import why_open
from gridengine.system.machine import mounts

log = logging.getLogger("gridengine")

RETRY_SECONDS = 5.0
"""How long after a failed commit the next one is tried."""
BUSY_SECONDS, LOOK_SECONDS = 5.0, 0.02
"""For how long a file that another process uses is waited for, and how often it is tried again
where SQLite does not wait by itself.
"""

Act: TypeAlias = Callable[[sqlite3.Connection], object]


class Change(Struct, frozen=True, eq=False):
    """A change to be written, and a function to call once it is durable."""

    act: Act
    on_durable: Callable[[], object] | None


class JournalWriter:
    """Writes changes in the order of the requests, from any thread. A committed change survives a
    loss of power, as far as the file system keeps its promises.

    A commit that fails (the disk is full, another process has locked the file) is logged once, as a
    warning. Its changes stay in memory and are tried again.

    Args:
        connect: returns a connection to the file; called in the thread, again after each failure.
        what: the name of the file in messages.
        delay_seconds: how long a change waits for others to share its commit.
    """

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], what: str, *, delay_seconds: float = 0.02
    ) -> None:
        self._connect = connect
        self._what = what
        self._delay_seconds = delay_seconds
        self._connection: sqlite3.Connection | None = None
        self._file: int | None = None
        """The inode of the file that was opened first; no other one is written."""
        self._path = Path()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: list[Change] = []
        self._asked = self._committed = 0
        """How many changes were requested, and how many of them are durable or given up."""
        self._hurries = self._closing = False
        self._failures = 0
        self.failure: Exception | None = None
        """Why the latest commit failed; None when it succeeded."""
        self._thread = threading.Thread(target=self._run, name="gridengine-journal", daemon=True)
        self._thread.start()

    def do(self, act: Act, on_durable: Callable[[], object] | None = None) -> None:
        """Let the thread make a change, by a function that takes the connection, within a
        transaction. The thread makes the change again if the commit fails, and calls `on_durable`,
        which must return at once, when it is durable.

        Raises:
            ValueError: the writer is closed.
        """
        with self._lock:
            if self._closing:
                raise ValueError(f"the writer of {self._what} is closed")
            self._asked += 1
            self._waiting.append(Change(act, on_durable))
            if len(self._waiting) == 1:
                self._changed.notify_all()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all requested changes are durable. Return False when `timeout` seconds pass,
        or a commit fails, before that.
        """
        with self._changed:
            wanted, failures = self._asked, self._failures
            self._hurries = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._committed >= wanted or self._failures > failures, timeout
            )
            return self._committed >= wanted

    def close(self) -> bool:
        """Write all remaining changes and end the thread. Return whether all are durable. A change
        that fails once more is logged as an error. May be called twice.
        """
        done = self.finish()
        self._thread.join()
        return done

    def finish(self) -> bool:
        """Close as `close` does, but return as soon as all changes are durable. The thread then
        runs SQLite's checkpoint and ends.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._committed >= self._asked)
            return self.failure is None

    def _run(self) -> None:
        with contextlib.suppress(sqlite3.DatabaseError, OSError):  # the first commit reports it
            self._open()  # meanwhile the first changes gather
        while changes := self._next():
            try:
                self._commit(changes)
            except (sqlite3.DatabaseError, OSError) as error:
                self._note_failure(changes, error)
            else:
                self._note_committed(changes)
        self._disconnect()

    def _next(self) -> list[Change]:
        """Wait for changes; return those for one commit, after time to gather; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            pause = self._delay_seconds if self.failure is None else RETRY_SECONDS
            self._changed.wait_for(lambda: self._hurries or self._closing, pause)
            self._hurries = False
            changes, self._waiting = self._waiting, []
            return changes

    def _open(self) -> sqlite3.Connection:
        """Return the connection. SQLite would write to a file that has been removed, and a new file
        would lack all earlier rows.

        Raises:
            DatabaseError, OSError: the file cannot be opened, or somebody has removed it.
        """
        if self._file is not None and _inode(self._path) != self._file:
            raise OSError("somebody has removed it")
        if self._connection is None:
            self._connection = self._connect()
            self._connection.isolation_level = None
            _, _, path = self._connection.execute("PRAGMA database_list").fetchone()
            self._path = Path(path)
            self._file = _inode(self._path)
        return self._connection

    def _commit(self, changes: Sequence[Change]) -> None:
        """Make these changes, all or none. A change that fails by itself, on any disk, is left out.

        Raises:
            DatabaseError, OSError: the file cannot be written now.
        """
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                change.act(connection)
        except Exception as error:
            if is_of_the_file(error):
                raise
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            for change in changes:
                self._act_or_tell(connection, change)
        connection.execute("COMMIT")

    def _act_or_tell(self, connection: sqlite3.Connection, change: Change) -> None:
        connection.execute("SAVEPOINT change")
        try:
            change.act(connection)
        except Exception as error:
            if is_of_the_file(error):
                raise
            connection.execute("ROLLBACK TO change")
            log.exception("%s: something could not be written, and is left out", self._what)
        connection.execute("RELEASE change")

    def _note_committed(self, changes: Sequence[Change]) -> None:
        if self.failure is not None:
            log.warning("%s: it could be written again; nothing is missing", self._what)
        for change in changes:
            if change.on_durable is not None:
                change.on_durable()
        with self._changed:
            self.failure = None
            self._committed += len(changes)
            self._changed.notify_all()

    def _note_failure(self, changes: list[Change], error: Exception) -> None:
        self._disconnect()
        known = self.failure is not None
        with self._changed:
            self.failure = error
            self._waiting = changes + self._waiting
            closing, left = self._closing, len(self._waiting)
        if closing:
            words = plural(left, "change")
            said = "%s: %s could not be written: %s; these are lost"
            log.error(said, self._what, words, error)
        elif not known:
            log.warning(
                "%s cannot be written: %s; its changes stay in memory, and are tried again every "
                "%g s",
                self._what,
                error,
                RETRY_SECONDS,
            )
        with self._changed:  # not before: once `finish` has returned, the process may end
            self._failures += 1
            if closing:
                self._waiting, self._committed = [], self._asked
            self._changed.notify_all()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):  # the failed commit is known already
                self._connection.close()
            self._connection = None


def _inode(path: Path) -> int | None:
    """Return the inode of a file; None if it is missing."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def is_of_the_file(error: Exception) -> bool:
    """Return whether an error is about the file or its disk, rather than the data to be written. A
    damaged file has no exception class of its own.
    """
    return type(error) is sqlite3.DatabaseError or isinstance(
        error, sqlite3.OperationalError | OSError
    )


def open_connection(path: str, *, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Return a connection to a file, created if it is missing, whose commits are durable when they
    return: by a write-ahead log or, on a network file system, by SQLite's rollback journal.

    Raises:
        sqlite3.DatabaseError: the file cannot be opened, or is not a database.
        JournalError: see `check_private`.
    """
    check_private(Path(path))
    connection = sqlite3.connect(path, timeout=busy_seconds, check_same_thread=False)
    try:
        connection.isolation_level = None
        if is_on_network(Path(path)):
            leave_wal(connection, busy_seconds)
        else:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def leave_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Have a file written by SQLite's rollback journal. A file leaves the mode WAL only when nobody
    else has it open, and SQLite's own timeout does not wait for that: another process, or the
    thread of a writer that has finished, may be closing it just now.

    Raises:
        sqlite3.DatabaseError: others have the file open for `busy_seconds` more; or see
            `open_connection`.
    """
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(LOOK_SECONDS)


SIDE_FILES = "-wal", "-shm", "-journal"
"""What SQLite appends to a file's name for the files beside it. It takes content from them into the
file, whoever left them there (https://www.sqlite.org/fileformat2.html, "hot journals").
"""


def check_private(path: Path) -> None:
    """Check that nobody but this user and root may write to a file, to the files beside it, or in
    its folder: what is read from it is unpickled. Files that do not exist are passed over.

    A folder with the sticky bit, such as /tmp, is refused too. The bit keeps others from removing
    files there, but not from leaving a side file under a name that is free at that moment.

    Raises:
        JournalError: somebody else may write.
    """
    # SQLite follows links, and has side files where they lead.
    real = Path(os.path.realpath(path))  # `resolve` would raise at links in a circle
    for one in (path.parent, real.parent, real, *(Path(f"{real}{end}") for end in SIDE_FILES)):
        try:
            facts = one.stat()
        except OSError:  # not there; or it cannot be read, of which the opener tells
            continue
        if reason := why_open(facts):
            raise JournalError(
                f"results are unpickled from {path}, which may do anything, and {one} is not this "
                f"user's alone: {reason}",
                hint="name another place (journal=) in a folder in which nobody else may write "
                "(mkdir -m 700), or close this one (chmod go-w)",
            )


NETWORKS = re.compile(
    "(?:nfs|cifs|smb|lustre|gpfs|beegfs|ceph|9p|afs|panfs|gluster|orangefs|pvfs|fuse)"
)
"""The prefixes of the types of file systems that several machines may have mounted. A write-ahead
log needs memory that all its users share (https://www.sqlite.org/wal.html).
"""


def is_on_network(path: Path) -> bool:
    """Return whether other machines may have this file's file system mounted; True if unknown."""
    try:
        kinds = mounts()
        place = path.resolve()
    except OSError:
        return True
    found = next((kinds[one] for one in (place, *place.parents) if one in kinds), "nfs")
    return NETWORKS.match(found) is not None
