"""An agent under random work, cancelling and killing: every run has one end, and every call before
it was answered once and in order.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import time
from collections.abc import Iterator

import pytest

from gridengine.serialize import pickling
from gridengine.serialize.payload import SINGLE, Payload
from gridengine.wire.messages import Assign, Assignment, Cancel, Crashed, Message, Results, Returned
from tests.support.agent_driver import Dispatcher, start

RUNS = 1500
IN_FLIGHT = 60


def misbehave(x: int) -> int:
    chance = random.random()
    if chance < 0.02:
        os._exit(1)
    if chance < 0.04:
        os.kill(os.getpid(), signal.SIGKILL)
    if chance < 0.05:
        raise ValueError(x)
    if chance < 0.06:
        time.sleep(random.random() * 0.3)
    return x


class Book:
    """Of each run the next call to be answered, the one to stop before, and how the run ended.
    Checks each word of the agent against it.
    """

    def __init__(self) -> None:
        self.next: dict[int, int] = {}
        self.stop: dict[int, int] = {}
        self.ends: dict[int, str] = {}
        self.cancelled: set[int] = set()

    def receive(self, message: Message, buffers: Payload) -> None:
        match message:
            case Results(results=results):
                for result in results:
                    assert result.run not in self.ends
                    assert result.start == self.next[result.run]
                    self.next[result.run] = result.stop
                    if result.stop == self.stop[result.run]:
                        self.ends[result.run] = "done"
            case Crashed(run=run, index=index, reason=reason):
                assert run not in self.ends
                assert self.next[run] <= index < self.stop[run] or (
                    index == -1 and run in self.cancelled
                )
                self.ends[run] = reason
            case Returned(runs=runs):
                for run in runs:
                    assert run not in self.ends
                    assert run not in self.cancelled
                    self.ends[run] = "returned"

    def under_way(self) -> list[int]:
        return [run for run in self.stop if run not in self.ends]


def batch(dice: random.Random, function: bytes, book: Book) -> tuple[Assign, list[bytes]]:
    assignments, buffers = [], []
    for _ in range(dice.randrange(1, 12)):
        run, count = len(book.stop) + 1, dice.randrange(1, 30)
        payload = pickling.dump_calls(list(range(count)))
        begin = dice.randrange(count)
        book.next[run], book.stop[run] = begin, count
        assignments.append(
            Assignment(
                run=run,
                task=run,
                function=function,
                start=begin,
                stop=count,
                attempt=0,
                form=SINGLE,
                watched=dice.random() < 0.1,
                timeout=0.05 if dice.random() < 0.3 else None,
                buffers=len(payload),
            )
        )
        buffers += map(bytes, payload)
    return Assign(assignments), buffers


def disturb(dice: random.Random, dispatcher: Dispatcher, book: Book) -> None:
    chosen = [run for run in book.under_way() if dice.random() < 0.1]
    if chosen and dice.random() < 0.1:
        book.cancelled.update(chosen)
        dispatcher.agent.handle(Cancel(chosen, dice.choice([signal.SIGTERM, signal.SIGKILL])))
    pids = [one.pid for one in dispatcher.agent.pool.runners.values() if one.pid]
    if pids and dice.random() < 0.01:
        with contextlib.suppress(ProcessLookupError):
            os.kill(dice.choice(pids), signal.SIGKILL)


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    made = start(slots=3)
    yield made
    made.agent.close()


@pytest.mark.parametrize("seed", range(2))
def test_every_run_ends_once_whatever_happens(dispatcher: Dispatcher, seed: int) -> None:
    dice, book = random.Random(seed), Book()
    dispatcher.receive = book.receive
    function = dispatcher.define(misbehave)
    while len(book.stop) < RUNS or book.under_way():
        if len(book.stop) < RUNS and len(book.under_way()) < IN_FLIGHT:
            dispatcher.agent.handle(*batch(dice, function, book))
        disturb(dice, dispatcher, book)
        select.select([dispatcher.agent], [], [], 0.01)
        dispatcher.clock.advance(0.01)
        dispatcher.agent.tick(dispatcher.clock.monotonic())
        dispatcher.agent.on_ready()
    assert dispatcher.agent.broken == ""
    assert {"done", "crash", "cancelled", "returned"} <= set(book.ends.values())
