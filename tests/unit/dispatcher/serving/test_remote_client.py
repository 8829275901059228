"""Which clients in other processes are served."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gridengine._version import __version__
from gridengine.dispatcher.serving.remote_client import DAY_SECONDS, AbsentClients
from gridengine.serialize.byte_code import PYTHON
from gridengine.wire.messages import OLDEST, VERSION, Refuse
from tests.support.played_listener import A, Played, hello


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"protocol": VERSION + 2, "oldest": VERSION + 1, "version": "9.9"}, "9.9"),
        ({"protocol": OLDEST - 1, "oldest": 1, "version": "0.0.1"}, "0.0.1"),
        ({"python": "3.99"}, "3.99"),
    ],
)
def test_another_version_is_refused_with_both_in_the_text(
    played: Played, told: dict[str, Any], words: str
) -> None:
    assert played.say(A, hello(**told)) == []
    [refusal] = played.told(A)
    assert isinstance(refusal, Refuse)
    assert refusal.mismatch
    assert words in refusal.reason
    assert (__version__ if "version" in told else PYTHON) in refusal.reason
    assert played.server.forgotten == [A]


@pytest.mark.parametrize("told", [{"protocol": VERSION + 3, "oldest": VERSION}, {"python": ""}])
def test_a_newer_client_that_speaks_our_protocol_or_one_of_another_language_is_taken(
    played: Played, told: dict[str, Any]
) -> None:
    played.join(A, **told)


def client(name: str = "sweep", owed: int = 1) -> Any:
    left: list[float] = []
    record = SimpleNamespace(owed=owed, leave=left.append, left=left)
    return SimpleNamespace(hello=SimpleNamespace(keep=name), record=record)


class PlayedAbsence:
    """A time that the test says."""

    def __init__(self) -> None:
        self.now = 1e9
        self.clients = AbsentClients(30.0, lambda: self.now)

    def old(self, *present: str) -> list[Any]:
        return self.clients.take_old(lambda name: name in present)


def test_absent_clients_are_kept_for_a_number_of_days() -> None:
    played = PlayedAbsence()
    one = client()
    played.clients.add(one)
    assert one.record.left == [1e9]
    played.now += 30 * DAY_SECONDS
    assert played.old() == []
    played.now += 1
    assert played.old() == [one]
    assert not played.clients


def test_the_days_of_an_earlier_process_count() -> None:
    played = PlayedAbsence()
    one = client()
    played.clients.add(one, played.now - 31 * DAY_SECONDS)
    assert played.old() == [one]


def test_absent_clients_stay_while_another_has_their_place() -> None:
    played = PlayedAbsence()
    played.clients.add(client(), 0.0)
    assert played.old("sweep") == []


def test_the_last_of_a_name_says_for_how_long_all_are_kept() -> None:
    played = PlayedAbsence()
    played.clients.add(client(), 0.0)
    played.clients.add(client())
    assert played.old() == []
    assert len(played.clients) == 2


def test_absent_clients_with_nothing_left_are_forgotten() -> None:
    played = PlayedAbsence()
    whole, over = client(), client(owed=0)
    played.clients.add(whole)
    played.clients.add(over)
    assert played.clients.take_over("sweep") == [over]
    assert played.clients.take_over("sweep") == []
    assert played.clients.take_over("another") == []
    assert played.clients.of("sweep") == [whole]
