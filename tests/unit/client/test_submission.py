"""How much of many calls is held while they wait for a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import gridengine
from gridengine.client import submission
from gridengine.serialize.payload import size_of
from gridengine.status.snapshot import Snapshot
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler

SIZE, CALLS, RUNNING, WINDOW = 300_000, 60, 2, 10


class SlowDispatcher(FakeDispatcher):
    """It has two batches running, and ends one whenever somebody looks at its state, or waits for
    the last of `CALLS`.
    """

    def __init__(self) -> None:
        super().__init__(on_submit=SlowDispatcher.note)
        self.peak = 0

    def note(self) -> None:
        left = [entry for entry in self.entries if entry.task.id not in self.settled]
        self.peak = max(self.peak, sum(size_of(entry.task.payload) for entry in left))
        if len(self.entries) == CALLS:
            for entry in left:
                self.run(entry)

    def snapshot(self) -> Snapshot:
        for entry in self.entries:
            if entry.task.id not in self.settled:
                self.run(entry)
                break
        return Snapshot(running=RUNNING, batches=dict.fromkeys(range(100), RUNNING))


def arguments() -> Iterable[bytes]:
    return (number.to_bytes(1, "little") * SIZE for number in range(CALLS))


def first_of(data: bytes) -> int:
    return data[0]


RUNS: dict[str, Callable[[Any], Iterable[int]]] = {
    "map": lambda place: gridengine.map(first_of, list(arguments()), scheduler=place),
    "map of a generator": lambda place: gridengine.map(first_of, arguments(), scheduler=place),
    "with errors": lambda place: gridengine.map(
        first_of, arguments(), scheduler=place, reraise=False
    ),
    "imap": lambda place: gridengine.imap(first_of, arguments(), scheduler=place),
    "Executor.map": lambda place: gridengine.Executor(scheduler=place).map(first_of, arguments()),
    "Pool.map": lambda place: gridengine.Pool(scheduler=place).map(first_of, arguments()),
    "Pool.imap": lambda place: gridengine.Pool(scheduler=place).imap(first_of, arguments()),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_waiting_calls_are_bounded(
    run: Callable[[Any], Iterable[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "WINDOW_BYTES", WINDOW * SIZE)
    dispatcher = SlowDispatcher()
    assert list(run(FakeScheduler(dispatcher))) == list(range(CALLS))
    assert RUNNING * SIZE < dispatcher.peak < (WINDOW + RUNNING + 2) * SIZE


def test_there_is_always_room_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "WINDOW_BYTES", 0)
    dispatcher = SlowDispatcher()
    result = gridengine.map(first_of, arguments(), scheduler=FakeScheduler(dispatcher))
    assert result == list(range(CALLS))


def test_an_array_that_all_calls_are_given_is_held_once() -> None:
    np = pytest.importorskip("numpy")
    dispatcher = SlowDispatcher()
    array = np.ones(SIZE)
    result = gridengine.map(np.sum, [array] * CALLS, scheduler=FakeScheduler(dispatcher))
    assert result == [SIZE] * CALLS
    needed = {one for entry in dispatcher.entries for one in entry.task.needs}
    dispatcher.entries.clear()  # else it and its listener, a circle, would wait for the collector
    held = dispatcher.peak + sum(size_of(one.payload) for one in needed)
    assert held < 2.1 * array.nbytes
