"""A dispatcher that is killed at any moment and started again, with its journal: each call is
settled once for good, and none begins twice that may run only once.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gridengine.dispatcher.core.events import (
    CancelRequested,
    Continue,
    Event,
    Lost,
    Rebalance,
    Received,
    Restored,
    Send,
    Submitted,
    Tick,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.core.tasks import CallsFinished, Task
from gridengine.dispatcher.worker_record import RecordedLink, read_runs, read_workers
from gridengine.journal.dispatcher_file import SCHEMA
from gridengine.wire.messages import (
    Beat,
    Hello,
)
from tests.support.core_play import SQUARE
from tests.support.returning_workers import Link, Worker

ROUNDS, STEPS = 300, 400
TOLD = "CREATE TABLE told (task INTEGER, start INTEGER, stop INTEGER)"


class File:
    """A file of tables, of which only what is committed outlives its dispatcher."""

    def __init__(self) -> None:
        self.tables = sqlite3.connect(":memory:")
        self.tables.executescript(SCHEMA + TOLD)
        self.pending: deque[tuple[str, list[Any], Callable[[], object] | None]] = deque()

    def write(
        self, statement: str, rows: Iterable[Any], then: Callable[[], object] | None = None
    ) -> None:
        self.pending.append((statement, list(rows), then))

    def after_later(self, act: Callable[[], object]) -> None:
        act()

    def read(self, statement: str, *values: Any) -> Iterable[tuple[Any, ...]]:
        return self.tables.execute(statement, values).fetchall()

    def commit(self, most: int) -> None:
        for _ in range(min(most, len(self.pending))):
            statement, rows, then = self.pending.popleft()
            self.tables.executemany(statement, rows)
            if then is not None:
                then()


class World:
    """A dispatcher, process after process, with its journal and its workers."""

    def __init__(self) -> None:
        self.file = File()
        self.tasks: dict[int, Task] = {}
        self.workers: dict[bytes, Worker] = {}
        self.begun: Counter[tuple[int, int]] = Counter()
        self.now, self.epoch = 100.0, 0
        self.start()

    def start(self) -> None:
        """Be the next process, which has what is committed of the journal."""
        self.epoch += 1
        self.file.pending.clear()
        policy = Policy(
            max_workers=4, epoch=self.epoch, version="1", python="3.11", run_id="run", pooled=True
        )
        self.core = StateMachine(policy)
        self.link = Link(self.workers)
        self.recorded = RecordedLink(
            self.link,  # type: ignore[arg-type]
            self.file,
            self.core.state.runs,
            lambda: None,
        )
        settled = self.settled()
        left = [
            one
            for one in self.tasks.values()
            if sum(stop - start for start, stop in settled.get(one.id, ())) < one.count
        ]
        self.play(
            Restored(
                [Submitted(SQUARE, [one]) for one in left],
                settled,
                read_runs(self.file),
                read_workers(self.file),
            )
        )

    def settled(self) -> dict[int, list[tuple[int, int]]]:
        """What is settled for good of each task."""
        found: dict[int, list[tuple[int, int]]] = {}
        for task, start, stop in self.file.read("SELECT * FROM told ORDER BY task, start"):
            found.setdefault(task, []).append((start, stop))
        return found

    def play(self, event: Event) -> None:
        for effect in self.core.handle(event, self.now):
            if isinstance(effect, Send):
                self.recorded.send(effect.worker, effect.message, effect.buffers)
            elif isinstance(effect, Lost):
                self.recorded.forget(effect.worker)
            elif isinstance(effect, CallsFinished):
                outcome = effect.task, effect.start, effect.stop
                self.file.write("INSERT INTO told VALUES (?, ?, ?)", [outcome])
        if self.core.state.deferred:
            self.play(Continue())

    def deliver(self, worker: Worker) -> None:
        """Have the dispatcher get the next message of a worker, or its sign of life."""
        number, message, buffers = worker.out.popleft() if worker.out else (0, Beat(), ())
        known = self.link.known.get(worker.id) == worker.session
        if not known and type(message) is not Hello:
            while worker.inbox and worker.alive:  # it came before it is asked who it is
                worker.handle()
            worker.rejoin(self.epoch)
            return
        self.link.known[worker.id] = worker.session
        if number:
            self.link.receipts[worker.id] = number
        self.link.incoming.append((worker.id, message, buffers))
        for peer, said, payload in self.recorded.receive((), self.now, 10):
            self.play(Received(peer, said, tuple(payload)))  # type: ignore[arg-type]

    def living(self) -> list[Worker]:
        return [one for one in self.workers.values() if one.alive]

    # what may happen

    def submit(self, choice: int) -> None:
        task = Task(
            len(self.tasks) + 1, (b"calls",), choice % 6 + 1, retries=0 if choice % 2 else 2
        )
        self.tasks[task.id] = task
        self.play(Submitted(SQUARE, [task]))

    def connect(self, choice: int) -> None:
        if len(self.living()) < 4:
            id = f"w{len(self.workers)}".encode()
            self.workers[id] = Worker(id, self.begun)

    def to_dispatcher(self, choice: int) -> None:
        if living := self.living():
            self.deliver(living[choice % len(living)])

    def to_worker(self, choice: int) -> None:
        if waiting := [one for one in self.living() if one.inbox]:
            waiting[choice % len(waiting)].handle()

    def step(self, choice: int) -> None:
        if living := self.living():
            living[choice % len(living)].step(choice)

    def commit(self, choice: int) -> None:
        self.recorded.flush()
        self.file.commit(choice)

    def kill(self, choice: int) -> None:
        for worker in self.workers.values():
            worker.out.clear()
            while len(worker.inbox) > choice % 4:  # what is on its way may still arrive
                worker.inbox.pop()
        self.start()

    def lose(self, choice: int) -> None:
        if living := self.living():
            living[choice % len(living)].alive = False

    def wait(self, choice: int) -> None:
        self.now += choice % 40
        self.play(Tick())

    def rebalance(self, choice: int) -> None:
        self.play(Rebalance())

    def cancel(self, choice: int) -> None:
        task = choice % (len(self.tasks) + 1)
        if task in self.core.state.open_tasks:
            self.play(CancelRequested([task], 15))

    def finish(self) -> None:
        """Have all go on until nothing is left to do."""
        for _ in range(ROUNDS):
            if not self.core.state.open_tasks and not self.file.pending:
                return
            if not self.living():
                self.connect(0)
            for worker in self.living():
                while worker.inbox and worker.alive:
                    worker.handle()
                worker.step(0)
                self.deliver(worker)
            self.commit(1000)
            self.now += 1
            self.play(Tick())
            self.play(Rebalance())
        raise AssertionError(f"it does not end: {self.core.state.open_tasks}")


ACTIONS: Sequence[Callable[[World, int], None]] = (
    World.submit,
    World.connect,
    *[World.to_dispatcher] * 4,
    *[World.to_worker] * 4,
    *[World.step] * 4,
    *[World.commit] * 3,
    World.kill,
    World.lose,
    World.wait,
    World.rebalance,
    World.cancel,
)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=True), st.integers(0, STEPS))
def test_whenever_it_is_killed_each_call_is_settled_once_and_begins_once_where_that_is_asked_for(
    random: Random, steps: int
) -> None:
    world = World()
    world.connect(0)
    for number in range(4):
        world.submit(number + 2)
    for _ in range(steps):
        random.choice(ACTIONS)(world, random.randrange(1000))
    world.finish()
    assert {task: _calls(ranges) for task, ranges in world.settled().items()} == {
        one.id: list(range(one.count)) for one in world.tasks.values()
    }
    assert all(count == 1 for count in world.begun.values())
    assert not world.core.state.runs


def _calls(ranges: list[tuple[int, int]]) -> list[int]:
    return sorted(call for start, stop in ranges for call in range(start, stop))
