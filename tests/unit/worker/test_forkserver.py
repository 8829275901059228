"""An agent's side of its fork server, at whose end of their socket is the test."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from gridengine.wire.channel import socket_pair
from gridengine.worker import forkserver
from gridengine.worker.forkserver import (
    EXITED,
    FORK,
    FORKED,
    PRELOAD,
    READY,
    RECORD,
    REFUSED,
    REQUESTS,
    SIGNAL,
    Exited,
    Forked,
    ForkRefused,
    ForkServer,
    OrphanReaper,
    RunnerDescriptors,
    end_all,
    is_ready,
    restore_dispositions,
    signal_group,
    unblock,
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
    ours, theirs = socket_pair()
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


def test_commands_go_out_with_their_descriptors(server: ForkServer, process: Process) -> None:
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


def test_ends_of_runners_are_told_in_order(server: ForkServer, process: Process) -> None:
    assert server.receive() == []
    process.say(READY, 0)
    process.say(FORKED, 1, 4711)
    process.say(REFUSED, 2, 11)
    process.say(EXITED, 1, -9, 2**40)
    assert server.receive() == [Forked(1, 4711), ForkRefused(2, 11), Exited(1, -9, 2**40)]
    assert server.receive() == []


def test_news_of_runners_come_before_the_fork_server_s_end(
    server: ForkServer, process: Process
) -> None:
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


def test_a_stopped_fork_server_goes_on_at_close_and_is_waited_for_once(
    server: ForkServer, process: Process
) -> None:
    process.say(EXITED, 1, 0)
    server.close()
    assert process.waited
    assert len(process.signals) == 1  # a stopped process would not see its end
    server.close()
    assert len(process.signals) == 1


def test_a_starting_fork_server_is_ready_once_it_has_said_so(process: Process) -> None:
    agent = process.agent  # type: ignore[attr-defined]
    assert not is_ready(agent)
    process.say(READY, 0)
    assert is_ready(agent)
    assert is_ready(agent)  # what it has said is still there
    agent.recv(RECORD.size)
    process.sock.close()
    with pytest.raises(EOFError):
        is_ready(agent)


OURS, THEIRS, GONE = 41, 42, 43


class System:
    """A clock, and who was sent what."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[tuple[int, int]] = []

    def kill(self, pid: int, number: int) -> None:
        if pid == THEIRS:
            raise PermissionError
        if pid == GONE:
            raise ProcessLookupError
        self.sent.append((pid, number))

    def take_sent(self) -> list[tuple[int, int]]:
        sent, self.sent = self.sent, []
        return sent


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System()
    monkeypatch.setattr(os, "kill", system.kill)
    monkeypatch.setattr(forkserver, "monotonic", lambda: system.now)
    return system


def test_an_orphan_is_asked_to_end_and_killed_when_it_does_not(system: System) -> None:
    orphans = OrphanReaper()
    orphans.end([OURS])
    assert system.take_sent() == [(OURS, signal.SIGTERM), (OURS, signal.SIGCONT)]
    system.now += 0.5
    orphans.end([OURS])
    assert system.take_sent() == []
    assert orphans.wait_seconds() == pytest.approx(0.5)
    system.now += 0.5
    orphans.end([OURS])
    assert system.take_sent() == [(OURS, signal.SIGKILL)]


def test_an_ended_orphan_is_forgotten(system: System) -> None:
    orphans = OrphanReaper()
    orphans.end([OURS, GONE])
    assert orphans
    orphans.end([])
    assert not orphans
    assert orphans.wait_seconds() > 0


def test_an_orphan_of_another_user_is_left_alone_and_the_others_end(system: System) -> None:
    orphans = OrphanReaper()
    orphans.end([THEIRS, OURS])
    assert [pid for pid, _ in system.take_sent()] == [OURS, OURS]
    orphans.end([THEIRS])
    assert not orphans


def test_children_of_another_user_are_not_waited_for(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [OURS, THEIRS]

    def end_one(signals: object, seconds: float) -> None:
        left.remove(OURS)

    monkeypatch.setattr(os, "waitpid", lambda pid, options: (0, 0))
    monkeypatch.setattr(signal, "pthread_sigmask", lambda how, signals: None)
    monkeypatch.setattr(forkserver, "wait_for_signal", end_one)
    end_all(Mock(left=lambda: set(left)))
    assert left == [THEIRS]


@pytest.mark.parametrize(
    ("leads", "pid", "sent"), [(True, 7, [(-7, 2)]), (False, 7, [(7, 2)]), (False, GONE, [])]
)
def test_a_signal_goes_to_a_group_or_to_a_process_that_leads_none_yet(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    leads: bool,
    pid: int,
    sent: list[tuple[int, int]],
) -> None:
    def killpg(pid: int, number: int) -> None:
        if not leads:
            raise ProcessLookupError
        system.sent.append((-pid, number))

    monkeypatch.setattr(os, "killpg", killpg)
    signal_group(pid, 2)
    assert system.sent == sent


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    numbers = (signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGPIPE)
    before = {number: signal.getsignal(number) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_ignored_signals_have_their_default_again() -> None:
    def handler(number: int, frame: object) -> None: ...

    for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, handler)
    restore_dispositions()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN  # as Python has it


def test_a_blocked_signal_comes_when_unblocked() -> None:
    came: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    signal.raise_signal(signal.SIGUSR1)
    assert not came
    unblock()
    assert came == [signal.SIGUSR1]
