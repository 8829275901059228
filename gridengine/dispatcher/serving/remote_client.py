"""Users' programs that are clients, as the dispatcher has them: whom it serves, and who is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from gridengine._version import __version__
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.dispatcher.run_directory import python_version
from gridengine.dispatcher.serving.client_process import Client
from gridengine.dispatcher.serving.client_record import ClientRecord
from gridengine.serialize.payload import Buffer, Payload
from gridengine.wire.messages import (
    OLDEST,
    VERSION,
    ClientHello,
    Finished,
    FinishedItem,
    Message,
)
from gridengine.wire.processes import has_ended

DAY_SECONDS = 86_400.0


class RemoteClient(Client):
    """A user's program in another process.

    With a journal it has a record there: its calls outlive this process, and what has come of them
    waits for it.
    """

    connected = True
    record: ClientRecord | None = None

    @property
    def taken(self) -> int:  # type: ignore[override]
        """How many of its requests the journal has, if there is one."""
        return -1 if self.record is None else self.record.seen

    def send(self, message: Message, buffers: Payload = ()) -> bool:  # type: ignore[override]
        """Send the client a message, if it is connected; return whether it is. Who has taken its
        place is told of outcomes alone.
        """
        if self.connected and (self.peer == self.key[0] or type(message) is Finished):
            super().send(message, buffers)
        return self.connected

    def answer(self, message: Message, buffers: Payload) -> None:
        """Send the client an answer, behind the outcomes that its record has."""
        if self.record is None:
            super().answer(message, buffers)
        else:
            self.record.answer(message, buffers)

    def finish(self, items: list[FinishedItem], buffers: list[Buffer]) -> None:
        """Send the outcomes of calls; with a journal, or keep them until they can be sent."""
        if self.record is None:
            super().finish(items, buffers)
        else:
            self.record.finish(items, buffers)

    hello: ClientHello
    heard_at = 0.0
    fault = "", ""
    """A file of its own that it cannot write what comes of its calls to, and why."""
    gone_at: float | None = None
    """Since when it is known, or taken, to be gone."""

    def settled(self, event: CallsFinished) -> None:
        """Pass on the outcome of calls, unless the dispatcher ends: it tells its clients itself."""
        if not self._clients.closing:
            super().settled(event)

    @property
    def is_kept(self) -> bool:
        """Whether its calls go on without it."""
        return bool(self.hello.keep) and self.record is not None

    def is_dead(self) -> bool:
        """Return whether its process can be seen from here, and has ended."""
        hello = self.hello
        return has_ended(hello.machine, hello.pid, hello.started)

    def __str__(self) -> str:
        return f"client {self.number} (process {self.hello.pid} on {self.hello.host})"


def why_refused(hello: ClientHello) -> str:
    """Return why a client cannot be served, empty if it can."""
    if hello.protocol < OLDEST or hello.oldest > VERSION:
        return (
            f"the client is gridengine {hello.version} (protocols {hello.oldest} to "
            f"{hello.protocol}), its dispatcher {__version__} ({OLDEST} to {VERSION})"
        )
    if hello.python and hello.python != python_version():
        return (
            f"the client runs Python {hello.python}, and its dispatcher and workers "
            f"{python_version()}: its functions could not be loaded"
        )
    return ""


class AbsentClients:
    """Clients that are gone and whose calls go on, by their names, the earliest first. What they
    have left waits for the next client of their name.

    Args:
        retention: for how many days they are kept when nobody has taken their place.
        clock: tells the time, in seconds since 1970: it goes on while no dispatcher runs.
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
        """Add a client that is gone, since now if nothing else is said."""
        since = self._clock() if since is None else since
        self._clients.setdefault(client.hello.keep, []).append((client, since))
        record_of(client).leave(since)

    def seen(self) -> list[dict[str, Any]]:
        """Return, for people, what there is of each name: the run that it is of, since when nobody
        has it (seconds since 1970), and how many calls have not ended, or have and were not taken.
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
        """Return those of a name."""
        return [client for client, _ in self._clients.get(name, ())]

    def take(self, name: str) -> list[RemoteClient]:
        """Remove those of a name, and return them."""
        return [client for client, _ in self._clients.pop(name, ())]

    def take_over(self, name: str) -> list[RemoteClient]:
        """Remove those of a name of which nothing is left, and return them."""
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
        """Remove those that were kept for long enough, and whose place nobody has, and return
        them.
        """
        last = self._clock() - self._most
        old = [
            name
            for name, those in self._clients.items()
            if those[-1][1] < last and not present(name)
        ]
        return [client for name in old for client in self.take(name)]


def record_of(client: RemoteClient) -> ClientRecord:
    """Return what the journal has of such a client."""
    assert client.record is not None  # or nothing of it could be kept
    return client.record
