"""What a dispatcher's journal has of all its clients together: who they are, and numbers that no
process before has given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from gridengine.errors import VersionMismatch
from gridengine.journal.dispatcher_file import DispatcherFile
from gridengine.serialize.byte_code import PYTHON
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import ClientHello

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
