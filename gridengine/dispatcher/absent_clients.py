"""Clients that are gone and whose calls go on: what they have left waits for the next client of
their name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from gridengine.dispatcher.client_record import ClientRecord

DAY_SECONDS = 86_400.0


class Kept(Protocol):
    """A client whose greeting has a name, and which has a record."""

    hello: Any
    record: ClientRecord | None
    connected: bool


C = TypeVar("C", bound=Kept)


class AbsentClients(Generic[C]):
    """Such clients, by their names, the earliest first.

    Args:
        retention: for how many days they are kept when nobody has taken their place.
        clock: tells the time, in seconds since 1970: it goes on while no dispatcher runs.
    """

    def __init__(self, retention: float, clock: Callable[[], float] = time.time) -> None:
        self._most = retention * DAY_SECONDS
        self._clock = clock
        self._clients: dict[str, list[tuple[C, float]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def __iter__(self) -> Iterator[C]:
        for those in list(self._clients.values()):
            yield from [client for client, _ in those]

    def add(self, client: C, since: float | None = None) -> None:
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

    def of(self, name: str) -> list[C]:
        """Return those of a name."""
        return [client for client, _ in self._clients.get(name, ())]

    def take(self, name: str) -> list[C]:
        """Remove those of a name, and return them."""
        return [client for client, _ in self._clients.pop(name, ())]

    def take_over(self, name: str) -> list[C]:
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

    def take_old(self, present: Callable[[str], bool]) -> list[C]:
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


def record_of(client: Kept) -> ClientRecord:
    """Return what the journal has of such a client."""
    assert client.record is not None  # or nothing of it could be kept
    return client.record
