"""A journal and a connection of a client, which move when the test has them move."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gridengine.journal.dispatcher_file import DispatcherFile
from gridengine.journal.writer import Act, Change, JournalWriter
from gridengine.serialize.payload import Payload
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import (
    Message,
    Rejoin,
)
from tests.support.manual_clock import ManualClock


class Writer(JournalWriter):
    """Writes when it is told to."""

    def __init__(self, tables: sqlite3.Connection) -> None:
        self.tables = tables
        self.asked: deque[Change] = deque()
        self.failure = None

    def do(self, act: Act, on_durable: Callable[[], object] | None = None) -> None:
        self.asked.append(Change(act, on_durable))

    def commit(self, most: int) -> None:
        for _ in range(0 if self.failure else min(most, len(self.asked))):
            change = self.asked.popleft()
            change.act(self.tables)
            if change.on_durable is not None:
                change.on_durable()


class File(DispatcherFile):
    """The journal of one process: what it has committed outlives it."""

    path = Path("journal")

    def __init__(self, tables: sqlite3.Connection) -> None:
        self._reader = tables
        self._clock = ManualClock()
        self.writer = Writer(tables)
        self._begin(self.writer)
        self.epoch = self.counted("epoch", 1) + 1

    def read(self, statement: str, *values: Any) -> Any:
        cursor = super().read(statement, *values)
        return cursor if "value" in statement or "ifnull" in statement else iter(cursor.fetchall())

    def have_later(self, most: int) -> None:
        """Have some of the deferred writes be due."""
        self.write_now(list(self._deferred)[:most])


class Connection:
    """The client's end of its connection."""

    fd = 0
    pending = True

    def __init__(self) -> None:
        self.epoch = self.introduced_to = self.session = 0
        self.introduce: Callable[[], object] | None = None
        self.received_at = 0.0
        self.most = 1
        self.up: deque[tuple[int, Message, Payload]] = deque()
        self.unacknowledged: list[tuple[int, Message, Payload]] = []
        self.down: deque[tuple[Message, Payload]] = deque()

    def send(self, message: Message, buffers: Payload = ()) -> None:
        self.up.append((self.session, *decode(encode(message, buffers))))
        self.unacknowledged.append(self.up[-1])

    def begin_again(self) -> None:
        self.up.clear()
        self.unacknowledged.clear()
        self.session += 1

    def send_again(self) -> None:
        self.up = deque(self.unacknowledged)

    def rejoin(self, message: Rejoin) -> bool:
        assert self.introduce is not None
        if message.epoch != self.introduced_to:
            self.introduced_to = message.epoch
            self.introduce()
        return message.epoch != self.epoch

    def receive(self) -> list[tuple[Message, Payload]]:
        return [self.down.popleft() for _ in range(min(self.most, len(self.down)))]

    def tick(self, now: float) -> float:
        return 3600.0
