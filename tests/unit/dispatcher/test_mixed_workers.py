"""Workers of this machine and others beside each other: which of the two links has whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.dispatcher import remote_workers
from gridengine.dispatcher.remote_workers import MixedWorkers
from gridengine.schedulers.launcher import LaunchContext

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
def links(monkeypatch: pytest.MonkeyPatch) -> tuple[MixedWorkers, Link, Link]:
    """Both together, the workers of this machine, and the others."""
    local, remote = Link(HERE), Link(ELSEWHERE)
    monkeypatch.setattr(remote_workers, "LocalWorkers", lambda *_, **__: local)
    monkeypatch.setattr(remote_workers, "RemoteWorkers", lambda *_, **__: remote)
    parts: Any = None
    home: Any = SimpleNamespace(epoch=4, folder=Path("night"))
    made = MixedWorkers(parts, run_id="run", settings=parts, wake=parts, home=home, clock=parts)
    return made, local, remote


def test_each_is_sent_what_is_its_own_and_messages_of_both_come_in(
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
