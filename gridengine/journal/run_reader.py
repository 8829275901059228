"""Named runs on disk: reading them without the code that made them."""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
import platform
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from gridengine.errors import ConfigurationError, JournalError, VersionMismatch
from gridengine.journal.lock_file import is_locked, other_machine, take_lock
from gridengine.journal.run_file import (
    FAILED,
    LOCK,
    RETURNED,
    SUFFIX,
    explained,
    folder,
    lock_of,
    open_to_read,
    path_of,
    payload_of,
    read_outcome,
)
from gridengine.journal.writer import SIDE_FILES
from gridengine.serialize import pickling
from gridengine.serialize.byte_code import PYTHON, check_unmarked, minor_version
from gridengine.serialize.payload import Buffer

log = logging.getLogger("gridengine")

BESIDE = ("", *SIDE_FILES, LOCK)
"""The suffixes of a run's files."""


class RunSummary(Struct, frozen=True):
    """A run: its name, when it was last begun (seconds since 1970), by which script, host and
    process, how many of the calls of that session are done, failed and left, and its size in bytes.
    `error` says why its file cannot be read; then the other facts are unknown.
    """

    name: str
    path: str
    size: int
    when: float = 0.0
    script: str = ""
    host: str = ""
    done: int = 0
    failed: int = 0
    left: int = 0
    error: str = ""
    pid: int = 0


class StoredCalls(Struct, frozen=True):
    """Consecutive calls of a run: the calls of a block from `start` to `stop`. `row` is the row of
    their outcomes and `state` its state; `row` 0 means that they have no outcome.
    """

    block: int
    start: int
    stop: int
    row: int
    state: int


def find(name: str, journal: Any = None) -> Path:
    """Return the file of a run.

    Raises:
        JournalError: there is no such run.
    """
    path = path_of(name, journal)
    if not path.is_file():
        raise JournalError(
            f"there is no run {name!r}: {path} does not exist", hint="`gridengine runs` lists them"
        )
    return path


def paths() -> list[Path]:
    """Return the files of runs in the run directory, by name."""
    return sorted(one for one in folder().glob(f"*{SUFFIX}") if one.is_file())


def summary(path: Path) -> RunSummary:
    """Return a summary of a run; its `error` is set when the file cannot be read."""
    name = path.name.removesuffix(SUFFIX)
    size = size_and_time(path)[0]
    try:
        with reading(name, path) as connection:
            found = connection.execute(
                "SELECT started, script, host, pid FROM sessions ORDER BY id DESC LIMIT 1"
            ).fetchall()
            when, script, host, pid = found[0] if found else (path.stat().st_mtime, "", "", 0)
            counts = collections.Counter[int]()
            for call in calls(connection):
                counts[2 if not call.row else int(call.state != RETURNED)] += call.stop - call.start
    except (ConfigurationError, OSError) as error:
        return RunSummary(name, str(path), size, error=str(error))
    return RunSummary(
        name=name,
        path=str(path),
        size=size,
        when=when,
        script=script,
        host=host,
        done=counts[0],
        failed=counts[1],
        left=counts[2],
        pid=pid,
    )


def files(path: Path) -> list[Path]:
    """Return the existing files of a run."""
    beside = (path.with_name(f"{path.name}{end}") for end in BESIDE)
    return [one for one in beside if one.exists()]


def size_and_time(path: Path) -> tuple[int, float]:
    """Return the total size in bytes of a run's files, and when one of them was last written
    (seconds since 1970).
    """
    size, time = 0, 0.0
    for one in files(path):
        with contextlib.suppress(FileNotFoundError):  # its writer has just closed and removed it
            found = one.stat()
            size, time = size + found.st_size, max(time, found.st_mtime)
    return size, time


@contextlib.contextmanager
def reading(name: str, path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file of a run for reading, as it is at this moment.

    Raises:
        JournalError: the file cannot be read.
    """
    with explained(name, path), contextlib.closing(open_to_read(name, path)) as connection:
        connection.execute("BEGIN")
        yield connection


def is_under_way(name: str, path: Path) -> bool:
    """Return whether a script has the run open and some of its calls have no result.

    Raises:
        JournalError: the file cannot be read.
    """
    lock = lock_of(path)
    if not is_locked(lock) and other_machine(lock) is None:
        return False
    with reading(name, path) as connection:
        return not all(call.row for call in calls(connection))


def calls(connection: sqlite3.Connection) -> Iterator[StoredCalls]:
    """Yield the calls of the last session that made any, in the order of their submission."""
    states: dict[int, int] = {0: 0}
    rows: dict[int, list[int]] = {}
    for id, block, start, stop, state in connection.execute(
        "SELECT id, block, start, stop, state FROM results ORDER BY id"
    ):
        states[id] = state
        known = rows.setdefault(block, [])
        known.extend(itertools.repeat(0, stop - len(known)))
        known[start:stop] = [id] * (stop - start)
    for block, start, stop in connection.execute(
        "SELECT block, start, stop FROM orders WHERE session = (SELECT max(session) FROM orders) "
        "ORDER BY first"
    ):
        found = rows.get(block, [])[start:stop]
        found.extend(itertools.repeat(0, stop - start - len(found)))
        for row, same in itertools.groupby(found):
            end = start + sum(1 for _ in same)
            yield StoredCalls(block, start, end, row, states[row])
            start = end


def outcome(connection: sqlite3.Connection, call: StoredCalls) -> list[Any] | BaseException:
    """Return the values of calls that have a row, or their error.

    Raises:
        Exception: they cannot be rebuilt here.
    """
    content = read_outcome(connection, call.row, call.state)
    if call.state == FAILED:
        return cast(BaseException, content)
    if call.state != RETURNED:
        return pickling.load_exception(content)
    [[start, item]] = connection.execute(
        "SELECT start, item FROM results WHERE id = ?", (call.row,)
    )
    first = item + call.start - start
    return list(content[first : first + call.stop - call.start])


def check_python(connection: sqlite3.Connection, call: StoredCalls) -> None:
    """Check that the function of these calls was stored by this minor version of Python: no other
    can load its code.

    Raises:
        VersionMismatch: it was not; the text says what to do.
    """
    [[name, python]] = connection.execute(
        "SELECT name, python FROM functions WHERE id = (SELECT function FROM blocks WHERE id = ?)",
        (call.block,),
    )
    if minor_version(python) != PYTHON:
        raise VersionMismatch(
            f"{name} was stored by Python {python}, and this is Python {platform.python_version()}"
            ", which cannot load it, nor the classes of its script",
            hint=f"use Python {minor_version(python)}; or run the script again with this one: it "
            "makes the calls anew, and deletes nothing",
        )


def load_classes(connection: sqlite3.Connection) -> None:
    """Load the classes that came with the functions and arguments of a run, so that results can
    refer to them by name. Those of another version of Python are skipped.
    """
    for python, function, arguments in connection.execute(
        "SELECT python, payload, NULL FROM functions WHERE payload IS NOT NULL UNION ALL "
        "SELECT python, NULL, arguments FROM blocks JOIN functions ON functions.id = function "
        "WHERE keys IS NOT NULL AND arguments IS NOT NULL"
    ):
        if minor_version(python) != PYTHON:
            continue
        try:
            if function is None:
                pickling.load(payload_of(arguments))
            else:
                pickling.load_function(payload_of(function))
        except Exception as error:  # such as a module that this machine does not have
            log.debug("a function or arguments of the run cannot be rebuilt: %s", error)


def arguments(
    connection: sqlite3.Connection, chosen: Iterable[StoredCalls]
) -> Iterator[tuple[int, int, StoredCalls, list[Any] | None]]:
    """Yield for each of these calls: the number of its function, the form, the calls, and their
    arguments (None when these were not stored).

    Raises:
        VersionMismatch: another version of Python has stored the function.
    """
    for call in chosen:
        check_python(connection, call)
        function, form, payload = block_of(connection, call.block)
        given = pickling.load(payload)[call.start : call.stop] if payload else None
        yield function, form, call, given


def block_of(connection: sqlite3.Connection, block: int) -> tuple[int, int, list[Buffer]]:
    """Return the number of a block's function, the form of its calls, and the payload of their
    arguments (empty when these were not stored).

    Raises:
        VersionMismatch: see `run_file.read_result`.
    """
    [[function, form, python, blob]] = connection.execute(
        "SELECT function, form, python, arguments FROM blocks JOIN functions "
        "ON functions.id = function WHERE blocks.id = ?",
        (block,),
    )
    payload = [] if blob is None else payload_of(blob)
    if payload:
        check_unmarked(payload[0], python)
    return function, form, payload


def function_of(connection: sqlite3.Connection, number: int) -> tuple[str, Any]:
    """Return the name of a function, and the function itself (None when it was not stored).

    Raises:
        Exception: it cannot be rebuilt here.
    """
    [[name, blob]] = connection.execute(
        "SELECT name, payload FROM functions WHERE id = ?", (number,)
    )
    return name, None if blob is None else pickling.load_function(payload_of(blob))[0]


def forget(path: Path) -> None:
    """Delete a run.

    Raises:
        JournalError: a script has the run open.
        OSError: it cannot be deleted.
    """
    name = path.name.removesuffix(SUFFIX)
    with contextlib.closing(take_lock(lock_of(path), f'the run "{name}"', wait=False)):
        for one in files(path):
            one.unlink(missing_ok=True)
