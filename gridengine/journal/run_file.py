"""The file of a named run: its tables, how it is opened, and how its functions, calls and results
are written.

Calls are stored as they travel, in blocks: a row has the calls that went into one task. Results
that arrived together are one row, too. A block's arguments are stored with it, so that the calls
can be made again by another process, unless the arguments are large or refer to objects outside
them.

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
import functools
import itertools
import json
import logging
import os
import pickle
import platform
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from gridengine.errors import ConfigurationError, JournalError
from gridengine.journal.call_keys import FunctionKey
from gridengine.journal.lock_file import other_machine, take_lock
from gridengine.journal.writer import (
    BUSY_SECONDS,
    JournalWriter,
    check_private,
    is_of_the_file,
    is_on_network,
    leave_wal,
    open_connection,
)
from gridengine.serialize import pickling
from gridengine.serialize.byte_code import check_unmarked
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.serialize.references import awaited_in
from gridengine.serialize.shared_objects import needs_of
from gridengine.settings.values import settings
from gridengine.threads import once
from gridengine.wire.connection_file import make_private_folder

log = logging.getLogger("gridengine")

FOLDER, SUFFIX, LOCK = "named", ".sqlite", ".lock"
DELAY_SECONDS = 0.25
"""How long results wait for others to share a commit."""
MOST_CALLS = 1 << 40
"""How many calls one map can have: all calls of a session are numbered in one order."""
MOST_ARGUMENTS = 1_000_000
"""The arguments of a block are stored up to this many bytes."""
RETURNED, RAISED, FAILED = 0, 1, 2
"""The states of a result: values, the exception of one call, or an error of the package."""
Row: TypeAlias = tuple[Any, ...]


def folder() -> Path:
    """Return the folder for the files of runs without `journal=`."""
    return settings().runs / FOLDER


def lock_of(path: Path) -> Path:
    """Return the lock of a run's file."""
    return path.with_name(f"{path.name}{LOCK}")


def path_of(name: str, journal: str | os.PathLike[str] | None = None) -> Path:
    """Return the file of a run: in the run directory, or at `journal`, a file or a folder.

    Raises:
        JournalError: `name` cannot be the name of a file.
    """
    if not isinstance(name, str) or not name or len(name) > 200 or set(name) & set("/\0\n"):
        raise JournalError(
            f"{name!r} is not a name of a run: that is a text of at most 200 characters, none of "
            "them a slash"
        )
    if journal is None:
        return folder() / f"{name}{SUFFIX}"
    path = Path(journal).expanduser().absolute()
    return path / f"{name}{SUFFIX}" if path.is_dir() else path


class StoredBlock(NamedTuple):
    """Calls of one function that were handed in together. `digest` is the digest of their
    arguments. `keys` are the keys of the calls, joined; None when they follow from the arguments.
    """

    function: int
    form: int
    calls: int
    digest: bytes
    keys: bytes | None


class _Blob:
    """A payload on its way to the file. The writer's thread joins its bytes."""

    def __init__(self, payload: Payload | None, error: BaseException | None = None) -> None:
        self._payload = payload
        self._error = error

    def __conform__(self, protocol: object) -> Buffer:
        """Return the bytes that SQLite writes. A single buffer is a pickle, written unchanged."""
        try:
            if self._payload is None:
                return pickle.dumps(self._error, 5)
            buffers = pickling.fetched(self._payload)
        except Exception as error:  # any kind; a ValueError says that the file is not at fault
            raise ValueError("the outcome of a call cannot be read") from error
        if len(buffers) == 1:
            return buffers[0]
        sizes = msgspec.msgpack.encode([memoryview(one).nbytes for one in buffers])
        return b"".join([b"B", len(sizes).to_bytes(4, "big"), sizes, *buffers])


def payload_of(blob: bytes) -> list[Buffer]:
    """Return the payload that `_Blob` wrote."""
    if blob[:1] != b"B":
        return [blob]
    view, start = memoryview(blob), 5 + int.from_bytes(blob[1:5], "big")
    buffers: list[Buffer] = []
    for size in msgspec.msgpack.decode(view[5:start], type=list[int]):
        buffers.append(view[start : start + size])
        start += size
    return buffers


def read_result(connection: sqlite3.Connection, row: int) -> list[Buffer]:
    """Return the payload of a row of results.

    Raises:
        VersionMismatch: the payload has code of another version of Python, and is so old that the
            code does not name its version.
    """
    [[python, blob]] = connection.execute(
        "SELECT python, results.payload FROM results JOIN blocks ON blocks.id = block "
        "JOIN functions ON functions.id = function WHERE results.id = ?",
        (row,),
    )
    payload = payload_of(blob)
    check_unmarked(payload[0], python)
    return payload


def read_outcome(connection: sqlite3.Connection, row: int, state: int) -> Any:
    """Return the content of a row of results in this state: its values, the payload of an
    exception, or an error of the package.

    Raises:
        VersionMismatch: see `read_result`.
        Exception: it cannot be rebuilt here.
    """
    payload = read_result(connection, row)
    if state == FAILED:
        return pickle.loads(payload[0])
    if state == RAISED:
        return payload
    values, complete = pickling.load_values(payload)
    if not complete:
        raise next(one.error for one in values if type(one) is Unloadable)
    return values


class Closes(Protocol):
    """Anything that can be closed."""

    def close(self) -> None: ...


class RunFile:
    """The file of one run, open for writing by this process alone. Its methods may be called from
    any thread.

    Raises:
        JournalError: see `open_run`.
    """

    def __init__(self, name: str, path: Path, *, wait: bool = False) -> None:
        self.name = name
        self.path = path
        self.what = f'the run "{name}"'
        if path.parent == folder() and not path.parent.exists():
            try:
                make_private_folder(path.parent)
            except ConfigurationError:
                if not path.parent.exists():  # else another process has just made it
                    raise
        try:
            self._lock = take_lock(lock_of(path), self.what, wait=wait)
        except OSError as error:
            raise JournalError(
                f"{self.what} cannot be stored in {path}: {error.strerror or error}",
                hint=f"see that there is a folder {path.parent} in which you may write",
            ) from None
        self._reader: sqlite3.Connection | None = None
        try:
            check_private(path)
            if path.exists():
                self._reader = open_to_read(name, path)
            self.session, block, function = _last_ids(self._reader)
        except BaseException:
            self._lock.close()
            raise
        self._has_blocks = False
        """Whether this process has added a block."""
        self._block_numbers = itertools.count(block + 1)
        self._function_numbers = itertools.count(function + 1)
        self._ids: dict[bytes, int] = {}
        self._began = False
        self._maps = itertools.count(1)
        self.clients_lock = threading.Lock()
        self.clients: dict[Path, Closes] = {}
        """The clients of stand-alone dispatchers that make this run's calls, by the paths of these
        dispatchers' connection files. `close` closes them before the file. `clients_lock`
        is the lock of this table.
        """
        self._closed = False
        self._owner = os.getpid()
        self._lock_of_ids, self._lock_of_rows = threading.Lock(), threading.Lock()
        self._rows: dict[str, list[Row]] | None = None
        """The rows of each table that the next commit writes; None when there are none."""
        again = functools.partial(connect, path)
        self.writer = JournalWriter(again, f"the file {path}", delay_seconds=DELAY_SECONDS)

    def read(self) -> sqlite3.Connection | None:
        """Return a connection for looking up known calls; None when the file is empty.

        Raises:
            JournalError: the file is damaged.
        """
        if self._has_blocks:
            self.writer.flush()
            if self._reader is None and self.path.exists():
                self._reader = open_to_read(self.name, self.path)
        return self._reader

    def begin(self, *, anew: bool = False) -> int:
        """Begin a map, or a similar request, of this process's session; return the number of its
        first call. With `anew`, earlier results do not count any more.
        """
        with self._lock_of_ids:
            if not self._began or anew:
                self._began = True
                self.session += 1
                row = (self.session, time.time(), socket.gethostname(), os.getpid(), script(), anew)
                self._insert("sessions", *row)
        return next(self._maps) * MOST_CALLS

    def function(self, key: FunctionKey, payload: Payload) -> int:
        """Return the number of this version of a function; a new version is added."""
        with self._lock_of_ids:
            if key.digest not in self._ids:
                number = self._ids[key.digest] = next(self._function_numbers)
                about = (number, key.name, key.digest, platform.python_version())
                blob = _Blob(payload) if _is_whole(payload) else None
                self._insert("functions", *about, json.dumps(key.parts), blob)
            return self._ids[key.digest]

    def note_function(self, digest: bytes, number: int) -> None:
        """Note that the file has a function."""
        self._ids[digest] = number

    def add_block(self, block: StoredBlock, arguments: Payload | None) -> int:
        """Write calls that are handed in; return the number of their block."""
        self._has_blocks = True
        number = next(self._block_numbers)
        blob = None if arguments is None or not _is_whole(arguments) else _Blob(arguments)
        self._insert("blocks", number, self.session, *block, blob)
        return number

    def add_order(self, first: int, block: int, start: int, stop: int) -> None:
        """Note that this session's calls from `first` on are these calls of a block."""
        self._insert("orders", self.session, first, block, start, stop)

    def add_result(
        self,
        place: tuple[int, int, int, int],
        payload: Payload | None,
        error: BaseException | None,
        *,
        raised: bool,
    ) -> None:
        """Write the outcome of calls. `place` is (block, start, stop, item): the calls `start` to
        `stop` of a block, whose first value is at `item` of the payload.
        """
        state = FAILED if payload is None else RAISED if raised else RETURNED
        self._insert("results", None, *place, state, time.time(), _Blob(payload, error))

    def _insert(self, table: str, *row: Any) -> None:
        with self._lock_of_rows:
            if self._closed:  # nobody waits for these calls any more
                return
            if self._rows is None:
                self._rows = {}
                self.writer.do(functools.partial(self._write, self._rows))
            self._rows.setdefault(table, []).append(row)

    def _write(self, tables: dict[str, list[Row]], connection: sqlite3.Connection) -> None:
        """Write rows, in the writer's thread, but none that cannot be pickled or is too large."""
        with self._lock_of_rows:
            if self._rows is tables:
                self._rows = None
        self._lock.check()
        for table, rows in tables.items():
            statement = f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})"
            connection.execute("SAVEPOINT rows")
            try:
                connection.executemany(statement, rows)
            except Exception as error:
                if is_of_the_file(error):
                    raise
                connection.execute("ROLLBACK TO rows")
                for row in rows:
                    _write_or_tell(connection, statement, row, self.what)
            connection.execute("RELEASE rows")

    def add_handed(self, calls: tuple[int, int, int, int, int], dispatcher: str) -> None:
        """Note which calls a dispatcher is handed; see `run_reader`."""
        self._insert("handed", *calls, dispatcher)

    def close(self) -> None:
        """Write the remaining rows and release the file. May be called twice. In a fork do nothing:
        the file, its lock and the thread that writes are its parent's.
        """
        if os.getpid() != self._owner:
            return
        for one in list(self.clients.values()):
            one.close()
        with self._lock_of_rows:
            closed, self._closed = self._closed, True
        if not closed:
            self.writer.finish()
            if self._reader is not None:
                self._reader.close()
            self._lock.close()


def _write_or_tell(connection: sqlite3.Connection, statement: str, row: Row, what: str) -> None:
    try:
        connection.execute(statement, row)
    except Exception as error:
        if is_of_the_file(error):
            raise
        if isinstance(error, sqlite3.DataError):  # "string or blob too big"
            log.error(
                "%s: a result of over 1 GB cannot be stored, and its calls will run again; have "
                "them write it to a file, and return the path",
                what,
            )
        else:
            log.exception("%s: something could not be stored, and its calls will run again", what)


def _is_whole(payload: Payload) -> bool:
    """Return whether a payload may be stored so that another process can make its calls: it is not
    large, and refers to nothing outside itself.
    """
    refers = needs_of(payload) or awaited_in(payload)
    return not refers and size_of(payload) <= MOST_ARGUMENTS


def _last_ids(reader: sqlite3.Connection | None) -> tuple[int, int, int]:
    """Return the last numbers of a session, a block and a function."""
    if reader is None:
        return 0, 0, 0
    [found] = reader.execute(
        "SELECT (SELECT max(id) FROM sessions), (SELECT max(id) FROM blocks), "
        "(SELECT max(id) FROM functions)"
    )
    session, block, function = (number or 0 for number in found)
    return session, block, function


def script() -> str:
    """Return a name for the program that the user runs: the script's path, or "a prompt"."""
    first = sys.argv[0] if sys.argv else ""
    return str(Path(first).absolute()) if first not in ("", "-", "-c") else "a prompt"


@once
def _open_runs() -> dict[Path, tuple[RunFile, int]]:
    """Return the files of runs that this process has open, and how many users each has."""
    return {}


@once
def _opening() -> threading.Lock:
    return threading.Lock()


def open_run(name: str, path: Path, *, wait: bool) -> RunFile:
    """Return the file of a run, open for writing. Users in this process share it, and each must
    `release` it.

    Raises:
        JournalError: another process has it, it is damaged, or a newer version wrote it.
    """
    with _opening():
        run, users = _open_runs().get(path) or (RunFile(name, path, wait=wait), 0)
        _open_runs()[path] = run, users + 1
        return run


def files_in_use() -> list[RunFile]:
    """Return the files of runs that this process has open. Takes no lock, because `open_run` may
    hold it while it waits for another process; copying a dict is atomic.
    """
    return [run for run, _ in list(_open_runs().values())]


def release(run: RunFile) -> None:
    """Release the file of a run; the last user closes it. Do nothing if it was left by `leave`."""
    with _opening():
        found, users = _open_runs().get(run.path, (None, 0))
        if found is not run:
            return
        if users > 1:
            _open_runs()[run.path] = run, users - 1
            return
        del _open_runs()[run.path]
        run.close()


def leave(run: RunFile) -> None:
    """Close the file of a run whose calls go on without this process, even if users have not
    released it: another process may open it now.
    """
    with _opening():
        if _open_runs().get(run.path, (None, 0))[0] is run:
            del _open_runs()[run.path]
        run.close()


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
        JournalError: the file is missing, damaged, no file of a run, of a newer version, or others
        may write to it.
    """
    try:
        path.stat()
    except OSError as error:
        raise JournalError(
            f"the file of the run {name!r} cannot be read: {path}: {error.strerror}"
        ) from None
    check_private(path)
    on_network = is_on_network(path)
    if on_network:
        _check_readable_here(name, path)
    with explained(name, path):
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
        )
        try:
            if on_network:  # the machine that has the disk itself may have left it in WAL mode
                leave_wal(connection, BUSY_SECONDS)
            return _checked(connection, name, path)
        except BaseException:
            connection.close()
            raise


def _check_readable_here(name: str, path: Path) -> None:
    """Check that no script uses the file on the machine that has the disk itself. Such a script has
    a write-ahead log, which other machines cannot read.
    """
    if Path(f"{path}-wal").exists() and (found := other_machine(lock_of(path))):
        raise JournalError(
            f"the run {name!r} cannot be read on this machine now: {found[0]}, uses it with a log "
            "that only programs of that machine can read",
            hint="read it there, or when that process has ended",
        )


def _checked(connection: sqlite3.Connection, name: str, path: Path) -> sqlite3.Connection:
    """Check that a file is a run's, and return the connection. An empty file gets its tables."""
    [[application]] = connection.execute("PRAGMA application_id")
    [[version]] = connection.execute("PRAGMA user_version")
    [[tables]] = connection.execute("SELECT count(*) FROM sqlite_schema")
    if tables and application != APPLICATION:
        raise JournalError(f"{path} is not the file of a run: it has other tables")
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
