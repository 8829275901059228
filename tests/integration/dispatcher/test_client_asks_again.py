"""What a client has asked of a dispatcher that was killed before it answered, and started again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gridengine._version import __version__
from gridengine.dispatcher.remote import RemoteDispatcher
from gridengine.wire.connection_file import ClientConnection, ServerKeys, replace_private, to_json
from gridengine.wire.messages import (
    Beat,
    ChildrenWelcome,
    ChildResult,
    ChildWant,
    ClientHello,
    Durable,
    Message,
)
from gridengine.wire.server import Server
from tests.support.pollers import poller_of
from tests.support.waiting import wait_until

CLIENT = 7
REFERENCE = 55


def connection_to(server: Server) -> ClientConnection:
    keys = server.keys
    return ClientConnection(
        name="night",
        addresses=server.addresses,
        version=__version__,
        host=socket.gethostname(),
        pid=1,
        beat_seconds=0.2,
        server_key=keys.public,
        client_public=keys.peer_public,
        client_secret=keys.peer_secret,
    )


class Process:
    """A process that a dispatcher was, or is. It welcomes clients, or does not; what is asked of it
    is on disk at once, or answered: that it `keeps` a result, or that it does not.
    """

    def __init__(
        self, epoch: int, *, welcomes: bool = True, answers: bool = True, keeps: bool = False
    ) -> None:
        self._epoch = epoch
        self._welcomes = welcomes
        self._answers = answers
        self._keeps = keeps
        self.hellos = 0
        self.wants: list[ChildWant] = []

    @contextmanager
    def at(self, keys: ServerKeys | None = None) -> Iterator[Server]:
        """Have it there while the block runs; then it is gone, as if killed."""
        server = Server(host="127.0.0.1", keys=keys, greeting=ClientHello, epoch=self._epoch)
        ended = threading.Event()
        thread = threading.Thread(target=self._serve, args=(server, ended))
        thread.start()
        try:
            yield server
        finally:
            ended.set()
            thread.join()
            server.close(linger_seconds=0)

    def _serve(self, server: Server, ended: threading.Event) -> None:
        poller = poller_of(server)
        while not ended.is_set():
            poller.poll(20)
            for peer, message, _ in server.receive():
                if answer := self._answer(message):
                    server.send(peer, answer)

    def _answer(self, message: Any) -> Message | None:
        if type(message) is ClientHello:
            self.hellos += 1
            if not self._welcomes:
                return None
            return ChildrenWelcome(0, CLIENT, 1, taken=message.durable, epoch=self._epoch)
        if type(message) is Beat:
            return Beat()
        if type(message) is ChildWant:
            self.wants.append(message)
            if self._answers:
                return ChildResult(0, message.reference, not self._keeps)
            return Durable(len(self.wants))
        return None


def test_whether_a_result_is_kept_is_asked_again_though_the_journal_has_the_question(
    tmp_path: Path,
) -> None:
    file, missing = tmp_path / "client.json", threading.Event()
    killed, next_one = Process(1, answers=False), Process(2)
    with killed.at() as server:
        replace_private(file, to_json(connection_to(server)))
        keys = server.keys
        client = RemoteDispatcher(file)
        client.want((CLIENT << 40) + 3, 0, REFERENCE, missing.set)
        assert client.flush(60)
    with next_one.at(keys):
        wait_until(missing.is_set, 60)
        client.close()
    assert killed.wants == next_one.wants


def test_a_result_that_was_to_be_kept_is_asked_for_again_when_that_was_not_on_disk(
    tmp_path: Path,
) -> None:
    file, missing = tmp_path / "client.json", threading.Event()
    killed, next_one = Process(1, keeps=True), Process(2)
    with killed.at() as server:
        replace_private(file, to_json(connection_to(server)))
        keys = server.keys
        client = RemoteDispatcher(file)
        client.want((CLIENT << 40) + 3, 0, REFERENCE, missing.set)
        wait_until(lambda: not client._wanted, 60)
    assert not missing.is_set()
    with next_one.at(keys):
        wait_until(missing.is_set, 60)
        client.close()
    assert killed.wants == next_one.wants


def test_a_client_whose_greeting_was_not_answered_is_welcomed_by_the_next(tmp_path: Path) -> None:
    file = tmp_path / "client.json"
    killed, next_one = Process(1, welcomes=False), Process(2)
    with ThreadPoolExecutor(1) as threads:
        with killed.at() as server:
            replace_private(file, to_json(connection_to(server)))
            keys = server.keys
            made = threads.submit(RemoteDispatcher, file)
            wait_until(lambda: killed.hellos, 60)
        with next_one.at(keys):
            made.result(60).close()
    assert next_one.hellos == 1


@pytest.mark.parametrize("detach", [True, False])
def test_who_ends_calls_is_told_when_the_dispatcher_has_not_heard_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, detach: bool
) -> None:
    file = tmp_path / "client.json"
    with Process(1).at() as server:
        replace_private(file, to_json(connection_to(server)))
        heard, unheard = RemoteDispatcher(file), RemoteDispatcher(file)
        heard.close()
    assert not caplog.messages
    unheard.close(detach=detach)
    told = "the dispatcher 'night' has not heard that this client has left"
    assert any(one.startswith(told) for one in caplog.messages) is not detach
