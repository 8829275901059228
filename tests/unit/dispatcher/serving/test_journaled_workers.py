"""What is noted of workers, and what waits for that."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from gridengine.dispatcher.core.events import RestoredRun, RestoredWorker
from gridengine.dispatcher.serving.journaled_workers import RecordedLink, read_runs, read_workers
from gridengine.journal.dispatcher_file import SCHEMA
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Assign, Assignment, Beat, Cancel, Held, Hello, Message, Stop

HELLO = Hello(1, "1", "3.11", "run", "here", 1, 1, "")


class File:
    """Writes when it is told to."""

    def __init__(self) -> None:
        self.tables = sqlite3.connect(":memory:")
        self.tables.executescript(SCHEMA)
        self.pending: deque[tuple[str, list[Any], Callable[[], object] | None]] = deque()

    def write(
        self, statement: str, rows: Iterable[Any], then: Callable[[], object] | None = None
    ) -> None:
        self.pending.append((statement, list(rows), then))

    def after_later(self, act: Callable[[], object]) -> None:
        act()

    def read(self, statement: str, *values: Any) -> Iterable[tuple[Any, ...]]:
        return self.tables.execute(statement, values).fetchall()

    def commit(self) -> None:
        while self.pending:
            statement, rows, then = self.pending.popleft()
            self.tables.executemany(statement, rows)
            if then is not None:
                then()


class Link:
    context = streams = keys = poller = close = None

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Message]] = []
        self.incoming: list[tuple[bytes, Message, Payload]] = []
        self.receipts: dict[bytes, int] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.lasts: Callable[[bytes], bool] = lambda peer: True
        self.forgotten: list[bytes] = []
        self.forget = self.forgotten.append

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        self.sent.append((peer, message))

    def receive(self, *_: Any) -> Iterator[tuple[bytes, Message, Payload]]:
        yield from self.incoming
        self.incoming = []

    def take_receipts(self) -> dict[bytes, int]:
        receipts, self.receipts = self.receipts, {}
        return receipts

    def acknowledge(self, receipts: dict[bytes, int]) -> None:
        self.acknowledged |= receipts


class Recorded:
    """Such a link, with what is around it."""

    def __init__(self, *, lasting: bool = True) -> None:
        self.file, self.inner = File(), Link()
        self.inner.lasts = lambda peer: lasting
        self.running: dict[int, object] = {}
        self.woken = 0
        self.begin_again()

    def begin_again(self) -> None:
        """Be another process with this file."""
        inner: Any = self.inner
        self.link = RecordedLink(inner, self.file, self.running, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def receive(self, *messages: Message) -> None:
        self.inner.incoming = [(b"w", message, ()) for message in messages]
        assert [one for _, one, _ in self.link.receive((), 0.0, 10)] == list(messages)


def assign(run: int, *, once: bool = False, count: int = 1) -> Assign:
    runs = range(run, run + count)
    return Assign([Assignment(one, 1, b"f", 0, 2, 1, 0, once=once) for one in runs])


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_calls_that_may_run_twice_are_sent_at_once_and_noted(recorded: Recorded) -> None:
    recorded.link.send(b"w", assign(5, count=2))
    assert len(recorded.inner.sent) == 1
    assert recorded.woken == 1
    recorded.receive()
    recorded.file.commit()
    assert read_runs(recorded.file) == [
        RestoredRun(5, b"w", 1, 0, 2, 1),
        RestoredRun(6, b"w", 1, 0, 2, 1),
    ]


def test_calls_that_may_run_once_are_sent_when_that_is_on_disk(recorded: Recorded) -> None:
    recorded.link.send(b"w", assign(5, once=True))
    recorded.receive()
    assert not recorded.inner.sent
    recorded.file.commit()
    assert recorded.inner.sent == [(b"w", assign(5, once=True))]


def test_later_messages_to_a_worker_stay_behind_held_ones(recorded: Recorded) -> None:
    recorded.link.send(b"w", assign(5, once=True))
    recorded.link.send(b"w", Cancel([5], 15))
    recorded.link.send(b"other", Stop())
    assert recorded.inner.sent == [(b"other", Stop())]
    recorded.receive()
    recorded.link.send(b"w", assign(6, once=True))
    recorded.link.send(b"w", Stop())
    recorded.file.commit()
    assert recorded.inner.sent[1:] == [(b"w", assign(5, once=True)), (b"w", Cancel([5], 15))]
    recorded.receive()
    recorded.file.commit()
    assert recorded.inner.sent[3:] == [(b"w", assign(6, once=True)), (b"w", Stop())]


def test_messages_of_workers_are_acknowledged_when_all_before_is_on_disk(
    recorded: Recorded,
) -> None:
    recorded.inner.receipts = {b"w": 3}
    recorded.receive(Beat())
    assert not recorded.inner.acknowledged
    recorded.file.commit()
    assert recorded.inner.acknowledged == {b"w": 3}


def test_a_worker_is_noted_without_its_held_runs(recorded: Recorded) -> None:
    recorded.receive(Hello(1, "1", "3.11", "run", "here", 1, 1, "", 0.0, Held(taken=3)))
    recorded.file.commit()
    [(id, hello)] = [(one.id, one.hello) for one in read_workers(recorded.file)]
    assert (id, hello.host, hello.held) == (b"w", "here", None)


def test_nothing_is_left_of_a_forgotten_worker(recorded: Recorded) -> None:
    recorded.receive(HELLO)
    recorded.link.send(b"w", assign(5))
    recorded.receive()
    recorded.link.send(b"w", assign(6, once=True))
    recorded.link.forget(b"w")
    assert recorded.inner.forgotten == [b"w"]
    recorded.receive()
    recorded.file.commit()
    assert read_workers(recorded.file) == list[RestoredWorker]()
    assert read_runs(recorded.file) == list[RestoredRun]()
    assert (b"w", assign(6, once=True)) not in recorded.inner.sent


def test_a_forgotten_worker_is_deleted_behind_its_results(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a dispatcher that is killed between makes a call again that may run only once."""
    later: list[Callable[[], object]] = []
    monkeypatch.setattr(recorded.file, "after_later", later.append)
    recorded.receive(HELLO)
    recorded.link.send(b"w", assign(5, once=True))
    recorded.receive()
    recorded.link.forget(b"w")
    recorded.receive()
    recorded.file.commit()
    assert [one.number for one in read_runs(recorded.file)] == [5]
    for act in later:
        act()
    recorded.file.commit()
    assert read_runs(recorded.file) == list[RestoredRun]()


@pytest.mark.parametrize("earlier", [False, True])
def test_batches_that_have_ended_are_deleted_now_and_then(
    recorded: Recorded, earlier: bool
) -> None:
    for run in range(2000):
        recorded.link.send(b"w", assign(run))
        if not earlier:
            recorded.running[run] = None
            recorded.running.pop(run - 10, None)
            recorded.receive()
    if earlier:
        recorded.receive()
        recorded.file.commit()
        recorded.running.clear()
        recorded.begin_again()
        recorded.link.send(b"w", assign(1 << 40))
        recorded.link.flush()
    recorded.file.commit()
    assert len(read_runs(recorded.file)) < (2 if earlier else 1100)


def test_only_single_run_calls_are_noted_of_workers_that_end_with_the_dispatcher() -> None:
    recorded = Recorded(lasting=False)
    recorded.receive(HELLO)
    recorded.link.send(b"w", assign(5))
    recorded.link.send(b"w", assign(6, once=True))
    recorded.receive()
    recorded.file.commit()
    assert [one.number for one in read_runs(recorded.file)] == [6]
    assert not read_workers(recorded.file)
