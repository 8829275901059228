"""Clients that are gone and whose calls go on: how long, and who has them next."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gridengine.dispatcher.serving.remote_client import DAY_SECONDS, AbsentClients


def client(name: str = "sweep", owed: int = 1) -> Any:
    left: list[float] = []
    record = SimpleNamespace(owed=owed, leave=left.append, left=left)
    return SimpleNamespace(hello=SimpleNamespace(keep=name), record=record)


class Played:
    """A time that the test says."""

    def __init__(self) -> None:
        self.now = 1e9
        self.clients = AbsentClients(30.0, lambda: self.now)

    def old(self, *present: str) -> list[Any]:
        return self.clients.take_old(lambda name: name in present)


def test_they_are_kept_for_so_many_days() -> None:
    played = Played()
    one = client()
    played.clients.add(one)
    assert one.record.left == [1e9]
    played.now += 30 * DAY_SECONDS
    assert played.old() == []
    played.now += 1
    assert played.old() == [one]
    assert not played.clients


def test_the_days_of_an_earlier_process_count() -> None:
    played = Played()
    one = client()
    played.clients.add(one, played.now - 31 * DAY_SECONDS)
    assert played.old() == [one]


def test_they_stay_while_another_has_their_place() -> None:
    played = Played()
    played.clients.add(client(), 0.0)
    assert played.old("sweep") == []


def test_the_last_of_a_name_says_for_how_long_all_are_kept() -> None:
    played = Played()
    played.clients.add(client(), 0.0)
    played.clients.add(client())
    assert played.old() == []
    assert len(played.clients) == 2


def test_absent_clients_with_nothing_left_are_forgotten() -> None:
    played = Played()
    whole, over = client(), client(owed=0)
    played.clients.add(whole)
    played.clients.add(over)
    assert played.clients.take_over("sweep") == [over]
    assert played.clients.take_over("sweep") == []
    assert played.clients.take_over("another") == []
    assert played.clients.of("sweep") == [whole]
