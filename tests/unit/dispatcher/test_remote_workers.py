"""Workers elsewhere: when their socket is asked for what has come."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.dispatcher import remote_workers
from gridengine.dispatcher.remote_workers import RemoteWorkers
from gridengine.dispatcher.run_directory import Home
from gridengine.settings.schema import Settings
from gridengine.wire.messages import Output

FD = 5


class Server:
    """A socket with messages, whose descriptor is polled as readable but once."""

    fd, keys, pending = FD, None, False

    def __init__(self, **_: object) -> None:
        self.coming: list[tuple[bytes, str, tuple[()]]] = []
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
    context = SimpleNamespace(directory=tmp_path)
    monkeypatch.setattr(remote_workers, "write_connection", lambda *_: context)
    return make(), server


def make(home: Home | None = None) -> RemoteWorkers:
    scheduler: Any = SimpleNamespace(local=False, max_workers=3, transport="tcp")
    wake = print
    return RemoteWorkers(scheduler, run_id="run", settings=Settings(), wake=wake, home=home)


def test_output_of_jobs_goes_to_this_process_or_its_clients(
    workers: tuple[RemoteWorkers, Server], tmp_path: Path
) -> None:
    link, server = workers
    output: Any = (b"w1", Output(7, 1), [b""])
    server.coming = [output]
    assert list(link.receive([FD], 0.0, 1)) == []
    keys: Any = SimpleNamespace(workers=None)
    server.coming = [output]
    assert list(make(Home(tmp_path, keys)).receive([FD], 0.0, 1)) == [output]


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
