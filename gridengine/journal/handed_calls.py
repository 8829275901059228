"""The record of which calls of a named run a stand-alone dispatcher was handed.

Its tables are in the run's file, once the run was used with such a dispatcher. They also have the
name by which the dispatcher knows the run. A later process finds the outcomes by it.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gridengine.errors import JournalError
from gridengine.journal.run_file import RunFile
from gridengine.journal.run_reader import reading

_HANDED = (
    "CREATE TABLE IF NOT EXISTS origin (name TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS handed (task INTEGER NOT NULL, first INTEGER NOT NULL, stop "
    "INTEGER NOT NULL, block INTEGER NOT NULL, start INTEGER NOT NULL, dispatcher TEXT NOT NULL)",
)


class HandedCalls(NamedTuple):
    """The calls `first` to `stop` of a task: the calls of a block from `start` on."""

    task: int
    first: int
    stop: int
    block: int
    start: int


def origin(file: RunFile) -> str:
    """Return the unique name by which dispatchers know this run; empty if it cannot be written."""

    def make(connection: sqlite3.Connection) -> None:
        for table in _HANDED:
            connection.execute(table)
        connection.execute(
            "INSERT INTO origin SELECT ? WHERE NOT EXISTS (SELECT * FROM origin)",
            (f"{file.name}/{secrets.token_hex(8)}",),
        )

    file.writer.do(make)
    if not file.writer.flush():
        return ""
    with reading(file.name, file.path) as connection:
        name: str = connection.execute("SELECT name FROM origin").fetchone()[0]
    return name


def handed_to(name: str, path: Path) -> set[str]:
    """Return the public keys of the dispatchers that were handed calls of a run and have outcomes
    that the file lacks; none if the file cannot be read.
    """
    with contextlib.suppress(JournalError, OSError), reading(name, path) as connection:
        [[tables]] = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'handed'")
        if tables:
            return {key for [key] in connection.execute("SELECT DISTINCT dispatcher FROM handed")}
    return set()


def handed_calls(file: RunFile, dispatcher: str) -> dict[int, list[HandedCalls]]:
    """Return the calls that earlier processes have handed to a dispatcher, by task."""
    found: dict[int, list[HandedCalls]] = {}
    with reading(file.name, file.path) as connection:
        for row in connection.execute(
            "SELECT task, first, stop, block, start FROM handed WHERE dispatcher = ?", (dispatcher,)
        ):
            found.setdefault(row[0], []).append(HandedCalls(*row))
    return found


def forget_handed(file: RunFile, dispatcher: str) -> None:
    """Forget the calls handed to a dispatcher: all outcomes are here, or lost."""
    statement = "DELETE FROM handed WHERE dispatcher = ?"
    file.writer.do(lambda connection: connection.execute(statement, (dispatcher,)))


def places_of(
    handed: Sequence[HandedCalls], start: int, stop: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield where the outcome of the calls `start` to `stop` of a task belongs: the block, the
    range of its calls, and the place of the first call in the outcome.
    """
    for one in handed:
        first, last = max(one.first, start), min(one.stop, stop)
        if first < last:
            at = one.start + first - one.first
            yield one.block, at, at + last - first, first - start
