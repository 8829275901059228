"""Local connections: who gets one, and what becomes of them."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.system.polling import Polling
from gridengine.wire import local_connection
from gridengine.wire.channel import socket_pair
from gridengine.wire.local_connection import (
    MOST_WAITING,
    LocalClients,
    LocalConnection,
    _address,
    _digest,
    _socket,
    connect,
)

pytestmark = pytest.mark.linux

WHO = b"w" * 16
SIZE = 1 << 20


def descriptors() -> set[str]:
    return {one.name for one in Path("/proc/self/fd").iterdir()}


@pytest.fixture(autouse=True)
def no_descriptor_stays() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() == before


class Machine:
    """A dispatcher and its clients, all in one thread."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.key = secrets.token_hex()
        self.beside, self.other = socket_pair()
        self.watched = stack.enter_context(Polling())
        for one in (self.beside, self.other):
            stack.enter_context(one)
        self.clients = stack.enter_context(
            contextlib.closing(LocalClients(self.key, self.beside.fileno()))
        )

    def connect(self, identity: bytes = WHO) -> LocalConnection | None:
        connection = connect(self.key, identity, self.watched)
        if connection is not None:
            self.stack.callback(connection.close)
        return connection

    def open(self, identity: bytes = WHO) -> tuple[LocalConnection, LocalConnection]:
        """Return both ends of a connection that is open."""
        ours = self.connect(identity)
        assert ours is not None
        self.clients.greeted(identity)
        assert ours.receive() == []
        assert self.read() == []
        theirs = self.clients.get(identity)
        assert theirs is not None
        assert ours.is_open
        assert theirs.is_open
        return ours, theirs

    def read(self) -> list[tuple[bytes, list[bytes]]]:
        """Return what the dispatcher receives now."""
        come = self.clients.receive(self.clients.poll(), 100)
        return [(peer, list(map(bytes, frames))) for peer, frames in come]

    def pose(self) -> socket.socket:
        """Return a socket that is connected to the dispatcher as no honest client's."""
        sock = self.stack.enter_context(_socket())
        sock.connect(_address(self.key))
        return sock


@pytest.fixture
def machine() -> Iterator[Machine]:
    with contextlib.ExitStack() as stack:
        yield Machine(stack)


def test_envelopes_and_blocks_go_both_ways(machine: Machine) -> None:
    ours, theirs = machine.open()
    ours.send([b"up", b"there"])
    theirs.send([b"down"])
    assert machine.read() == [(WHO, [b"up", b"there"])]
    assert [list(map(bytes, one)) for one in ours.receive()] == [[b"down"]]
    assert bytes(theirs.take(ours.put(bytes(SIZE)), SIZE)) == bytes(SIZE)
    assert bytes(ours.take(theirs.put(bytes(SIZE)), SIZE)) == bytes(SIZE)


def test_clients_have_connections_of_their_own(machine: Machine) -> None:
    one, _ = machine.open(b"1" * 16)
    other, _ = machine.open(b"2" * 16)
    other.send([b"two"])
    one.send([b"one"])
    assert sorted(machine.read()) == [(b"1" * 16, [b"one"]), (b"2" * 16, [b"two"])]


def test_nothing_is_open_before_the_client_has_greeted(machine: Machine) -> None:
    ours = machine.connect()
    assert ours is not None
    machine.clients.greeted(b"2" * 16)
    assert ours.receive() == machine.read() == []
    assert not ours.is_open
    assert ours.put(bytes(SIZE)) == b""
    machine.clients.greeted(WHO)
    ours.receive()
    assert ours.is_open


def test_an_identity_that_may_be_a_word_gets_no_connection(machine: Machine) -> None:
    assert machine.connect(b"me") is not None
    machine.clients.greeted(b"me")
    assert machine.clients.get(b"me") is None


def test_a_client_finds_no_dispatcher_of_another_key(machine: Machine) -> None:
    assert connect(secrets.token_hex(), WHO, machine.watched) is None


def test_neither_end_talks_to_another_users_process(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = machine.connect()
    assert ours is not None
    monkeypatch.setattr(local_connection.os, "geteuid", lambda: 4321)
    machine.clients.greeted(WHO)
    assert machine.clients.get(WHO) is None
    assert machine.connect() is None


def test_joining_a_session_needs_the_client_s_identity(machine: Machine) -> None:
    sock = machine.pose()
    sock.send(_digest(b"name", WHO) + bytes(16))  # repeats what a client once said
    machine.clients.greeted(WHO)
    nonce = sock.recv(100)[:16]
    guess = _digest(b"client", b"x" * 16, bytes(16), nonce)
    socket.send_fds(sock, [guess], [machine.other.fileno()])
    assert machine.read() == []
    theirs = machine.clients.get(WHO)
    assert theirs is not None
    assert theirs.has_ended()


def test_posing_as_the_dispatcher_needs_the_client_s_identity() -> None:
    key = secrets.token_hex()
    with (
        Polling() as watched,
        _socket() as listener,
    ):
        listener.bind(_address(key))
        listener.listen()
        ours = connect(key, WHO, watched)
        assert ours is not None
        theirs, _ = listener.accept()
        with theirs:
            said = theirs.recv(100)
            assert WHO not in said
            theirs.send(bytes(16) + _digest(b"dispatcher", said[:32], said[32:], bytes(16)))
            assert ours.receive() == []
            assert ours.has_ended()


@pytest.mark.parametrize("first", [b"", b"x", bytes(47), bytes(49)])
def test_a_process_that_says_something_else_first_is_dropped(
    machine: Machine, first: bytes
) -> None:
    sock = machine.pose()
    if first:
        sock.send(first)
    else:
        sock.shutdown(socket.SHUT_WR)
    machine.clients.greeted(WHO)
    assert not machine.clients._waiting


def test_the_oldest_of_many_silent_connections_are_dropped(
    machine: Machine,
) -> None:
    for number in range(MOST_WAITING + 2):
        machine.connect(number.to_bytes(16, "big"))
        machine.clients.greeted(WHO)
    machine.clients.greeted(bytes(16))
    assert len(machine.clients._waiting) == MOST_WAITING
    assert machine.open()


def test_a_proof_without_a_socket_or_with_something_else_is_refused(machine: Machine) -> None:
    for kind in ("none", "a pipe"):
        sock = machine.pose()
        sock.send(_digest(b"name", WHO) + bytes(16))
        machine.clients.greeted(WHO)
        nonce = sock.recv(100)[:16]
        proof = _digest(b"client", WHO, bytes(16), nonce)
        if kind == "none":
            sock.send(proof)
        else:
            with open("/dev/null", "rb") as file:
                socket.send_fds(sock, [proof], [file.fileno()])
        assert machine.read() == []
        theirs = machine.clients.get(WHO)
        assert theirs is not None
        assert theirs.has_ended()


def test_a_full_socket_keeps_nobody_waiting_and_goes_on_when_it_is_read(machine: Machine) -> None:
    ours, theirs = machine.open()
    for number in range(100):
        theirs.send([b"%d" % number, bytes(60_000)])
    come: list[bytes] = []
    while len(come) < 100:
        come += [bytes(one[0]) for one in ours.receive()]
        assert machine.read() == []
    assert come == [b"%d" % number for number in range(100)]
    assert machine.clients.poll() == {}  # nor is the dispatcher woken for nothing


def test_a_client_that_is_gone_ends_its_connection_after_its_last_words(machine: Machine) -> None:
    ours, theirs = machine.open()
    ours.send([b"goodbye"])
    ours.close()
    assert machine.read() == [(WHO, [b"goodbye"])]
    assert machine.read() == []
    assert theirs.has_ended()
    assert not theirs.is_open
    assert machine.clients.poll() == {}


def test_a_forgotten_client_s_envelopes_are_not_passed_on(machine: Machine) -> None:
    ours, _ = machine.open()
    for word in (b"one", b"two"):
        ours.send([word])
    come = []
    for peer, frames in machine.clients.receive(machine.clients.poll(), 100):
        come.append(bytes(frames[0]))
        machine.clients.forget(peer)
    assert come == [b"one"]
    ours.receive()
    assert ours.has_ended()


def test_a_client_that_breaks_the_protocol_loses_its_connection_alone(machine: Machine) -> None:
    ours, theirs = machine.open()
    other, _ = machine.open(b"2" * 16)
    ours._socket.send(b"nonsense, and much of it")
    other.send([b"sense"])
    assert machine.read() == [(b"2" * 16, [b"sense"])]
    assert theirs.has_ended()
    ours.receive()
    assert ours.has_ended()


def test_a_client_that_connects_again_has_the_new_connection(machine: Machine) -> None:
    _, before = machine.open()
    ours, after = machine.open()
    assert after is not before
    assert before.has_ended()
    ours.send([b"new"])
    assert machine.read() == [(WHO, [b"new"])]


def test_blocks_that_have_come_can_be_taken_after_the_end(machine: Machine) -> None:
    ours, theirs = machine.open()
    number = theirs.put(bytes(SIZE))
    ours.end()
    assert bytes(ours.take(number, SIZE)) == bytes(SIZE)
    assert ours.put(bytes(SIZE)) == b""
