"""What runners ask their agent, and what they are told."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import current_process

import pytest

from gridengine.wire import agent_requests
from gridengine.wire.agent_requests import (
    AUTHENTICATION_KEY,
    RESOURCE_TRACKER,
    Answer,
    answer_in_user_process,
    answer_on_any_machine,
    ask,
    connect,
    reply,
)
from gridengine.wire.channel import socket_pair


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The agent's end of the socket by which this process makes requests."""
    ours, theirs = socket_pair()
    made = agent_requests._AgentSocket()
    monkeypatch.setattr(agent_requests, "_agent", lambda: made)
    connect(theirs.detach())
    yield ours
    ours.close()
    assert made.sock is not None
    made.sock.close()


def asked(
    agent: socket.socket, request: bytes, answer: Callable[[bytes], Answer]
) -> tuple[bytes, int] | LookupError:
    """Return what a runner is told."""
    found: list[tuple[bytes, int] | LookupError] = []

    def be_runner() -> None:
        try:
            found.append(ask(request))
        except LookupError as error:
            found.append(error)

    runner = threading.Thread(target=be_runner)
    runner.start()
    select.select([agent], [], [])
    assert reply(agent, answer)
    runner.join()
    return found[0]


def test_requests_that_come_together_are_told_apart(agent: socket.socket) -> None:
    sock = agent_requests._agent().sock
    assert sock is not None
    pairs = [socket_pair() for _ in range(2)]
    for number, (_, asker) in enumerate(pairs):
        socket.send_fds(sock, [b"request %d" % number], [asker.fileno()])
        asker.close()
    assert reply(agent, lambda request: (request, None))
    assert [mine.recv(100) for mine, _ in pairs] == [b"+request 0", b"+request 1"]
    for mine, _ in pairs:
        mine.close()


def test_a_value_comes_back_without_a_descriptor(agent: socket.socket) -> None:
    assert asked(agent, b"x", lambda request: (request + b"!", None)) == (b"x!", -1)


def test_a_descriptor_comes_back_as_this_processs_own(agent: socket.socket) -> None:
    reading, writing = os.pipe()
    told = asked(agent, b"x", lambda request: (b"", writing))
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
def test_why_there_is_no_answer_is_told(agent: socket.socket, error: Exception, words: str) -> None:
    def refuse(request: bytes) -> Answer:
        raise error

    told = asked(agent, b"x", refuse)
    assert isinstance(told, LookupError)
    assert words in str(told)


def test_a_request_of_an_ended_runner_keeps_nobody_up(agent: socket.socket) -> None:
    ours, theirs = socket_pair()
    sock = agent_requests._agent().sock
    assert sock is not None
    socket.send_fds(sock, [b"x"], [theirs.fileno()])
    ours.close()
    theirs.close()
    assert reply(agent, lambda request: (b"late", None))


def test_when_all_runners_are_gone_none_can_ask_any_more() -> None:
    ours, theirs = socket_pair()
    theirs.close()
    with ours:
        assert not reply(ours, lambda request: (b"", None))


def test_an_agent_that_is_gone_is_said_so(agent: socket.socket) -> None:
    agent.close()
    with pytest.raises(LookupError, match="does not answer"):
        ask(b"x")


def test_a_process_that_is_no_runner_has_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_requests, "_agent", agent_requests._AgentSocket)
    with pytest.raises(LookupError, match="runs no calls for another"):
        ask(b"x")


def test_the_users_key_is_given_in_the_users_own_process_alone() -> None:
    assert answer_in_user_process(AUTHENTICATION_KEY) == (bytes(current_process().authkey), None)
    with pytest.raises(LookupError, match="has nothing of the process that the calls come from"):
        answer_on_any_machine(AUTHENTICATION_KEY)


def test_the_resource_tracker_is_given_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.resource_tracker.getfd", lambda: 17)
    assert answer_on_any_machine(RESOURCE_TRACKER) == (b"", 17)
    assert answer_in_user_process(RESOURCE_TRACKER) == (b"", 17)
