"""The part of a dispatcher's journal that all clients share: the list of clients, numbers that no
earlier process has used, and the encoding of rows.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gridengine.dispatcher import journal_limits
from gridengine.display import log
from gridengine.errors import ProtocolError, VersionMismatch
from gridengine.journal.dispatcher_file import DispatcherFile, unusable
from gridengine.serialize.byte_code import PYTHON
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import ClientHello, FinishedItem, Message, Saved, TaskItem

_DELETE_STATE = "DELETE FROM states WHERE task = ? AND place = ?"
_NUMBERS = 1000
"""Reserve this many client numbers at a time, so that most new clients need no write."""


class Journal:
    """The journal of all clients of a dispatcher. All methods are for one thread."""

    def __init__(self, file: DispatcherFile) -> None:
        self.file = file
        self.ids = count(_last(file, "requests", "id") + 1).__next__
        self.numbers = count(_last(file, "outcomes", "number") + 1).__next__
        self.epoch = file.epoch
        self._last_client = file.counted("client", _NUMBERS)
        self._reserved = self._last_client + _NUMBERS
        self.first_client = self._last_client + 1
        """The first client number of this process: earlier processes gave only lower ones."""
        self.committed = 0
        """The number of the latest message with outcomes that is durable."""
        self._told: dict[Callable[[], object], None] = {}
        self._unneeded: list[tuple[int, int]] = []
        """The calls whose saved states `delete_states` deletes, as (task, index)."""

    def new_client(self) -> int:
        """Return a number that no other client has had, and that none will get after a restart."""
        self._last_client += 1
        if (
            self._reserved - self._last_client < _NUMBERS // 2
        ):  # early, because the write takes effect later
            self._reserved += _NUMBERS
            self.file.write("REPLACE INTO counters VALUES ('client', ?)", [(self._reserved,)])
        return self._last_client

    def add(self, number: int, peer: bytes, hello: ClientHello) -> None:
        """Record a client."""
        row = number, peer, b"".join(map(bytes, encode(hello))), 0
        self.file.write("INSERT INTO clients VALUES (?, ?, ?, ?)", [row])

    def clients(self) -> Iterator[tuple[int, bytes, ClientHello, int]]:
        """Yield the recorded clients: the number, peer and greeting of each, and how many of its
        requests are recorded.
        """
        self.committed = _last(self.file, "outcomes", "number")
        for number, peer, hello, seen in self.file.read("SELECT * FROM clients"):
            message, _ = decode([hello])
            assert isinstance(message, ClientHello)
            yield number, peer, message, seen

    def absent(self) -> dict[int, float]:
        """Return the numbers of absent clients, each with the time since which it is gone, in
        seconds since 1970.
        """
        return dict(self.file.read("SELECT * FROM absent"))

    def states(self) -> dict[int, dict[int, Payload]]:
        """Return the states that calls have saved, by task and index.

        Raises:
            JournalError: one cannot be read.
        """
        found: dict[int, dict[int, Payload]] = {}
        for task, index, content in self.file.read("SELECT * FROM states"):
            try:
                found.setdefault(task, {})[index] = read_content("states", task, content)[1]
            except ProtocolError as error:
                raise unusable(self.file.path, error) from error
        return found

    def record_state(self, task: int, index: int, payload: Payload | None) -> None:
        """Record the state that a call has saved, in the place of its earlier one; or, with None,
        have `delete_states` delete it. A state that no row can hold is held in memory alone.
        """
        if payload is None:
            self._unneeded.append((task, index))
        elif journal_limits.is_large(payload):
            self.file.write(_DELETE_STATE, [(task, index)])
            log().warning(
                "a call has saved a state of %s bytes, which a restart of the dispatcher will "
                "lose: save the path of a file",
                f"{size_of(payload):,}",
            )
        else:
            content = RowContent(Saved(0, index, len(payload)), payload)
            row = task, index, content
            self.file.write("REPLACE INTO states VALUES (?, ?, ?)", [row])

    def delete_states(self) -> None:
        """Delete the states of calls that have ended, after the outcomes of these calls are
        durable. In the other order, a kill in between would have such a call begin anew.
        """
        if self._unneeded:
            gone, self._unneeded = self._unneeded, []
            self.file.after_later(lambda: self.file.write(_DELETE_STATE, gone))

    def settle(self) -> None:
        """Tell clients which of their requests and outcomes are durable by now."""
        self.file.settle()
        told, self._told = self._told, {}
        for tell in told:
            tell()

    def note_durable(self, tell: Callable[[], object]) -> None:
        """Call this function, once, at the end of the current or next `settle`, however often it is
        passed.
        """
        self._told[tell] = None


def _last(file: DispatcherFile, table: str, column: str) -> int:
    """Return the highest number in a column of a table, or 0 if the table is empty."""
    found: int = file.read(f"SELECT ifnull(max({column}), 0) FROM {table}").fetchone()[0]
    return found


def open_file(path: Path, clock: Clock = SYSTEM_CLOCK) -> DispatcherFile:
    """Open a dispatcher's journal, and check that this Python can run its calls. `clock` is that of
    the loop that uses it.

    Raises:
        JournalError, ConfigurationError: see `DispatcherFile`; or a client's greeting is damaged.
        VersionMismatch: the journal has functions of another version of Python.
    """
    file = DispatcherFile(path, clock)
    try:
        for (hello,) in file.read("SELECT hello FROM clients"):
            message, _ = decode([hello])
            assert isinstance(message, ClientHello)
            _check_python(message.python, path)
    except ProtocolError as error:
        file.close()
        raise unusable(path, error) from error
    except BaseException:
        file.close()
        raise
    return file


def _check_python(python: str, path: Path) -> None:
    if python not in ("", PYTHON):  # clients in other languages send no functions
        raise VersionMismatch(
            f"the dispatcher's journal {path} has calls of Python {python}, and this is Python "
            f"{PYTHON}, which cannot run them",
            hint=f"start the dispatcher with Python {python} until its clients have their results; "
            "or move the file away to begin without them",
        )


ROW_BYTES = 64 * 1024 * 1024
"""One row of the journal has at most this many bytes, unless a single call has more."""
LARGE = 256 * 1024
"""Contents of at least this many bytes are encoded without msgpack's encoder, which copies
everything again each time its buffer grows.
"""
_HEAD = struct.Struct(">BI")
_ARRAY, _BINARY = 0xDD, 0xC6
"""The bytes with which msgpack's arrays and binary data of any length begin; their length follows
(https://github.com/msgpack/msgpack/blob/master/spec.md).
"""
Part = TypeVar("Part", TaskItem, FinishedItem)


class RowContent(Struct):
    """The content of a row: the frames of a message as a msgpack array. The thread that writes
    encodes it. Large buffers are copied once, and other threads can run during the copy.
    """

    message: Message
    buffers: Sequence[Buffer]

    def __conform__(self, protocol: object) -> bytes:
        frames = encode(self.message, self.buffers)
        if size_of(frames) < LARGE:
            return msgspec.msgpack.encode(frames)
        parts: list[Buffer] = [_HEAD.pack(_ARRAY, len(frames))]
        for frame in frames:
            parts += _HEAD.pack(_BINARY, size_of([frame])), frame
        return b"".join(parts)


def portions_of(
    items: Sequence[Part], buffers: Sequence[Buffer]
) -> Iterator[tuple[list[Part], Sequence[Buffer]]]:
    """Split the items of a message into portions that each fit into a row; yield each with its
    buffers.
    """
    if size_of(buffers) <= ROW_BYTES:
        if items:
            yield list(items), buffers
        return
    some: list[Part] = []
    start = stop = size = 0
    for one in items:
        end = stop + (one.count_buffers() if isinstance(one, FinishedItem) else one.buffers)
        more = size_of(buffers[stop:end])
        if some and size + more > ROW_BYTES:
            yield some, buffers[start:stop]
            some, start, size = [], stop, 0
        some.append(one)
        stop, size = end, size + more
    yield some, buffers[start:stop]


_ID = attrgetter("id")


def task_ids(tasks: Iterable[TaskItem]) -> array[int]:
    """Return the numbers of tasks, sorted."""
    return array("q", sorted(map(_ID, tasks)))


def read_content(table: str, row: int, content: bytes) -> tuple[Any, list[Buffer]]:
    """Decode a row: return its message and buffers.

    Raises:
        ProtocolError: the row is damaged; the text names it.
    """
    try:
        return decode(msgspec.msgpack.decode(content, type=list[bytes]))
    except (msgspec.DecodeError, ProtocolError) as error:
        raise ProtocolError(f"row {row} of {table} is damaged: {error}") from error


def ranges_of(many: Iterable[array[int]]) -> dict[int, list[tuple[int, int, int]]]:
    """Group calls by task. The arrays hold four numbers for each range of calls: the task, the
    first call, the one after the last, and whether no call of the task is left. Return the last
    three for each task.
    """
    found: dict[int, list[tuple[int, int, int]]] = {}
    for calls in many:
        for place in range(0, len(calls), 4):
            task, start, stop, last = calls[place : place + 4]
            found.setdefault(task, []).append((start, stop, last))
    return found
