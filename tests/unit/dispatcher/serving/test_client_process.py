"""What jobs write is on its way to the clients whose they are."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.dispatcher.core.events import ClientJoined
from gridengine.dispatcher.serving.client_process import ClientsOutput
from gridengine.requests import Submitted
from gridengine.wire.messages import NUMBER_BITS, Message, Output, OutputTaken
from tests.support.core_play import SQUARE, Play
from tests.support.tasks import make_task

CLIENT, WORKER = 500, b"w"


class Client:
    """A client that takes what it is sent when the test says so."""

    number = CLIENT

    def __init__(self) -> None:
        self.connected = True
        self.sent: list[tuple[Message, Any]] = []

    def send(self, message: Message, buffers: Any) -> None:
        self.sent.append((message, buffers))


class Played:
    """A client with a job that a worker runs."""

    def __init__(self) -> None:
        self.play = Play()
        self.play.hello(WORKER, slots=2)
        self.play.play(ClientJoined(CLIENT, 1.0))
        self.run = self.begin_job(1)
        self.told: list[tuple[bytes, Message]] = []
        self.output = ClientsOutput(
            self.play.core.state, lambda peer, message, _: self.told.append((peer, message))
        )
        self.client: Any = Client()
        self.output.add(self.client)

    def begin_job(self, number: int) -> int:
        number |= CLIENT << NUMBER_BITS
        task = make_task(number, (b"calls",), watched=True, submitter=number)
        self.play.play(Submitted(SQUARE, [task]))
        return self.play.assigned()[0].run

    def write(self, run: int, words: bytes) -> None:
        self.output.pass_on(WORKER, Output(run, 1), [words])

    def take(self, run: int, size: int) -> None:
        self.output.taken(self.client, OutputTaken(size, run))


@pytest.fixture
def played() -> Played:
    return Played()


def test_a_worker_is_told_how_much_output_the_client_has_taken(played: Played) -> None:
    run, other = played.run, played.begin_job(2)
    played.write(run, b"hello")
    played.write(other, b"you")
    played.write(run, b"world!")
    assert played.client.sent == [
        (Output(run, 1), [b"hello"]),
        (Output(other, 1), [b"you"]),
        (Output(run, 1), [b"world!"]),
    ]
    assert played.told == []
    played.take(run, 5)
    played.take(run, 6)
    played.take(other, 3)
    assert played.told == [
        (WORKER, OutputTaken(5, run)),
        (WORKER, OutputTaken(6, run)),
        (WORKER, OutputTaken(3, other)),
    ]


def test_no_more_is_taken_than_there_was(played: Played) -> None:
    played.write(played.run, b"hello")
    for _ in range(2):
        played.take(played.run, 7)
    played.take(played.run + 9, 7)
    assert played.told == [(WORKER, OutputTaken(5, played.run))]


def test_nobody_waits_for_a_client_that_is_gone(played: Played) -> None:
    played.write(played.run, b"hello")
    played.output.remove(played.client)
    played.write(played.run, b"you")
    played.write(played.run + 9, b"!")  # of a run that has ended
    assert played.told == [
        (WORKER, OutputTaken(5, played.run)),
        (WORKER, OutputTaken(3, played.run)),
        (WORKER, OutputTaken(1, played.run + 9)),
    ]
    assert len(played.client.sent) == 1


def test_a_client_that_may_come_back_has_it_then(played: Played) -> None:
    played.client.connected = False
    played.write(played.run, b"hello")
    assert (played.client.sent, played.told) == ([], [])
    played.client.connected = True
    for _ in range(2):
        played.output.resume(played.client)
    assert played.client.sent == [(Output(played.run, 1), [b"hello"])]
    played.take(played.run, 5)
    assert played.told == [(WORKER, OutputTaken(5, played.run))]


def test_a_reused_client_number_is_kept(played: Played) -> None:
    gone, played.client = played.client, Client()
    played.output.add(played.client)
    played.output.remove(gone)
    played.write(played.run, b"hello")
    assert played.client.sent
