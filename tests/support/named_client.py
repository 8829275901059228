"""A client that is not of this package: it knows the protocol, and functions by their names."""

from __future__ import annotations

import itertools
import select
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gridengine.serialize.codecs import CODECS
from gridengine.wire.connection_file import ClientConnection, load_private
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.messages import (
    NUMBER_BITS,
    VERSION,
    ClientCancel,
    ClientHello,
    ClientWelcome,
    Finished,
    FinishedItem,
    FunctionItem,
    Goodbye,
    Message,
    Submit,
    TaskItem,
)

SECONDS = 120.0


class _End:
    """A connection to a dispatcher, and what has come by it."""

    def __init__(self, connection: Any, hello: Message, welcome: type[Message]) -> None:
        self.client = DispatcherConnection(connection)
        self.come: deque[tuple[Any, list[Any]]] = deque()
        self.client.send(hello)
        self.welcome = self.wait_for(lambda message: isinstance(message, welcome))[0]

    def wait_for(self, wanted: Callable[[Message], bool]) -> tuple[Any, list[Any]]:
        """Return the first message that is wanted, and its buffers; others before it are
        dropped.
        """
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            self.come += self.client.receive()
            while self.come:
                message, buffers = self.come.popleft()
                if wanted(message):
                    return message, buffers
            self.client.tick(time.monotonic())
            select.select([self.client.fd], [], [], 0.0 if self.client.pending else 0.1)
        raise AssertionError("nothing came")

    def close(self) -> None:
        self.client.send(Goodbye("closed"))
        self.client.close()


class NamedClient(_End):
    """A client of the dispatcher with this connection file, whose calls are in this codec."""

    def __init__(self, path: Path, codec: str = "json") -> None:
        hello = ClientHello(VERSION, "other 1.0", VERSION, "", "here", 1, "a script", codec=codec)
        super().__init__(load_private(path, ClientConnection), hello, ClientWelcome)
        self.codec = CODECS[codec]
        self.outcomes: deque[tuple[FinishedItem, list[Any]]] = deque()
        self.numbers = itertools.count((self.welcome.client << NUMBER_BITS) + 1)

    def submit(
        self,
        name: str,
        calls: list[Any],
        *,
        form: int = 0,
        path: tuple[bytes, ...] = (),
        **more: Any,
    ) -> int:
        """Have these calls made of a function; return the number of their task."""
        number = next(self.numbers)
        item = TaskItem(number, len(calls), form, submitter=number)
        function = FunctionItem(name, list(path), b"", buffers=0, codec=self.codec.name)
        tasks = Submit(0, 0, name.encode(), [replace(item, **more)], function)
        self.client.send(tasks, [self.codec.encode(calls)])
        return number

    def cancel(self, task: int) -> None:
        """End a task."""
        self.client.send(ClientCancel(0, [task], signal.SIGTERM))

    def outcome(self, task: int) -> tuple[FinishedItem, Any]:
        """Return the next outcome of a task, and what came with it."""
        while True:
            for one in self.outcomes:
                item, payload = one
                if item.task == task:
                    self.outcomes.remove(one)
                    return item, self.codec.decode(payload[0]) if payload else None
            message, buffers = self.wait_for(lambda one: isinstance(one, Finished))
            for item in message.outcomes:
                count = item.count_buffers()
                self.outcomes.append((item, buffers[:count]))
                del buffers[:count]

    def results(self, name: str, calls: list[Any], **options: Any) -> list[Any]:
        """Return what these calls return."""
        task = self.submit(name, calls, **options)
        found: list[Any] = [None] * len(calls)
        last = False
        while not last:
            item, values = self.outcome(task)
            assert not item.raised, values
            assert not item.failed, values
            found[item.start : item.stop] = values
            last = item.last
        return found
