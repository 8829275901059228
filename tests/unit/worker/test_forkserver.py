"""An agent's side of its fork server, at whose end of their socket is the test."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from gridengine.wire.channel import socket_pair
from gridengine.worker.forkserver import Exited, Forked, ForkServer, Refused, is_ready
from gridengine.worker.forkserver_process import (
    EXITED,
    FORK,
    FORKED,
    PRELOAD,
    READY,
    RECORD,
    REFUSED,
    REQUESTS,
    SIGNAL,
    RunnerDescriptors,
)


class Process:
    """The fork server's, which ends when nothing more can come."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.signals: list[int] = []
        self.waited = False

    def send_signal(self, sig: int) -> None:
        self.signals.append(sig)
        self.sock.close()

    def wait(self) -> int:
        self.waited = True
        return 0

    def say(self, kind: int, runner: int, first: int = 0, second: int = 0) -> None:
        self.sock.send(RECORD.pack(kind, runner, first, second))

    def heard(self) -> tuple[tuple[int, ...], int]:
        """Return the next command, and how many descriptors came with it."""
        data, fds, _, _ = socket.recv_fds(self.sock, RECORD.size, 4)
        for fd in fds:
            os.close(fd)
        return RECORD.unpack(data), len(fds)


@pytest.fixture
def process() -> Iterator[Process]:
    ours, theirs = socket_pair(socket.SOCK_SEQPACKET)
    made = Process(theirs)
    made.agent = ours  # type: ignore[attr-defined]
    yield made
    ours.close()
    theirs.close()


@pytest.fixture
def server(process: Process) -> Iterator[ForkServer]:
    server = ForkServer(process.agent, process)  # type: ignore[attr-defined]
    assert process.heard() == ((REQUESTS, 0, 0, 0), 1)
    yield server
    server.close()


def test_commands_go_out_with_what_belongs_to_them(server: ForkServer, process: Process) -> None:
    reading, writing = os.pipe()
    server.fork(3, RunnerDescriptors(reading, writing, writing, writing))
    server.signal(3, 15)
    server.preload()
    assert [process.heard() for _ in range(3)] == [
        ((FORK, 3, 0, 0), 4),
        ((SIGNAL, 3, 15, 0), 0),
        ((PRELOAD, 0, 0, 0), 0),
    ]
    os.close(reading)  # they stayed the caller's
    os.close(writing)


def test_what_has_become_of_runners_comes_back_in_order(
    server: ForkServer, process: Process
) -> None:
    assert server.receive() == []
    process.say(READY, 0)
    process.say(FORKED, 1, 4711)
    process.say(REFUSED, 2, 11)
    process.say(EXITED, 1, -9, 2**40)
    assert server.receive() == [Forked(1, 4711), Refused(2, 11), Exited(1, -9, 2**40)]
    assert server.receive() == []


def test_what_came_before_its_end_is_told_before_that(server: ForkServer, process: Process) -> None:
    process.say(EXITED, 1, 3)
    process.sock.close()
    assert server.receive() == [Exited(1, 3, 0)]
    for _ in range(2):
        with pytest.raises(EOFError, match="is gone"):
            server.receive()
    with pytest.raises(OSError, match="Broken pipe"):
        server.signal(1, 9)


def test_half_an_event_is_its_end(server: ForkServer, process: Process) -> None:
    process.sock.send(b"half")
    with pytest.raises(EOFError):
        server.receive()


def test_it_is_let_go_on_when_it_is_closed_and_waited_for_once(
    server: ForkServer, process: Process
) -> None:
    process.say(EXITED, 1, 0)
    server.close()
    assert process.waited
    assert len(process.signals) == 1  # a stopped process would not see its end
    server.close()
    assert len(process.signals) == 1


def test_one_that_starts_is_ready_once_it_has_said_so(process: Process) -> None:
    agent = process.agent  # type: ignore[attr-defined]
    assert not is_ready(agent)
    process.say(READY, 0)
    assert is_ready(agent)
    assert is_ready(agent)  # what it has said is still there
    agent.recv(RECORD.size)
    process.sock.close()
    with pytest.raises(EOFError):
        is_ready(agent)
