"""The journal of a stand-alone dispatcher: its clients' requests, and the outcomes of their calls.

The journal stores clients' messages unchanged. A restarted dispatcher handles the remaining
messages as if they came again, except for tasks that have ended. So there is one way in, and
nothing to keep in step with the core. A message with many calls is one row that never changes; its
ended calls are in rows of their own, until all have ended and the client knows. Cancellations come
last in a restart, when the ended calls, and the calls that workers hold, are out of the queues.
Otherwise a cancellation would end them again, and outcomes would reach the client in other groups
than it knows. Rejected: a row for each call, which costs a hundred times the writes.

A write may be deferred (`write_later`): SQLite takes 40 to 60 ms for 10 MB, log and checkpoint
included, more than everything else about a result. So a large result waits up to 0.75 s, and up to
256 MB in all, for its client's acknowledgement, which makes the write superfluous. Until then,
later messages of workers are not acknowledged either: they may be about calls that run only once,
whose results nobody would have after a kill. Requests of clients overtake the deferred write.
Rejected: files of their own for large results. They would still be written, and be one more thing
to keep in step.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from gridengine.errors import ConfigurationError, JournalError
from gridengine.journal.writer import JournalWriter, open_connection
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import VERSION as PROTOCOL

VERSION = 1
SCHEMA = """
CREATE TABLE clients (
    number INTEGER PRIMARY KEY, peer BLOB NOT NULL, hello BLOB NOT NULL, seen INTEGER NOT NULL);
CREATE TABLE requests (
    id INTEGER PRIMARY KEY, client INTEGER NOT NULL, kind INTEGER NOT NULL, content BLOB NOT NULL);
CREATE INDEX requests_of ON requests (client, id);
CREATE TABLE ended (request INTEGER NOT NULL, calls BLOB NOT NULL);
CREATE INDEX ended_of ON ended (request);
CREATE TABLE outcomes (
    number INTEGER PRIMARY KEY, client INTEGER NOT NULL, content BLOB NOT NULL);
CREATE INDEX outcomes_of ON outcomes (client, number);
CREATE TABLE workers (id BLOB PRIMARY KEY, hello BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE assigned (run INTEGER PRIMARY KEY, worker BLOB NOT NULL, runs BLOB NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""
ADDED = """
CREATE TABLE IF NOT EXISTS absent (client INTEGER PRIMARY KEY, since REAL NOT NULL);
CREATE TABLE IF NOT EXISTS states (
    task INTEGER, place INTEGER, content BLOB NOT NULL, PRIMARY KEY (task, place));
"""
"""Tables that older files of this version may lack. `states`: what calls in progress have saved."""


LATER_SECONDS, LATER_BYTES = 0.75, 256 * 1024 * 1024
"""How long a deferred write waits to be withdrawn, and how many bytes all may have together."""


class _Deferred(Struct, eq=False):
    """A deferred write: when it is due (monotonic seconds), and its size in bytes."""

    due: float
    size: int
    write: Callable[[], None]


class DispatcherFile:
    """Writes in a thread of its own, and reports in the caller's thread when a write is durable.
    All methods are for one thread.

    Args:
        path: the file, created if it is missing.
        clock: of the loop that calls `write_due`.

    Raises:
        JournalError: the file is damaged, not a journal, or written by a gridengine whose journal
            this one cannot read.
        ConfigurationError: the file cannot be opened now, which may pass.
    """

    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = path
        self._clock = clock
        try:
            os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._reader = open_connection(str(path))
            try:
                _prepare(self._reader, path)
                self._check_protocol()
            except BaseException:
                self._reader.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise unusable(path, error) from error
        self.epoch = self.counted("epoch", 1) + 1
        """The epoch of this process: its number among the processes that have used the file."""
        self._begin(JournalWriter(partial(open_connection, str(path)), f"the journal {path}"))

    def _begin(self, writer: JournalWriter) -> None:
        self._writer = writer
        self._durable: deque[Callable[[], object]] = deque()
        self.wake: Callable[[], object] = lambda: None
        """Called, in another thread, when `settle` has work."""
        self._deferred: dict[int, _Deferred] = {}
        """The deferred writes by number, oldest first."""
        self._deferred_bytes = 0
        self._later: dict[int, None] = {}
        """The numbers of deferred writes that are neither durable nor superseded by a durable
        write.
        """
        self._last_later = 0
        self._behind: deque[tuple[int, Callable[[], object]]] = deque()
        """Functions to call once no deferred write up to this number is left."""

    def _check_protocol(self) -> None:
        """Check that the messages in the file have this process's protocol, as new ones will."""
        found = self.read("SELECT value FROM counters WHERE name = 'protocol'").fetchone()
        [held] = self.read(
            "SELECT EXISTS (SELECT 1 FROM clients) OR EXISTS (SELECT 1 FROM workers)"
        ).fetchone()
        if held and found and found[0] != PROTOCOL:
            raise JournalError(
                f"the dispatcher's journal {self.path} is of another gridengine: it is in "
                f"protocol {found[0]}, and this one speaks {PROTOCOL}",
                hint="start the dispatcher with that gridengine until its clients have their "
                "results; or move the file away to begin without its calls",
            )
        self._reader.execute("REPLACE INTO counters VALUES ('protocol', ?)", (PROTOCOL,))

    @property
    def pending(self) -> bool:
        """Whether `settle` has work."""
        return bool(self._durable)

    @property
    def failure(self) -> Exception | None:
        """Why the latest commit failed; None when it succeeded."""
        return self._writer.failure

    def write(
        self,
        statement: str,
        rows: Iterable[Sequence[Any]],
        then: Callable[[], object] | None = None,
    ) -> None:
        """Execute a statement for each of these rows. `settle` calls `then` once they are durable.
        A value that takes long to convert can have `__conform__`, which the writer's thread calls.
        """
        self.write_together((statement, tuple(rows)), then=then)

    def write_together(
        self,
        *changes: tuple[str, Sequence[Sequence[Any]]],
        then: Callable[[], object] | None = None,
    ) -> None:
        """Execute statements, each for its rows, all or none; see `write` for `then`."""

        def act(connection: sqlite3.Connection) -> None:
            for statement, rows in changes:
                connection.executemany(statement, rows)

        self._writer.do(act, None if then is None else partial(self._note, then))

    def write_later(
        self, statement: str, row: Sequence[Any], size: int, then: Callable[[], object]
    ) -> int:
        """Write one row of so many bytes, at first deferred and withdrawable. Return its number."""
        self._last_later = number = self._last_later + 1
        self._later[number] = None

        def on_disk() -> None:
            self.settle_later([number])
            then()

        due, write = self._clock.monotonic() + LATER_SECONDS, self.write
        self._deferred[number] = _Deferred(due, size, lambda: write(statement, [row], on_disk))
        self._deferred_bytes += size
        while self._deferred_bytes > LATER_BYTES:
            self.write_now([next(iter(self._deferred))])
        return number

    def _take(self, numbers: Iterable[int]) -> list[tuple[int, _Deferred]]:
        """Remove those of these writes that are still deferred, and return them."""
        taken = [(one, self._deferred.pop(one)) for one in numbers if one in self._deferred]
        self._deferred_bytes -= sum(one.size for _, one in taken)
        return taken

    def withdraw(self, numbers: Iterable[int]) -> list[int]:
        """Withdraw those of these writes that are still deferred. Return their numbers; pass them
        to `settle_later` once the write that supersedes them is durable.
        """
        return [number for number, _ in self._take(numbers)]

    def write_now(self, numbers: Iterable[int]) -> None:
        """Write these deferred writes now, before all later requests."""
        for _, one in self._take(numbers):
            one.write()

    @property
    def deadline(self) -> float:
        """The monotonic time at which `write_due` must be called."""
        return next(iter(self._deferred.values())).due if self._deferred else math.inf

    def write_due(self, now: float) -> None:
        """Write the deferred writes that can wait no longer."""
        self.write_now([number for number, one in self._deferred.items() if one.due <= now])

    def settle_later(self, numbers: Iterable[int]) -> None:
        """Mark these deferred writes as done: they were written, or superseded by a later write."""
        for number in numbers:
            del self._later[number]
        first = next(iter(self._later), math.inf)
        while self._behind and self._behind[0][0] < first:
            self._behind.popleft()[1]()

    def after_later(self, act: Callable[[], object]) -> None:
        """Call a function once all present deferred writes are done; at once if there are none."""
        if self._later:
            self._behind.append((self._last_later, act))
        else:
            act()

    def _note(self, then: Callable[[], object]) -> None:
        self._durable.append(then)
        if len(self._durable) == 1:  # otherwise an earlier entry has woken it already
            self.wake()

    def settle(self) -> None:
        """Call the functions whose writes are durable by now."""
        while self._durable:
            self._durable.popleft()()

    def read(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Return the rows of a query."""
        return self._reader.execute(statement, values)

    def counted(self, name: str, step: int) -> int:
        """Return a counter of the file, and increase it by `step` at once, durably."""
        found = self.read("SELECT value FROM counters WHERE name = ?", name).fetchone()
        value: int = found[0] if found else 0
        self._reader.execute("REPLACE INTO counters VALUES (?, ?)", (name, value + step))
        return value

    def close(self) -> None:
        """Write all remaining changes and close the file."""
        self.write_due(math.inf)
        self._writer.close()
        self._reader.close()


def unusable(path: Path, error: Exception) -> ConfigurationError:
    """Return the error of a journal that cannot be used: a `JournalError`, unless that may pass."""
    passes = isinstance(error, sqlite3.OperationalError | OSError)
    return (ConfigurationError if passes else JournalError)(
        f"the dispatcher's journal {path} cannot be used: {error}",
        hint="nothing was changed in it; move it away to begin without its calls",
    )


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise JournalError(
            f"the dispatcher's journal {path} is of a newer gridengine (version {version} of the "
            f"file; this one reads {VERSION})",
            hint="start the dispatcher with that, or move the file away",
        )
    if not version:
        connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
    connection.executescript(ADDED)
