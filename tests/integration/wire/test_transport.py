"""Messages over real sockets: whole, once and in order, whatever becomes of the connection;
addresses, and open files.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

import gridengine
from gridengine.errors import ConfigurationError
from gridengine.wire.connection_file import Connection
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.framing import encode
from gridengine.wire.messages import (
    Beat,
    Cancel,
    Goodbye,
    Hello,
    Message,
    Pushed,
    Refuse,
    Stop,
    Welcome,
)
from gridengine.wire.server import Server
from gridengine.wire.session import _FRAME, _PIECE, MOST_FIRST, Session
from gridengine.wire.sockets import KeyCheck
from tests.support.cable import Cable
from tests.support.network import Network, needs_network
from tests.support.pollers import poller_of
from tests.support.processes import completed

PACKAGE_PARENT = Path(gridengine.__file__).parents[1]
PATIENCE_SECONDS = 120
PIECE = 256 * 1024
UNREAD, PAGE = 1000, 4096
DROP_SECONDS = 20
HELLO = Hello(
    protocol=1, version="1", python="3.11", run_id="run", host="here", pid=1, slots=1, log=""
)


def connection_to(
    server: Server, *addresses: str, lease_seconds: float = 60, start_seconds: float = 30
) -> Connection:
    return Connection(
        run_id="run",
        addresses=addresses or server.addresses,
        slots=1,
        version="1",
        python="3.11",
        beat_seconds=0.2,
        lease_seconds=lease_seconds,
        start_seconds=start_seconds,
        grace_seconds=5,
        output_bytes=1000,
        server_key=server.keys.public,
        worker_public=server.keys.peer_public,
        worker_secret=server.keys.peer_secret,
    )


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(host="127.0.0.1")
    yield server
    server.close()


@contextlib.contextmanager
def connected(server: Server, *addresses: str) -> Iterator[DispatcherConnection]:
    client = DispatcherConnection(connection_to(server, *addresses))
    yield client
    client.close(0)


@pytest.fixture
def client(server: Server) -> Iterator[DispatcherConnection]:
    with connected(server) as client:
        yield client


class Ends:
    """Both ends of conversations in one thread: moves what can be moved until something holds."""

    def __init__(self, server: Server, *clients: DispatcherConnection) -> None:
        self.server, self.clients = server, clients
        self.poller = poller_of(server)
        for client in clients:
            self.poller.register(client.socket, zmq.POLLIN)
        self.of_workers: list[tuple[bytes, Message, list[bytes]]] = []
        self.of_server: list[tuple[Message, list[bytes]]] = []

    def until(self, done: Any) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            assert time.monotonic() < deadline, "it never came"
            now = time.monotonic()
            self.poller.poll(1000 * min(client.tick(now) for client in self.clients))
            self.look()

    def look(self) -> None:
        """Move what has come."""
        for peer, message, buffers in self.server.receive():
            if isinstance(message, Beat):
                self.server.beat(peer)
            else:
                self.of_workers.append((peer, message, [bytes(buffer) for buffer in buffers]))
        for client in self.clients:
            self.of_server += [
                (message, [bytes(buffer) for buffer in buffers])
                for message, buffers in client.receive()
            ]

    def greet(self) -> bytes:
        """Have the first worker be known; return its id."""
        self.clients[0].send(HELLO)
        self.until(lambda: self.of_workers)
        return self.of_workers.pop()[0]


def endless(speaker: Session, first: bytes | None) -> Iterator[list[bytes]]:
    """Yield the pieces of a message without an end."""
    if first is not None:
        speaker.sent += 1
        yield [speaker._envelope(_FRAME, speaker.sent), first]
    while True:
        speaker.sent += 1
        yield [speaker._envelope(_PIECE, speaker.sent), bytes(PIECE)]


def announcing(size: int) -> bytes:
    """Return the first frame of a message that is followed by one buffer of so many bytes."""
    [header, *_] = encode(Pushed(1), [b""])
    return bytes(header).replace(b"\x91\x00", b"\x91\xcf" + size.to_bytes(8, "big"), 1)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (None, "longer than it announced"),
        (announcing(PIECE * 3), "longer than it announced"),
        (announcing(2**62), r"has 4,611,686,018,427,387,904 bytes, and this machine"),
    ],
    ids=["of its first frame", "more than it announced", "more than there is memory"],
)
def test_a_sender_of_endless_pieces_is_sent_away(
    server: Server, client: DispatcherConnection, first: bytes | None, words: str
) -> None:
    ends = Ends(server, client)
    ends.greet()
    sent = 0
    for frames in endless(client._session, first):
        client.socket.send_multipart(frames)
        ends.look()
        sent += sum(map(len, frames))
        if ends.of_workers or sent > 2 * MOST_FIRST:
            break
    ends.until(lambda: ends.of_workers and ends.of_server)
    assert re.search(words, ends.of_workers[0][1].reason)  # type: ignore[attr-defined]
    refused = ends.of_server[0][0]
    assert isinstance(refused, Refuse)
    assert re.search(words, refused.reason)


def test_messages_to_nobody_are_dropped(server: Server, client: DispatcherConnection) -> None:
    ends = Ends(server, client)
    server.send(b"nobody", Welcome())
    server.send(ends.greet(), Stop())
    ends.until(lambda: ends.of_server)
    assert ends.of_server == [(Stop(), [])]


# ---------------------------------------------------------------- broken connections


@pytest.fixture
def cable(server: Server) -> Iterator[Cable]:
    cable = Cable(int(server.addresses[0].rpartition(":")[2]))
    yield cable
    cable.close()


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_over_a_connection_that_is_cut_again_and_again_each_message_arrives_once_and_in_order(
    server: Server, cable: Cable, size: int
) -> None:
    with connected(server, cable.address) as client:
        ends = Ends(server, client)
        peer = ends.greet()
        said = [(number, bytes([number]) * size) for number in range(60)]
        for number, content in said:
            client.send(Pushed(number), [content])
            server.send(peer, Pushed(number), [content])
            if number % 20 == 19:
                heard = len(ends.of_workers)
                ends.until(lambda: len(ends.of_workers) > heard)  # noqa: B023
                cable.cut()
        ends.until(lambda: len(ends.of_workers) >= len(said) <= len(ends.of_server))
        assert [(message.run, *buffers) for _, message, buffers in ends.of_workers] == said
        assert [(message.run, *buffers) for message, buffers in ends.of_server] == said
        assert cable.cuts == 3


def close_in_thread(client: DispatcherConnection) -> threading.Thread:
    thread = threading.Thread(target=client.close, args=(PATIENCE_SECONDS,), daemon=True)
    thread.start()
    return thread


def test_the_last_message_arrives_though_the_connection_breaks_during_close(
    server: Server, cable: Cable
) -> None:
    client = DispatcherConnection(connection_to(server, cable.address))
    Ends(server, client).greet()
    content = os.urandom(20_000_000)
    client.send(Pushed(1), [content])
    client.send(Goodbye("the last"))
    thread = close_in_thread(client)
    came: list[tuple[Message, list[bytes]]] = []
    poller = poller_of(server)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not came or not isinstance(came[-1][0], Goodbye):
        assert time.monotonic() < deadline, "it never came"
        poller.poll(100)
        for peer, message, buffers in server.receive(1):
            if not isinstance(message, Beat):
                came.append((message, [bytes(buffer) for buffer in buffers]))
                continue
            server.beat(peer)
            if not cable.cuts:  # of a piece: most are under way
                cable.cut()
    assert came == [(Pushed(1), [content]), (Goodbye("the last"), [])]
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize("gone", [False, True])
def test_a_client_without_dispatcher_does_not_wait_at_its_end(
    server: Server, client: DispatcherConnection, gone: bool
) -> None:
    peer = Ends(server, client).greet()
    client.send(Goodbye("to nobody"))
    server.forget(peer)
    if gone:
        server.close()
    thread = close_in_thread(client)
    deadline = time.monotonic() + PATIENCE_SECONDS / 2
    while thread.is_alive():
        assert time.monotonic() < deadline, "it waits on"
        assert gone or not list(server.receive())
        thread.join(0.05)


# ---------------------------------------------------------------- a network of its own


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.close()


@contextlib.contextmanager
def worker_elsewhere(network: Network, server: Server, folder: Path, script: str) -> Iterator[None]:
    connection_to(server).save(folder / "connection.json")
    worker = network.start(WORKER + textwrap.dedent(script), str(folder / "connection.json"))
    try:
        yield
    finally:
        worker.kill()
        worker.wait()


WORKER = """
import sys, time
from pathlib import Path
from gridengine.wire.messages import *
from gridengine.wire.connection_file import Connection
from gridengine.wire.dispatcher_connection import DispatcherConnection

client = DispatcherConnection(Connection.load(Path(sys.argv[1])))
client.send(Hello(1, "1", "3.11", "run", "there", 1, 1, ""))

def serve():
    wait = client.tick(time.monotonic())
    client.socket.poll(int(1000 * min(wait, 0.05)))
    return [message for message, _ in client.receive()]
"""


@needs_network
def test_after_the_network_was_gone_for_a_while_each_message_has_arrived_once_and_in_order(
    network: Network, tmp_path: Path
) -> None:
    talk = """
        heard, number = [], 0
        while True:
            for message in serve():
                if isinstance(message, Stop):
                    client.send(Goodbye(repr(heard)))
                else:
                    heard.append(message.signal)
            client.send(Pushed(number), [b"%d" % number])
            number += 1
    """
    with (
        contextlib.closing(Server(host=network.address)) as server,
        worker_elsewhere(network, server, tmp_path, talk),
    ):
        heard: list[tuple[bytes, Message]] = []
        sent, poller = 0, poller_of(server)

        def talk_until(done: Callable[[], bool]) -> None:
            nonlocal sent
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not done():
                assert time.monotonic() < deadline, "the worker never came back"
                poller.poll(20)
                for peer, message, _ in server.receive():
                    if isinstance(message, Beat):
                        server.beat(peer)
                    else:
                        heard.append((peer, message))
                if heard and not stopped:
                    server.send(heard[0][0], Cancel([], sent))
                    sent += 1

        stopped: list[Message] = []
        talk_until(lambda: len(heard) > 100)
        network.link("down")
        back = time.monotonic() + DROP_SECONDS
        talk_until(lambda: time.monotonic() > back)
        before = len(heard)
        network.link("up")
        talk_until(lambda: len(heard) > before + 100)
        stopped.append(Stop())
        server.send(heard[0][0], stopped[0])
        talk_until(lambda: any(isinstance(one, Goodbye) for _, one in heard))
    pushed = [one.run for _, one in heard if isinstance(one, Pushed)]
    assert pushed == list(range(len(pushed)))
    assert Goodbye(repr(list(range(sent)))) in [one for _, one in heard]


@needs_network
def test_a_message_that_takes_longer_than_any_silence_may_last_arrives_over_a_slow_line(
    network: Network, tmp_path: Path
) -> None:
    network.slow_down("8mbit")
    talk = """
        client.send(Pushed(1), [bytes(15_000_000)])
        while True:
            serve()
    """
    with (
        contextlib.closing(Server(host=network.address)) as server,
        worker_elsewhere(network, server, tmp_path, talk),
    ):
        poller = poller_of(server)
        deadline = time.monotonic() + PATIENCE_SECONDS
        came: list[int] = []
        beats = 0
        while not came:
            assert time.monotonic() < deadline, "it never came"
            poller.poll(1000)
            for _, message, buffers in server.receive():
                beats += isinstance(message, Beat)
                if isinstance(message, Pushed):
                    came = [len(buffer) for buffer in buffers]
        assert came == [15_000_000]
        assert beats >= 50  # each piece is a sign of life


# ---------------------------------------------------------------- addresses


@pytest.mark.promise
def test_a_host_that_does_not_resolve_is_named_with_the_setting_to_change() -> None:
    with pytest.raises(ConfigurationError, match=r"no-such-host\.invalid(.|\n)*GRIDENGINE_HOST"):
        Server(host="no-such-host.invalid")


def test_the_address_that_answers_is_used(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dead = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with connected(server, dead, *server.addresses) as client:
            Ends(server, client).greet()


def test_a_worker_makes_one_handshake_however_many_addresses_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Sequence[bytes]] = []
    answer = KeyCheck.answer

    def counted(check: KeyCheck, request: Sequence[bytes]) -> list[bytes]:
        asked.append(request)
        return answer(check, request)

    monkeypatch.setattr(KeyCheck, "answer", counted)
    with contextlib.closing(Server(host="127.0.0.1")) as server:
        addresses = [f"tcp://127.0.0.{host}:{server.keys.port}" for host in (1, 2, 3)]
        with connected(server, *addresses) as client:
            Ends(server, client).greet()
    assert len(asked) == 1


def test_nobody_is_let_in_while_nothing_checks_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridengine.wire.server.KeyCheck", lambda context, keys: None)
    with contextlib.closing(Server(host="127.0.0.1")) as server:
        connection = connection_to(server, start_seconds=0.4, lease_seconds=0.5)
        with pytest.raises(ConfigurationError, match="gets no answer of its dispatcher"):
            DispatcherConnection(connection)


def test_an_unread_message_keeps_no_more_than_its_own_bytes(
    server: Server, client: DispatcherConnection
) -> None:
    poller, process = poller_of(server), psutil.Process()
    came: list[object] = []
    before = process.memory_info().rss
    for _ in range(UNREAD):
        client.socket.send(b"beat")
        while not (one := server._polled.receive()):
            assert poller.poll(PATIENCE_SECONDS * 1000), "it never came"
        came.append(one)
    assert process.memory_info().rss - before < UNREAD * PAGE


def test_a_dispatcher_of_other_keys_at_an_address_is_passed_over(server: Server) -> None:
    with contextlib.closing(Server(host="127.0.0.1")) as other:
        addresses = [f"tcp://127.0.0.1:{one.keys.port}" for one in (other, server)]
        with connected(server, *addresses) as client:
            Ends(server, client).greet()


def test_when_no_address_answers_the_error_names_them_all(server: Server) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        addresses = [f"tcp://127.0.0.1:{silent.getsockname()[1]}" for silent in (one, two)]
        with pytest.raises(
            ConfigurationError, match=f"{addresses[0]}.*{addresses[1]}(.|\\n)*firewall"
        ):
            DispatcherConnection(connection_to(server, *addresses, lease_seconds=0.3))


def test_a_worker_logs_the_addresses_that_it_tried(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        closed = f"tcp://127.0.0.1:{one.getsockname()[1]}"
    connection = connection_to(server, closed, start_seconds=0.4, lease_seconds=0.5)
    with pytest.raises(ConfigurationError, match="GRIDENGINE_HOST"):
        DispatcherConnection(connection)
    [logged] = caplog.messages
    assert f"{closed} (Connection refused)" in logged


# ---------------------------------------------------------------- open files


@pytest.mark.promise
def test_a_small_hard_limit_of_open_files_is_named_with_the_remedy() -> None:
    script = "from gridengine.wire.server import Server; Server(host='127.0.0.1', workers=1000)"
    text = completed(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(PACKAGE_PARENT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512)),
    ).stderr
    assert "ConfigurationError: 1,000 workers need" in text
    assert "no more than 512 (the hard limit, `ulimit -Hn`)" in text
    assert "GRIDENGINE_MAX_WORKERS" in text
