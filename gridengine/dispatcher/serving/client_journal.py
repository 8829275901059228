"""What a dispatcher's journal holds for all clients together: who they are, numbers that no earlier
process has used, and the form of its rows.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gridengine.errors import VersionMismatch
from gridengine.journal.dispatcher_file import DispatcherFile
from gridengine.serialize.byte_code import PYTHON
from gridengine.serialize.payload import Buffer, size_of
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import ClientHello, FinishedItem, Message, TaskItem

_NUMBERS = 1000
"""How many numbers for clients are reserved at a time."""


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
        """The first number of a client that no process before has given one."""
        self.committed = 0
        """The number of the last outcomes that are on disk."""
        self._told: dict[Callable[[], object], None] = {}

    def new_client(self) -> int:
        """Return a number for a client that none has had, nor will have after a restart."""
        self._last_client += 1
        if self._reserved - self._last_client < _NUMBERS // 2:  # early: it is written later
            self._reserved += _NUMBERS
            self.file.write("REPLACE INTO counters VALUES ('client', ?)", [(self._reserved,)])
        return self._last_client

    def add(self, number: int, peer: bytes, hello: ClientHello) -> None:
        """Add a client."""
        row = number, peer, b"".join(map(bytes, encode(hello))), 0
        self.file.write("INSERT INTO clients VALUES (?, ?, ?, ?)", [row])

    def clients(self) -> Iterator[tuple[int, bytes, ClientHello, int]]:
        """Yield the clients that there were: their numbers, peers and greetings, and how many of
        their messages are here.
        """
        self.committed = _last(self.file, "outcomes", "number")
        for number, peer, hello, seen in self.file.read("SELECT * FROM clients"):
            message, _ = decode([hello])
            assert isinstance(message, ClientHello)
            yield number, peer, message, seen

    def absent(self) -> dict[int, float]:
        """Return the clients that are gone and whose calls go on: since when, in seconds since
        1970.
        """
        return dict(self.file.read("SELECT * FROM absent"))

    def settle(self) -> None:
        """Tell clients what is on disk by now."""
        self.file.settle()
        told, self._told = self._told, {}
        for tell in told:
            tell()

    def note_durable(self, tell: Callable[[], object]) -> None:
        """Have this tell a client, when all is settled that is."""
        self._told[tell] = None


def _last(file: DispatcherFile, table: str, column: str) -> int:
    """Return the highest number that a table has, at least 0."""
    found: int = file.read(f"SELECT ifnull(max({column}), 0) FROM {table}").fetchone()[0]
    return found


def open_file(path: Path) -> DispatcherFile:
    """Return the file of a dispatcher, whose clients' calls this Python can run.

    Raises:
        ConfigurationError: see `DispatcherFile`.
        VersionMismatch: clients have handed in functions of another Python.
    """
    file = DispatcherFile(path)
    try:
        for (hello,) in file.read("SELECT hello FROM clients"):
            message, _ = decode([hello])
            assert isinstance(message, ClientHello)
            _check_python(message.python, path)
    except BaseException:
        file.close()
        raise
    return file


def _check_python(python: str, path: Path) -> None:
    if python not in ("", PYTHON):  # those of other languages have no functions of their own
        raise VersionMismatch(
            f"the dispatcher's journal {path} has calls of Python {python}, and this is Python "
            f"{PYTHON}, which cannot run them",
            hint=f"start the dispatcher with Python {python} until its clients have their "
            "results; or move the file away to begin without its calls",
        )


ROW_BYTES = 64 * 1024 * 1024
"""In one row of the journal come as many calls as have so many bytes together, or one."""
LARGE = 256 * 1024
"""From so many bytes on what is written to a row is put together without msgpack's encoder, which
copies all again and again while its own buffer grows.
"""
_HEAD = struct.Struct(">BI")
_ARRAY, _BINARY = 0xDD, 0xC6
"""What msgpack's arrays and binary data of any length begin with, then comes their length
(https://github.com/msgpack/msgpack/blob/master/spec.md).
"""
Part = TypeVar("Part", TaskItem, FinishedItem)


class RowContent(Struct):
    """A message as a row has it: its frames as a msgpack array. It is made in the thread that
    writes, of large buffers by one copy, for which other threads need not wait.
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
    """Yield what a message lists in parts that a row can hold, each with its buffers."""
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


def task_ids(tasks: Iterable[TaskItem]) -> array[int]:
    """Return the ids of tasks, sorted."""
    return array("q", sorted(task.id for task in tasks))


def read_content(content: bytes) -> tuple[Any, list[Buffer]]:
    """Return the message of a row, and its buffers."""
    return decode(msgspec.msgpack.decode(content))


def ranges_of(many: Iterable[array[int]]) -> dict[int, list[tuple[int, int, int]]]:
    """Return the calls of each task: the first, the one after the last, whether none is left."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for calls in many:
        for place in range(0, len(calls), 4):
            task, start, stop, last = calls[place : place + 4]
            found.setdefault(task, []).append((start, stop, last))
    return found
