"""Workers elsewhere: when their socket is asked for what has come."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.dispatcher import remote_workers
from gridengine.dispatcher.remote_workers import MixedWorkers, RemoteWorkers
from gridengine.dispatcher.run_directory import Home
from gridengine.schedulers.launcher import LaunchContext
from gridengine.settings.schema import Settings
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.messages import Beat, Output
from gridengine.wire.session import Session
from tests.support.interrupts import at_each_point

FD = 5


class Server:
    """A socket with messages, whose descriptor is polled as readable but once."""

    fd, keys, pending = FD, ServerKeys("server's", "secret", "workers'", "secret", 4711), False
    addresses = ("tcp://10.0.0.7:4711",)

    def __init__(self, **_: object) -> None:
        self.coming: list[tuple[bytes, str, tuple[()]]] = []
        self.beat_all: Callable[[], object] = print
        self.send = self.forget = self.take_receipts = self.acknowledge = self.open = self.close = (
            print
        )

    def receive(self, most: int) -> Iterator[tuple[bytes, str, tuple[()]]]:
        for _ in range(min(most, len(self.coming))):
            yield self.coming.pop(0)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[RemoteWorkers, Server]:
    server = Server()
    monkeypatch.setattr(remote_workers, "Server", lambda **_: server)
    return make(tmp_path), server


def make(runs: Path, home: Home | None = None, **options: Any) -> RemoteWorkers:
    scheduler: Any = SimpleNamespace(local=False, max_workers=3, transport="tcp", slots=1)
    settings = Settings(run_directory=runs, **options)
    return RemoteWorkers(scheduler, run_id="run", settings=settings, wake=print, home=home)


def test_a_ctrl_c_while_a_link_opens_leaves_no_run_directory(
    workers: tuple[RemoteWorkers, Server], tmp_path: Path
) -> None:
    workers[0].close()

    def open_and_close() -> None:
        link = make(tmp_path)
        sys.setprofile(None)  # there are no more points
        link.close()

    for _ in at_each_point(open_and_close):
        assert list(tmp_path.iterdir()) == []


def test_output_of_jobs_goes_to_this_process_or_its_clients(
    workers: tuple[RemoteWorkers, Server], tmp_path: Path
) -> None:
    link, server = workers
    output: Any = (b"w1", Output(7, 1), [b""])
    server.coming = [output]
    assert list(link.receive([FD], 0.0, 1)) == []
    keys: Any = SimpleNamespace(workers=None)
    server.coming = [output]
    assert list(make(tmp_path, Home(tmp_path, keys)).receive([FD], 0.0, 1)) == [output]


def test_workers_are_read_when_polled_or_when_something_is_left(
    workers: tuple[RemoteWorkers, Server],
) -> None:
    link, server = workers
    server.coming = [(b"w1", "first", ()), (b"w2", "second", ())]
    assert [one[1] for one in link.receive([], 0.0, 10)] == []
    assert [one[1] for one in link.receive([FD], 0.0, 1)] == ["first"]
    assert link.deadline == math.inf
    server.pending = True
    assert link.deadline == 0.0
    assert [one[1] for one in link.receive([], 0.0, 10)] == ["second"]


def test_workers_hear_something_while_their_messages_wait_unread(
    workers: tuple[RemoteWorkers, Server],
) -> None:
    link, server = workers
    told: list[float] = []
    for now in (0.0, 9.0, 10.0, 15.0, 20.0, 21.0, 29.0, 31.0):
        server.beat_all = lambda now=now: told.append(now)
        server.coming = [] if now == 21.0 else [(b"w1", "one of many", ())]
        list(link.receive([FD], now, 1))
    assert told == [10.0, 20.0]


def test_workers_hear_something_though_messages_of_others_are_dropped_meanwhile(
    workers: tuple[RemoteWorkers, Server],
) -> None:
    link, server = workers
    told: list[float] = []
    server.pending = True  # more than was read: the server has sent somebody away
    for now in (0.0, 9.0, 10.0):
        server.beat_all = lambda now=now: told.append(now)
        list(link.receive([FD], now, 1))
    assert told == [10.0]


HERE, ELSEWHERE = b"here", b"elsewhere"


class Link:
    """Notes what it is asked for."""

    def __init__(self, *peers: bytes) -> None:
        self.peers = set(peers)
        self.asked: list[tuple[Any, ...]] = []
        self.fd = 5
        self.deadline = 7.0
        self.poller: Any = SimpleNamespace(register=lambda *_: None)
        self.streams: Any = None
        self.keys = "keys"
        self.fails = False
        self.context = SimpleNamespace(_replace=lambda **changed: changed)
        self.take_receipts = lambda: {ELSEWHERE: 3}
        self.acknowledge = lambda receipts: None

    def has(self, peer: bytes) -> bool:
        return peer in self.peers

    def send(self, peer: bytes, message: object, buffers: object) -> None:
        self.asked.append(("send", peer))

    def forget(self, peer: bytes) -> None:
        self.asked.append(("forget", peer))

    def receive(
        self, ready: object, now: float, most: int
    ) -> Iterator[tuple[bytes, str, tuple[()]]]:
        yield from ((peer, "message", ()) for peer in sorted(self.peers)[:most])

    def stop_workers(self) -> None:
        self.asked.append(("stop",))

    def close(self, *, failed: bool) -> None:
        self.asked.append(("close", failed))
        if self.fails:
            raise OSError("it cannot be closed")


@pytest.fixture
def links() -> tuple[MixedWorkers, Link, Link]:
    """Both together, the workers of this machine, and the others."""
    local, remote = Link(HERE), Link(ELSEWHERE)
    given: Any = local, remote, SimpleNamespace(epoch=4, folder=Path("night"))
    return MixedWorkers(*given), local, remote


def test_each_link_is_sent_its_own_messages_and_those_of_both_come_in(
    links: tuple[MixedWorkers, Link, Link],
) -> None:
    mixed, local, remote = links
    message: Any = "message"
    for peer in (HERE, ELSEWHERE, b"gone"):
        mixed.send(peer, message)
    assert local.asked == [("send", HERE)]
    assert remote.asked == [("send", ELSEWHERE), ("send", b"gone")]
    assert [peer for peer, _, _ in mixed.receive([remote.fd], 0.0, 10)] == [HERE, ELSEWHERE]


def test_workers_of_this_process_are_stopped_at_its_end(
    links: tuple[MixedWorkers, Link, Link],
) -> None:
    mixed, local, remote = links
    assert [mixed.lasts(peer) for peer in (HERE, ELSEWHERE)] == [False, True]
    mixed.stop_workers()
    assert local.asked == [("stop",)]
    assert remote.asked == []


def test_the_loop_wakes_for_the_first_of_both_kinds(links: tuple[MixedWorkers, Link, Link]) -> None:
    mixed, local, remote = links
    assert mixed.deadline == 7.0
    remote.deadline = 0.0
    assert mixed.deadline == 0.0
    local.deadline, remote.deadline = 3.0, 7.0
    assert mixed.deadline == 3.0


def test_workers_are_launched_for_this_process_and_connect_by_the_others_keys(
    links: tuple[MixedWorkers, Link, Link],
) -> None:
    mixed, _, remote = links
    context: Any = mixed.context
    assert context == {"epoch": 4, "directory": Path("night")}
    assert {*context} <= {*LaunchContext._fields}
    assert mixed.keys == remote.keys
    assert mixed.take_receipts() == {ELSEWHERE: 3}


def test_both_are_closed_though_one_cannot_be(links: tuple[MixedWorkers, Link, Link]) -> None:
    mixed, local, remote = links
    local.fails = True
    with pytest.raises(OSError, match="cannot be closed"):
        mixed.close(failed=True)
    assert remote.asked == [("close", True)]


@pytest.mark.parametrize(("lease", "answers"), [(60.0, [4, 8]), (12.0, [1, 2, 3, 4, 5, 6, 7, 8])])
def test_a_worker_with_nothing_to_hear_is_answered_each_fourth_beat_or_six_times_in_a_lease(
    tmp_path: Path, lease: float, answers: list[int]
) -> None:
    link = make(tmp_path, lease_seconds=lease)
    session = Session(1 << 20)
    sent: list[bytes] = []
    server: Any = link._server
    server._sessions[b"w1"] = session
    server._send_frames = lambda peer, _: sent.append(peer)
    server.receive = lambda most: iter([(b"w1", Beat(), [])])
    answered = []
    for beat in range(1, 9):
        list(link.receive([link.fd], 0.0, 1))
        answered += [beat] * len(sent)
        sent.clear()
    server.close()
    assert answered == answers
