"""What the core does for one call is the same for few workers, calls and clients as for many; the
lines of its code that are run are counted.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from gridengine.dispatcher.core.events import ClientJoined, ClientLeft, Continue, Launched
from gridengine.dispatcher.core.state_machine import LONG_WAIT_SECONDS
from gridengine.requests import CallsFinished, Submitted, Task
from gridengine.resources import Cores, Memory, Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle
from gridengine.wire.messages import NUMBER_BITS, Assign, Assignment
from tests.support.core_play import Play, function
from tests.support.lines_run import lines_run
from tests.support.tasks import make_task

FEW = {"workers": 50, "tasks": 1_000, "clients": 5}
MANY = {"workers": 1_000, "tasks": 50_000, "clients": 50}
ROUNDS = 100
MORE = 1.25
"""By how much more may be done: a table grows now and then, and shares are compared."""


class Simulation(Play):
    """Workers with one slot each, and clients of different weights with tasks of one call each."""

    def __init__(self, workers: int, tasks: int, clients: int, held: Resource | None) -> None:
        super().__init__(checked=False, max_workers=workers, resources=held)
        self.running: dict[int, tuple[Assignment, bytes]] = {}
        self.finished = 0
        for number in range(workers):
            self.go_on(self.hello(b"%d" % number, pid=number + 1))
        share, demands = tasks // clients, [ANY, ANY, Demand(Memory(2)), Demand(Cores(1))]
        for client in range(1, clients + 1):
            self.play(ClientJoined(client, weight=1.0 + client % 3))
            for start in range(0, share, 10_000):
                first, stop = client << NUMBER_BITS | start, min(share, start + 10_000)
                demand = ANY if held is None else demands[client % 4]
                made = [
                    make_task(first + place, (b"",), demand=demand, submitter=client << NUMBER_BITS)
                    for place in range(stop - start)
                ]
                self.go_on(self.play(Submitted(function(client % 7), made)))

    def go_on(self, effects: list[Any]) -> None:
        """Note what is assigned, until all is."""
        while True:
            for one in effects:
                if isinstance(one, CallsFinished):
                    self.finished += 1
                elif isinstance(message := getattr(one, "message", None), Assign):
                    self.running |= {run.run: (run, one.worker) for run in message.assignments}
            if not self.core.state.deferred:
                return
            effects = self.play(Continue())

    def end_one(self) -> None:
        """End the call that began first."""
        run, worker = self.running.pop(next(iter(self.running)))
        self.now += 0.001
        self.go_on(self.done(run, worker=worker))


def cost(held: Resource | None, **size: int) -> float:
    """Return how many lines are run for one call that ends, and one that begins for it."""
    play = Simulation(held=held, **size)
    assert len(play.core.state.open_tasks) == size["tasks"]
    assert len(play.core.state.runs) == size["workers"]
    for _ in range(ROUNDS):
        play.end_one()
    before = play.finished, play.core.state.last_run

    def some() -> None:
        for _ in range(ROUNDS):
            play.end_one()

    count = lines_run(some)
    assert (play.finished, play.core.state.last_run) == (before[0] + ROUNDS, before[1] + ROUNDS)
    return count / ROUNDS


@pytest.mark.parametrize("held", [None, Cores(1) & Memory(4)], ids=["alike", "shared"])
def test_a_call_costs_the_same_with_many_workers_calls_and_clients(held: Resource | None) -> None:
    few, many = cost(held, **FEW), cost(held, **MANY)
    assert many <= MORE * few


@pytest.mark.parametrize("first", [True, False])
def test_a_client_that_leaves_costs_the_same_beside_many_calls_of_another(first: bool) -> None:
    def cost(others: int) -> int:
        play = Play(checked=False)
        for client in (1, 2) if first else (2, 1):
            play.play(ClientJoined(client))
            who = client << NUMBER_BITS
            made = [
                make_task(who | n, (b"",), submitter=who)
                for n in range(5 if client == 1 else others)
            ]
            play.play(Submitted(function(client), made))
        count = lines_run(lambda: play.play(ClientLeft(1)))
        assert len(play.core.state.open_tasks) == others
        return count

    assert cost(20_000) <= MORE * cost(200)


def test_a_tick_costs_the_same_however_many_calls_have_waited_for_long_ones() -> None:
    def cost(tasks: int) -> int:
        play = Play(checked=False, max_workers=1, lease_seconds=1e6, beat_seconds=1e6)
        play.play(Submitted(function(1), [make_task(number, (b"",)) for number in range(tasks)]))
        play.play(Launched([Handle("7")]))
        play.hello()
        play.later(1.0)
        assert len(play.core.state.runs) == 1
        return lines_run(lambda: play.later(2 * LONG_WAIT_SECONDS))

    assert cost(20_000) <= MORE * cost(200)


def test_a_call_that_waits_for_others_takes_little_memory() -> None:
    play, count, step = Play(checked=False), 2_000, 100
    for start in range(0, count, step):
        numbers = range(start, start + step)
        needs = [(max(one - 1, 0) + count, max(one - 7, 0) + count) for one in numbers]
        made = [
            Task(one, (b"",), after=after, kept=((0, one + count + 1),))
            for one, after in zip(numbers, needs, strict=True)
        ]
        play.play(Submitted(function(0), made))
        del made, needs
        if not start:  # what is there once is not counted
            tracemalloc.start()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / (count - step) < 600
