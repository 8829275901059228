"""The tables of a run's file, and how it is opened.

| table | a row is |
|---|---|
| sessions | a map, or an executor; `anew`: results of those before do not count |
| functions | a function as it was, with the digests of its parts |
| blocks | calls of one function that were handed in together |
| orders | which calls a session had: those of a block from `start` to `stop`, from `first` on |
| results | outcomes of the calls `start` to `stop` of a block, the first at `item` of its payload |
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gridengine.errors import JournalError
from gridengine.journal.writer import open_connection

APPLICATION, VERSION = 0x67726964, 1
"""What SQLite has in the file's header: that it is of this package, and of which version."""
_TABLES = {
    "sessions": "id INTEGER PRIMARY KEY, started REAL, host TEXT, pid INTEGER, script TEXT, anew "
    "INTEGER",
    "functions": "id INTEGER PRIMARY KEY, name TEXT, digest BLOB, python TEXT, parts TEXT, payload "
    "BLOB",
    "blocks": "id INTEGER PRIMARY KEY, session INTEGER, function INTEGER, form INTEGER, calls "
    "INTEGER, digest BLOB, keys BLOB, arguments BLOB",
    "orders": "session INTEGER, first INTEGER, block INTEGER, start INTEGER, stop INTEGER",
    "results": "id INTEGER PRIMARY KEY, block INTEGER, start INTEGER, stop INTEGER, item INTEGER, "
    "state INTEGER, ended REAL, payload BLOB",
}
_SCHEMA = ";".join(
    [
        "BEGIN IMMEDIATE",
        *(f"CREATE TABLE IF NOT EXISTS {name} ({row})" for name, row in _TABLES.items()),
        "CREATE INDEX IF NOT EXISTS results_of_block ON results (block)",
        f"PRAGMA application_id = {APPLICATION}",
        f"PRAGMA user_version = {VERSION}",
        "COMMIT",
    ]
)


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection for the writer; a new file gets its tables."""
    if not path.exists():  # to close a file that SQLite has open would let go of its locks
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = open_connection(str(path))
    if not connection.execute("PRAGMA user_version").fetchone()[0]:
        connection.executescript(_SCHEMA)
    return connection


def open_to_read(name: str, path: Path) -> sqlite3.Connection:
    """Return a connection to the file of a run, for reading.

    Raises:
        JournalError: it is gone, no such file, or damaged; of a newer version, or somebody else's.
    """
    try:
        owner = path.stat().st_uid
    except OSError as error:
        raise JournalError(
            f"the file of the run {name!r} cannot be read: {path}: {error.strerror}"
        ) from None
    if owner != os.geteuid():
        raise JournalError(
            f"{path} belongs to somebody else: results are unpickled from it, which may do anything"
        )
    with explained(name, path):
        connection = sqlite3.connect(path, timeout=5, check_same_thread=False, isolation_level=None)
        try:
            return _checked(connection, name, path)
        except BaseException:
            connection.close()
            raise


def _checked(connection: sqlite3.Connection, name: str, path: Path) -> sqlite3.Connection:
    """Return a connection to a file that is a run's, or to what is made one."""
    [[application]] = connection.execute("PRAGMA application_id")
    [[version]] = connection.execute("PRAGMA user_version")
    [[tables]] = connection.execute("SELECT count(*) FROM sqlite_schema")
    if tables and application != APPLICATION:
        raise JournalError(f"{path} is no file of a run: it has other tables")
    if version > VERSION:
        raise JournalError(
            f"{path} was written by a newer version of gridengine (format {version}; this one "
            f"knows {VERSION})",
            hint=f"update gridengine, or take another name than {name!r}",
        )
    if not version:  # what made it was killed at once
        connection.close()
        return connect(path)
    return connection


@contextlib.contextmanager
def explained(name: str, path: Path) -> Iterator[None]:
    """Have what SQLite raises while a file is read said in our words.

    Raises:
        JournalError: instead.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        denied = code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        raise JournalError(
            f"the file of the run {name!r} cannot be read: {path}: {error}",
            hint="see that you may read and write it, and its folder"
            if denied
            else "look whether its disk is whole; move the file away, or take another name, to "
            "begin anew",
        ) from error
