"""A server that is gone, and one that is started again at the same address with the same keys."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import zmq
from msgspec.structs import replace

from gridengine.errors import ConfigurationError
from gridengine.wire.connection_file import Connection
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.framing import encode
from gridengine.wire.messages import Beat, Goodbye, Hello, Message, Pushed, Refuse, Rejoin, Welcome
from gridengine.wire.server import Server
from gridengine.wire.session import Session
from gridengine.wire.session_server import _GREETING_SECONDS
from gridengine.wire.sockets import new_keys
from tests.support.manual_clock import ManualClock
from tests.support.pollers import poller_of

PATIENCE = 120
BEAT_SECONDS = 2.0

HELLO = Hello(1, "1", "3.11", "run", "here", 1, 1, "", functions=[])


class Restarts:
    """Servers one after another, and one client of theirs; moves what can be moved until something
    holds.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = Server(host="127.0.0.1", epoch=1, clock=self.clock)
        self.epoch = 1
        self.client = DispatcherConnection(_connection_to(self.server), clock=self.clock)
        self.client.introduce = self.introduce
        self.introduced = 0
        self.hello = HELLO
        self.kept: list[Message] = []
        self.come: list[Message] = []
        self.answers: list[Message] = []

    def introduce(self) -> None:
        self.introduced += 1
        self.client.begin_again()
        self.client.send(self.hello)
        for message in self.kept:
            self.client.send(message)

    def restart(self, *, epochs: int = 1) -> None:
        """Have the server be gone as with its process, and another in its place."""
        self.server.close(linger_seconds=0)
        self.epoch += epochs
        self.server = Server(
            host="127.0.0.1", keys=self.server.keys, epoch=self.epoch, clock=self.clock
        )

    def until(self, done: Any) -> None:
        """Move what there is, until something holds; while there is nothing, let time pass."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, f"it never came; {self.come}; {self.answers}"
            poller = poller_of(self.server)
            poller.register(self.client.socket, zmq.POLLIN)
            self.client.tick(self.clock.monotonic())
            if not poller.poll(20):
                self.clock.advance(BEAT_SECONDS / 10)
            for peer, message, _ in self.server.receive():
                if isinstance(message, Beat):
                    self.server.beat(peer)
                    continue
                self.come.append(message)
                if isinstance(message, Hello):
                    self.server.send(peer, Welcome(self.epoch))
            for message, _ in self.client.receive():
                if isinstance(message, Rejoin):
                    if self.client.rejoin(message):
                        continue
                    message = Refuse("")
                self.answers.append(message)
                if isinstance(message, Welcome):
                    self.client.epoch = message.epoch

    def greet(self) -> None:
        self.client.send(self.hello)
        self.until(lambda: self.answers)
        self.answers.clear()

    def heard_while_it_closes(self) -> list[Message]:
        """Close the client; return what comes until it has done so. The server forgets who says
        goodbye, if it has to acknowledge that by itself.
        """
        server, come = self.server, list[Message]()
        closing = threading.Thread(target=self.client.close, args=(PATIENCE,), daemon=True)
        closing.start()
        deadline = time.monotonic() + PATIENCE / 2
        while closing.is_alive():
            assert time.monotonic() < deadline, "it waits for somebody who knows it no more"
            if not poller_of(server).poll(20):
                self.clock.advance(BEAT_SECONDS / 10)
            for peer, message, _ in server.receive():
                if isinstance(message, Beat):
                    server.beat(peer)
                    continue
                come.append(message)
                if isinstance(message, Hello):
                    server.send(peer, Welcome(self.epoch))
                elif isinstance(message, Goodbye) and server._holds:
                    server.forget(peer)
        return come

    def close(self) -> None:
        self.client.close(0)
        self.server.close()


def _connection_to(server: Server) -> Connection:
    keys = server.keys.public, server.keys.peer_public, server.keys.peer_secret
    return Connection("run", server.addresses, 1, "1", "3.11", BEAT_SECONDS, 60, 30, 5, 1000, *keys)


@pytest.fixture
def restarts() -> Iterator[Restarts]:
    found = Restarts()
    yield found
    found.close()


def test_a_worker_introduces_itself_to_a_server_that_was_started_again(restarts: Restarts) -> None:
    restarts.greet()
    restarts.restart()
    restarts.until(lambda: restarts.answers)
    assert restarts.come == [HELLO, HELLO]
    assert restarts.answers == [Welcome(2)]
    assert restarts.introduced == 1


def test_messages_sent_meanwhile_come_once_behind_the_greeting(restarts: Restarts) -> None:
    restarts.greet()
    restarts.come.clear()
    restarts.kept = [Pushed(number, 0) for number in range(50)]
    restarts.server.close(linger_seconds=0)
    for message in restarts.kept:
        restarts.client.send(message)
    restarts.restart()
    restarts.until(lambda: len(restarts.come) == 51)
    assert restarts.come == [HELLO, *restarts.kept]
    assert restarts.introduced == 1
    restarts.until(lambda: not restarts.client._session.unacknowledged)


def test_a_server_may_be_gone_before_it_has_answered_at_all(restarts: Restarts) -> None:
    restarts.client.send(HELLO)
    restarts.until(lambda: restarts.come)
    restarts.restart(epochs=3)
    restarts.until(lambda: Welcome(4) in restarts.answers)


def test_a_worker_that_the_server_has_forgotten_is_refused(restarts: Restarts) -> None:
    restarts.greet()
    [peer] = restarts.server._sessions
    restarts.server.forget(peer)
    restarts.client.send(Goodbye("again"))
    restarts.until(lambda: restarts.answers)
    assert isinstance(restarts.answers[0], Refuse)
    assert not restarts.introduced


def test_a_first_message_that_got_lost_is_sent_again(restarts: Restarts) -> None:
    def lose_it() -> None:
        restarts.introduced += 1
        restarts.client.begin_again()
        restarts.client._session.number(encode(HELLO, ()))  # and is not sent

    restarts.client.introduce = lose_it
    restarts.greet()
    restarts.restart()
    restarts.until(lambda: restarts.answers)
    assert restarts.answers == [Welcome(2)]
    assert restarts.introduced == 1


def test_a_closing_client_waits_for_a_restarted_server(restarts: Restarts) -> None:
    restarts.greet()
    restarts.come.clear()
    last = Goodbye("the end")
    restarts.kept = [last]
    restarts.server.close(linger_seconds=0)
    restarts.client.send(last)
    restarts.restart()
    assert restarts.heard_while_it_closes() == [HELLO, last]


def test_a_closing_client_does_not_greet_a_server_that_has_forgotten_it(restarts: Restarts) -> None:
    restarts.greet()
    restarts.kept = [Goodbye("the end")]
    restarts.restart()
    restarts.server.hold_acknowledgements()
    restarts.client.send(restarts.kept[0])
    assert restarts.heard_while_it_closes() == [HELLO, *restarts.kept]


def test_a_question_from_before_the_welcome_is_no_refusal(restarts: Restarts) -> None:
    restarts.greet()
    restarts.restart()
    server, client = restarts.server, restarts.client
    deadline = time.monotonic() + PATIENCE
    while not poller_of(server).poll(100):  # what is sent on the old connection is lost
        assert time.monotonic() < deadline
        client.send(Pushed(1, 0))
    client.send(Pushed(2, 0))

    def wait() -> None:
        poller = poller_of(server)
        poller.register(client.socket, zmq.POLLIN)
        assert poller.poll(1000 * PATIENCE)

    def take_in(most: int) -> None:
        for peer, message, _ in server.receive(most):
            if isinstance(message, Hello):
                server.send(peer, Welcome(restarts.epoch))

    def asked() -> list[Message]:
        return [message for message, _ in client.receive()]

    take_in(1)
    come: list[Message] = []
    while not come:  # a sign of life may come first
        assert client.socket.poll(1000 * PATIENCE)
        come = asked()
    [first] = come
    assert isinstance(first, Rejoin)
    assert client.rejoin(first)
    come = []
    while Welcome(2) not in come:
        wait()
        take_in(10)
        come += asked()
    assert Rejoin(2) in come
    for message in come:
        if isinstance(message, Rejoin):
            assert client.rejoin(message)
        else:
            client.epoch = 2
    assert not client.rejoin(Rejoin(2))


def test_messages_not_acknowledged_by_hand_are_kept(restarts: Restarts) -> None:
    restarts.server.hold_acknowledgements()
    restarts.client.send(HELLO)
    restarts.client.send(Pushed(1, 0))
    restarts.until(lambda: len(restarts.come) == 2 and restarts.answers)
    receipts = restarts.server.take_receipts()
    restarts.answers.clear()
    restarts.client.send(Pushed(2, 0))
    restarts.until(lambda: len(restarts.come) == 3)
    assert restarts.client.acknowledged == 0
    restarts.server.acknowledge(receipts)
    restarts.until(lambda: restarts.client.acknowledged)
    assert restarts.client.acknowledged == 2
    restarts.server.acknowledge(restarts.server.take_receipts())
    restarts.until(lambda: restarts.client.acknowledged == 3)


def test_a_port_that_another_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridengine.wire.server._BIND_SECONDS", 0.0)
    server = Server(host="127.0.0.1")
    try:
        with pytest.raises(ConfigurationError, match=f"port {server.keys.port} "):
            Server(host="127.0.0.1", keys=server.keys)
    finally:
        server.close()


def test_a_port_that_is_about_to_be_free_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridengine.wire.server._BIND_SECONDS", float(PATIENCE))
    server = Server(host="127.0.0.1")
    taken = threading.Timer(0.3, server.close)
    taken.start()
    again = Server(host="127.0.0.1", keys=server.keys)
    assert again.addresses == server.addresses
    taken.join()
    again.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.keys.port))


def test_a_worker_that_does_not_return_takes_it_for_a_refusal(restarts: Restarts) -> None:
    restarts.greet()
    restarts.client.introduce = None
    restarts.restart()
    restarts.until(lambda: restarts.answers)
    assert isinstance(restarts.answers[0], Refuse)


def test_a_first_message_that_is_not_gone_on_with_is_dropped_and_may_come_again(
    restarts: Restarts,
) -> None:
    restarts.client._session = Session(8)
    restarts.client.introduced_to = 1
    first, *rest = restarts.client._session.number(encode(HELLO))
    restarts.client._send_frames(first)
    restarts.until(lambda: restarts.server._greetings)
    restarts.clock.advance(_GREETING_SECONDS + 1)
    restarts.until(lambda: not restarts.server._greetings)
    restarts.client._send_frames(rest[0])
    restarts.client._send_frames(rest[1])
    restarts.until(lambda: restarts.answers)
    assert not restarts.introduced  # it has but sent all of it again
    assert (restarts.come, restarts.answers) == ([HELLO], [Welcome(1)])
    assert not restarts.server._greetings


def test_only_a_greeting_is_taken_though_it_comes_in_pieces(restarts: Restarts) -> None:
    restarts.client._session = Session(8)
    restarts.client.send(Goodbye("what is no greeting at all"))
    restarts.client.introduce = None
    restarts.until(lambda: restarts.answers)
    assert restarts.come == []
    assert set(map(type, restarts.answers)) == {Refuse}
    assert not restarts.server._sessions


def test_a_watcher_whose_greeting_comes_in_pieces_is_known_as_one() -> None:
    keys = new_keys(watchers=True)
    server = Server(host="127.0.0.1", keys=keys, epoch=1)
    its = {"worker_public": keys.watcher_public, "worker_secret": keys.watcher_secret}
    client = DispatcherConnection(replace(_connection_to(server), **its), b"w" * 16)
    client._session = Session(8)
    client.send(HELLO)
    come: list[Message] = []
    deadline = time.monotonic() + PATIENCE
    while not any(isinstance(one, Hello) for one in come):
        assert time.monotonic() < deadline
        poller_of(server).poll(100)
        come += [message for _, message, _ in server.receive()]
    assert server.watchers == {b"w" * 16}
    client.close(0)
    server.close()
