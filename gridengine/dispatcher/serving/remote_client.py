"""Users' programs as clients: each one that the dispatcher serves, and the absent ones, whose calls
go on without them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from gridengine._version import __version__
from gridengine.dispatcher.serving.client_process import ServedClient
from gridengine.dispatcher.serving.journaled_client import ClientRecord
from gridengine.requests import CallsFinished
from gridengine.serialize.byte_code import PYTHON
from gridengine.serialize.payload import Buffer, Payload
from gridengine.wire.messages import OLDEST, VERSION, ClientHello, Finished, FinishedItem, Message
from gridengine.wire.processes import has_ended

DAY_SECONDS = 86_400.0


class RemoteClient(ServedClient):
    """A user's program in another process.

    With a journal it has a record there: its calls survive the dispatcher's process, and their
    outcomes wait until the client acknowledges them.
    """

    record: ClientRecord | None = None

    @property
    def taken(self) -> int:  # type: ignore[override]
        """How many of its requests are in the journal; -1 without a journal."""
        return -1 if self.record is None else self.record.seen

    def send(self, message: Message, buffers: Payload = ()) -> bool:  # type: ignore[override]
        """Send the client a message if it is connected; return whether it is. A successor that has
        inherited this client's calls gets their outcomes only: other messages answer questions that
        it has not asked.
        """
        if self.connected and (self.peer == self.key[0] or type(message) is Finished):
            super().send(message, buffers)
        return self.connected

    def answer(self, message: Message, buffers: Payload) -> None:
        """Send the client an answer, after the outcomes that its record has."""
        if self.record is None:
            super().answer(message, buffers)
        else:
            self.record.answer(message, buffers)

    def finish(self, items: list[FinishedItem], buffers: list[Buffer]) -> None:
        """Send the client outcomes; with a journal, by way of its record, which keeps them until
        they are acknowledged.
        """
        if self.record is None:
            super().finish(items, buffers)
        else:
            self.record.finish(items, buffers)

    hello: ClientHello
    heard_at = 0.0
    fault = "", ""
    """A file of the client's own to which it cannot write results, and the reason; empty if there
    is none.
    """
    gone_at: float | None = None
    """When its process ended or its lease ran out, as awake seconds of the listener; None while it
    is there.
    """

    def settled(self, event: CallsFinished) -> None:
        """Pass on the outcome of calls, except while the dispatcher ends: then the listener says
        goodbye, and the clients settle their calls themselves.
        """
        if not self._clients.closing:
            super().settled(event)

    @property
    def leaves_calls(self) -> bool:
        """Whether its calls go on when the client is gone: it belongs to a named run, and has a
        record.
        """
        return bool(self.hello.keep) and self.record is not None

    def is_dead(self) -> bool:
        """Return whether its process is visible from this machine, and has ended."""
        hello = self.hello
        return has_ended(hello.machine, hello.pid, hello.started)

    def __str__(self) -> str:
        return f"client {self.number} (process {self.hello.pid} on {self.hello.host})"


def why_refused(hello: ClientHello) -> str:
    """Return why a client cannot be served; empty if it can."""
    if hello.protocol < OLDEST or hello.oldest > VERSION:
        return (
            f"the client is gridengine {hello.version} (protocols {hello.oldest} to "
            f"{hello.protocol}), its dispatcher {__version__} ({OLDEST} to {VERSION})"
        )
    if hello.python and hello.python != PYTHON:
        return (
            f"the client runs Python {hello.python}, and its dispatcher and workers "
            f"{PYTHON}: its functions could not be loaded"
        )
    return ""


class AbsentClients:
    """Clients that are gone and whose calls go on, by name of the named run, the earliest first.
    Their calls wait for the next client of the name.

    Args:
        retention: for how many days they stay when no successor comes.
        clock: returns seconds since 1970, because the time also counts while no dispatcher runs.
    """

    def __init__(self, retention: float, clock: Callable[[], float] = time.time) -> None:
        self._most = retention * DAY_SECONDS
        self._clock = clock
        self._clients: dict[str, list[tuple[RemoteClient, float]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def __iter__(self) -> Iterator[RemoteClient]:
        for those in list(self._clients.values()):
            yield from [client for client, _ in those]

    def add(self, client: RemoteClient, since: float | None = None) -> None:
        """Add a client that is gone, since now by default."""
        since = self._clock() if since is None else since
        self._clients.setdefault(client.hello.keep, []).append((client, since))
        record_of(client).leave(since)

    def seen(self) -> list[dict[str, Any]]:
        """Return a description of each name that has no client now, for people: the named run,
        since when (seconds since 1970), and how many of its calls have not ended or have
        unacknowledged outcomes.
        """
        return [
            {
                "run": name.rpartition("/")[0],
                "since": those[-1][1],
                "calls": sum(record_of(client).owed_calls for client, _ in those),
            }
            for name, those in list(self._clients.items())
            if not all(client.connected for client, _ in those)
        ]

    def of(self, name: str) -> list[RemoteClient]:
        """Return the absent clients of a name."""
        return [client for client, _ in self._clients.get(name, ())]

    def take(self, name: str) -> list[RemoteClient]:
        """Remove the absent clients of a name, and return them."""
        return [client for client, _ in self._clients.pop(name, ())]

    def take_over(self, name: str) -> list[RemoteClient]:
        """Remove the absent clients of a name that have no tasks left, and return them."""
        if name not in self._clients:
            return []
        left, over = [], []
        for client, since in self._clients[name]:
            if record_of(client).owed:
                left.append((client, since))
            else:
                over.append(client)
        if left:
            self._clients[name] = left
        else:
            del self._clients[name]
        return over

    def take_old(self, present: Callable[[str], bool]) -> list[RemoteClient]:
        """Remove the clients whose retention is over and that have no successor; return them.

        Args:
            present: returns whether a client of a name is connected.
        """
        last = self._clock() - self._most
        old = [
            name
            for name, those in self._clients.items()
            if those[-1][1] < last and not present(name)
        ]
        return [client for name in old for client in self.take(name)]


def record_of(client: RemoteClient) -> ClientRecord:
    """Return the client's part of the journal."""
    assert client.record is not None  # only clients with a record become absent
    return client.record
