"""The tables of a run's file, and how the file is opened.

| table | a row is |
|---|---|
| sessions | a map, or an executor; `anew`: results of earlier sessions do not count |
| functions | one version of a function, with the digests of its parts |
| blocks | calls of one function that were handed in together |
| orders | the session's calls from `first` on: those of a block from `start` to `stop` |
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
"""The marks in the header of the SQLite file: that it belongs to this package, and its format."""
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
    # Only a new file: closing a descriptor of a file that SQLite has open releases its locks.
    if not path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = open_connection(str(path))
    if not connection.execute("PRAGMA user_version").fetchone()[0]:
        connection.executescript(_SCHEMA)
    return connection


def open_to_read(name: str, path: Path) -> sqlite3.Connection:
    """Return a connection to the file of a run, for reading.

    Raises:
        JournalError: the file is missing, damaged, no file of a run, of a newer version, or another
        user's.
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
    """Check that a file is a run's, and return the connection. An empty file gets its tables."""
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
    if not version:  # the process that created it was killed at once
        connection.close()
        return connect(path)
    return connection


@contextlib.contextmanager
def explained(name: str, path: Path) -> Iterator[None]:
    """Turn SQLite's errors while a file is read into errors of the package.

    Raises:
        JournalError: in place of SQLite's error.
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
            else "check the disk; move the file away, or take another name, to begin anew",
        ) from error
