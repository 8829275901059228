"""What runners ask their agent, and what they are told."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import current_process

import pytest

from gridengine.wire.agent_requests import (
    AUTHENTICATION_KEY,
    RESOURCE_TRACKER,
    Answer,
    answer_in_user_process,
    answer_on_any_machine,
    ask,
    reply,
)
from gridengine.wire.channel import socket_pair


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The agent's end of the socket for requests, and its runners' end."""
    ours, theirs = socket_pair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def agent(pair: tuple[socket.socket, socket.socket]) -> socket.socket:
    return pair[0]


@pytest.fixture
def sock(pair: tuple[socket.socket, socket.socket]) -> socket.socket:
    return pair[1]


def asked(
    pair: tuple[socket.socket, socket.socket], request: bytes, answer: Callable[[bytes], Answer]
) -> tuple[bytes, int] | LookupError:
    """Return what a runner is told."""
    found: list[tuple[bytes, int] | LookupError] = []

    def be_runner() -> None:
        try:
            found.append(ask(pair[1], request))
        except LookupError as error:
            found.append(error)

    runner = threading.Thread(target=be_runner)
    runner.start()
    select.select([pair[0]], [], [])
    assert reply(pair[0], answer)
    runner.join()
    return found[0]


def test_requests_that_come_together_are_told_apart(
    agent: socket.socket, sock: socket.socket
) -> None:
    pairs = [socket_pair() for _ in range(2)]
    for number, (_, asker) in enumerate(pairs):
        socket.send_fds(sock, [b"request %d" % number], [asker.fileno()])
        asker.close()
    assert reply(agent, lambda request: (request, None))
    assert [mine.recv(100) for mine, _ in pairs] == [b"+request 0", b"+request 1"]
    for mine, _ in pairs:
        mine.close()


def test_a_value_comes_back_without_a_descriptor(pair: tuple[socket.socket, socket.socket]) -> None:
    assert asked(pair, b"x", lambda request: (request + b"!", None)) == (b"x!", -1)


def test_a_descriptor_comes_back_as_this_processs_own(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    reading, writing = os.pipe()
    told = asked(pair, b"x", lambda request: (b"", writing))
    assert not isinstance(told, LookupError)
    os.close(writing)
    os.write(told[1], b"through it")
    os.close(told[1])
    assert os.read(reading, 100) == b"through it"
    assert os.read(reading, 100) == b""
    os.close(reading)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LookupError("it is no more"), "it is no more"),
        (OSError("out of files"), "OSError: out of files"),
        (LookupError("ä" * 4000), "ää"),
    ],
)
def test_why_there_is_no_answer_is_told(
    pair: tuple[socket.socket, socket.socket], error: Exception, words: str
) -> None:
    def refuse(request: bytes) -> Answer:
        raise error

    told = asked(pair, b"x", refuse)
    assert isinstance(told, LookupError)
    assert words in str(told)


def test_a_request_of_an_ended_runner_keeps_nobody_up(
    agent: socket.socket, sock: socket.socket
) -> None:
    ours, theirs = socket_pair()
    socket.send_fds(sock, [b"x"], [theirs.fileno()])
    ours.close()
    theirs.close()
    assert reply(agent, lambda request: (b"late", None))


def test_when_all_runners_are_gone_none_can_ask_any_more() -> None:
    ours, theirs = socket_pair()
    theirs.close()
    with ours:
        assert not reply(ours, lambda request: (b"", None))


def test_an_agent_that_is_gone_is_said_so(agent: socket.socket, sock: socket.socket) -> None:
    agent.close()
    with pytest.raises(LookupError, match="does not answer"):
        ask(sock, b"x")


def test_the_users_key_is_given_in_the_users_own_process_alone() -> None:
    assert answer_in_user_process(AUTHENTICATION_KEY) == (bytes(current_process().authkey), None)
    with pytest.raises(LookupError, match="has nothing of the process that the calls come from"):
        answer_on_any_machine(AUTHENTICATION_KEY)


def test_the_resource_tracker_is_given_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.resource_tracker.getfd", lambda: 17)
    assert answer_on_any_machine(RESOURCE_TRACKER) == (b"", 17)
    assert answer_in_user_process(RESOURCE_TRACKER) == (b"", 17)
