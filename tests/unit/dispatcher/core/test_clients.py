"""Clients that share a dispatcher take turns by weight, played on the core."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gridengine.dispatcher.core.calls import OpenTask
from gridengine.dispatcher.core.events import ClientJoined, ClientLeft, Launch, Launched, Send
from gridengine.requests import CallsFinished, Submitted, Task, TasksCancelled, Told
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle
from gridengine.status.snapshot import ClientCounts
from gridengine.wire.messages import (
    NUMBER_BITS,
    Assignment,
    Cancel,
    Deliver,
    Goodbye,
    Recall,
    Returned,
    Shortened,
    Stop,
)
from tests.support.core_play import SQUARE, Play, assignment_of, function
from tests.support.tasks import make_task

WAYS = ["alike", "shared", "demands", "submitters", "submitters that share"]
"""Without demands, with workers that requests share, and with each client asking for another."""


class ClientPlay(Play):
    """A worker, and clients; or submitters of one client in their place."""

    def __init__(self, how: str = "alike", slots: int = 4, **policy: Any) -> None:
        held = None if how in ("alike", "submitters") else Cores(slots) & Memory(1000)
        super().__init__(resources=held, slots=slots, **policy)
        self.how = how
        self.bits = 0 if how.startswith("submitters") else NUMBER_BITS
        self.hello(slots=slots)

    def joined(self, *numbers: int, weight: float = 1.0) -> None:
        for number in numbers if self.bits else ():
            self.play(ClientJoined(number, weight))

    def hand_in(self, client: int, *counts: int, submitter: int = 0, **options: Any) -> list[Task]:
        demand = Demand(Cores(1) & Memory(client + 1)) if self.how == "demands" else ANY
        options = {"demand": demand, **options}
        who = client << self.bits | submitter
        return self.submit(*counts, function=function(client), submitter=who, **options)

    def running_clients(self) -> dict[int, int]:
        """Return how many runs of each client workers have."""
        tasks = [run.span.open_task for run in self.core.state.runs.values()]
        return dict(Counter(task.options.submitter >> self.bits for task in tasks))

    def end_first(self, client: int | None = None, seconds: float = 1.0) -> None:
        """End the run that was handed out first, of this client."""
        runs = map(assignment_of, self.core.state.runs.values())
        self.done(
            next(one for one in runs if client in (None, self.client_of(one))), seconds=seconds
        )

    def served(self, batches: int) -> Counter[int]:
        """End so many runs in their order; return whose were assigned for them."""
        seen: Counter[int] = Counter()
        for _ in range(batches):
            self.end_first()
            seen.update(self.client_of(one) for one in self.assigned())
        return seen

    def client_of(self, one: Assignment) -> int:
        return self.core.state.open_tasks[one.task].options.submitter >> self.bits

    def order(self, what: Callable[[OpenTask], int]) -> list[int]:
        """Have all end, of which one runs at a time; return what their tasks have for this."""
        seen: list[int] = []
        while self.core.state.runs:
            seen += [what(run.span.open_task) for run in self.core.state.runs.values()]
            self.end_first()
        return seen


@pytest.mark.parametrize("how", WAYS)
def test_ten_calls_of_one_do_not_wait_behind_a_million_of_another(how: str) -> None:
    play = ClientPlay(how)
    play.joined(1, 2)
    play.hand_in(1, 1_000_000)
    play.hand_in(2, 10)
    play.end_first()
    assert play.running_clients() == {1: 3, 2: 1}


@pytest.mark.parametrize("how", WAYS)
def test_clients_with_one_slot_alternate(how: str) -> None:
    play = ClientPlay(how, slots=1)
    play.joined(1, 2, 3)
    for client in (1, 2, 3):
        play.hand_in(client, 100)
    order = []
    for _ in range(12):
        order += list(play.running_clients())
        play.end_first()
    assert Counter(order) == {1: 4, 2: 4, 3: 4}


@pytest.mark.parametrize(
    ("how", "weight"), [*((how, 1.0) for how in WAYS), *((how, 2.0) for how in WAYS[:3])]
)
def test_a_second_client_soon_has_its_share_by_its_weight(how: str, weight: float) -> None:
    play = ClientPlay(how, slots=6)
    play.joined(1)
    play.joined(2, weight=weight)
    play.hand_in(1, 1000)
    play.hand_in(2, 1000)
    for _ in range(12):
        play.end_first()
    for _ in range(20):
        assert play.running_clients() == ({1: 2, 2: 4} if weight > 1 else {1: 3, 2: 3})
        play.end_first()


@pytest.mark.parametrize("how", WAYS)
def test_the_share_is_of_workers_and_not_of_batches(how: str) -> None:
    """Calls of one take a hundred times as long: it gets no more workers for that."""
    play = ClientPlay(how)
    play.joined(1, 2)
    play.hand_in(1, 1000)
    play.hand_in(2, 1000)
    for _ in range(4):
        play.end_first()
    for _ in range(100):
        play.end_first(2)
        assert play.running_clients() == {1: 2, 2: 2}


@pytest.mark.parametrize("priority", [0, 100])
def test_a_client_has_one_turn_whatever_its_submitters_and_priorities(
    priority: int,
) -> None:
    play = ClientPlay(slots=1)
    play.joined(1, 2)
    for submitter in range(50):
        play.hand_in(1, 10, submitter=submitter, priority=priority)
    play.hand_in(2, 100)
    assert play.served(40) == {1: 20, 2: 20}


def test_the_dispatchers_own_process_has_turns_as_clients_have() -> None:
    play = ClientPlay(slots=1)
    play.joined(1)
    play.hand_in(0, 100)
    play.hand_in(1, 100)
    assert play.served(20) == {0: 10, 1: 10}


def test_with_many_clients_all_have_turns() -> None:
    play = ClientPlay(slots=2)
    many = range(1, 151)
    play.joined(*many)
    for client in many:
        play.hand_in(client, 5)
    seen = Counter(play.running_clients()) + play.served(300)
    assert set(seen) == set(many)
    assert sorted(seen.values()) == [2] * 149 + [4], "the first had both slots before others came"


@pytest.mark.parametrize("how", WAYS)
def test_a_share_that_one_client_does_not_want_goes_to_the_others(how: str) -> None:
    play = ClientPlay(how)
    play.joined(1, 2)
    play.hand_in(1, 100)
    play.hand_in(2, 1)
    for _ in range(8):
        play.end_first()
    assert play.running_clients() == {1: 4}


@pytest.mark.parametrize("how", WAYS)
def test_workers_make_way_for_a_client_without_a_share(how: str) -> None:
    play = ClientPlay(how, slots=1)
    play.joined(1, 2, 3)
    play.hand_in(1, 1)
    play.end_first(seconds=1e-3)
    play.hand_in(1, 1_000_000)
    first, second = play.core.state.runs.values()
    play.hand_in(2, 10)
    assert [message.runs for message in play.sent(Recall)] == [[first.number, second.number]]
    play.hand_in(3, 10)
    assert play.sent(Recall) == [], "just now they were asked"
    play.say(Returned([second.number]))
    play.say(Shortened(first.number, 1))
    play.end_first(seconds=1e-3)
    assert set(play.running_clients()) - {1}


def test_calls_that_calls_make_are_of_their_client() -> None:
    play = ClientPlay(slots=1)
    play.joined(1, 2)
    play.hand_in(1, 1)
    [parent] = play.core.state.runs
    tasks = [make_task(1 << 50 | number, (b"calls",), submitter=1 << 50) for number in range(3)]
    play.play(Submitted(SQUARE, tasks, parent=parent))
    assert play.core.state.clients[1].unsettled == 4


def test_a_client_that_leaves_ends_its_calls() -> None:
    play = ClientPlay(slots=1)
    play.joined(1, 2)
    [mine] = play.hand_in(1, 3)
    [others] = play.hand_in(2, 3)
    play.play(ClientLeft(1))
    assert [(one.task, one.start, one.stop) for one in play.seen(CallsFinished)] == [
        (mine.id, 1, 3)
    ]
    [cancel] = play.sent(Cancel)
    assert cancel.signal == signal.SIGTERM
    play.end_first()
    assert play.running_clients() == {2: 1}
    assert set(play.core.state.clients) == {0, 2}
    assert set(play.core.state.open_tasks) == {others.id}


def test_a_client_that_comes_back_while_its_calls_end_may_have_another_weight() -> None:
    play = ClientPlay(slots=1)
    play.joined(1)
    task = make_task(7, (b"calls",), 2, submitter=1 << NUMBER_BITS)
    play.play(Submitted(SQUARE, [task]))
    play.play(ClientLeft(1))
    play.joined(1, weight=3.0)
    counts = play.core.state.snapshot().clients[1]
    assert counts == ClientCounts(weight=3.0, waiting=0, running=1, done=0, failed=0, cancelled=1)


@pytest.mark.parametrize(("number", "weight"), [(0, 1.0), (1, 0.0), (1, -1.0), (1, float("nan"))])
def test_a_client_has_a_number_and_a_weight_above_zero(number: int, weight: float) -> None:
    with pytest.raises(ValueError, match="cannot have"):
        Play().play(ClientJoined(number, weight))


def test_a_snapshot_has_the_states_of_each_client_s_calls() -> None:
    play = ClientPlay(slots=1)
    play.joined(1, 2)
    play.hand_in(1, 3)
    [doomed] = play.hand_in(2, 2)
    play.end_first(1)
    play.play(TasksCancelled([], signal.SIGTERM, [(doomed.id, 1, 2)]))
    assert dict(play.core.state.snapshot().clients) == {
        0: ClientCounts(weight=1.0, waiting=0, running=0, done=0, failed=0),
        1: ClientCounts(weight=1.0, waiting=2, running=0, done=1, failed=0),
        2: ClientCounts(weight=1.0, waiting=0, running=1, done=0, failed=0, cancelled=1),
    }


def test_a_worker_of_one_demand_leaves_for_a_client_without_workers() -> None:
    play = Play(pooled=True, max_workers=2)
    for number in (1, 2):
        play.play(ClientJoined(number))
    mine, others = Demand(Memory(1)), Demand(Memory(2))
    play.submit(1000, submitter=1 << NUMBER_BITS, demand=mine)
    play.play(Launched([Handle("1", "/r/1.log"), Handle("2", "/r/2.log")], mine))
    for name in (b"1", b"2"):
        play.hello(name, log=f"/r/{name.decode()}.log")
    play.submit(10, submitter=2 << NUMBER_BITS, demand=others)
    assert not play.seen(Launch)
    play.later(0.25, beats=[b"1", b"2"])
    [leaves] = [one for one in play.core.state.workers.values() if one.draining]
    play.later(0.25, beats=[b"1", b"2"])
    assert sum(one.draining for one in play.core.state.workers.values()) == 1
    [run] = leaves.runs.values()
    task = run.span.open_task
    play.done(
        Assignment(run.number, task.id, b"", run.span.start, run.span.stop, 1, 0), worker=leaves.id
    )
    assert [one.worker for one in play.seen(Send) if isinstance(one.message, Stop)] == [leaves.id]
    play.say(Goodbye("told to"), worker=leaves.id)
    assert [(one.count, one.demand) for one in play.seen(Launch)] == [(1, others)]


# ------------------------------------------------------------------ priorities


def test_a_client_s_calls_of_a_higher_priority_come_first() -> None:
    play = ClientPlay(slots=1)
    for priority in (0, -5, 3, 7, 3):
        play.submit(1, priority=priority)
    assert play.order(lambda one: one.id) == [1, 4, 3, 5, 2], (
        "the first had begun before the others came"
    )


def test_submitters_of_one_priority_take_turns() -> None:
    play = ClientPlay(slots=1)
    play.submit(1)
    for submitter in (1, 2):
        play.submit(10, submitter=submitter, priority=1)
    play.submit(10, submitter=3)
    assert play.order(lambda one: one.options.submitter) == [0, *[1, 2] * 10, *[3] * 10]


@pytest.mark.parametrize("clients", [0, 2])
def test_across_demands_a_higher_priority_comes_first(clients: int) -> None:
    play = ClientPlay("shared", slots=1)
    play.joined(*range(2, 2 + clients))
    for number in range(3):
        for priority, gigabytes in ((0, 1), (5, 2)):
            play.submit(1, priority=priority, demand=Demand(Memory(gigabytes)), first=number)
    assert play.order(lambda one: one.options.priority) == [0, 5, 5, 5, 0, 0]


def test_cancelled_calls_are_found_among_many_priorities() -> None:
    play = ClientPlay(slots=1)
    tasks = [one for number in range(100) for one in play.submit(1, priority=number)]
    play.play(TasksCancelled([one.id for one in tasks[1:-1]], signal.SIGTERM))
    assert len(play.seen(CallsFinished)) == 98
    play.end_first()
    assert [one.task for one in play.assigned()] == [tasks[-1].id]


# ------------------------------------------------------------------ calls in progress are told


def test_only_a_call_in_progress_hears_the_messages_of_its_client() -> None:
    play = Play()
    [one] = play.submit(1, watched=True)
    assert play.play(Told(one.id, [b"early"])) == []
    play.hello()
    [run] = play.assigned()
    play.play(Told(one.id, [b"head", b"rest"]))
    [sent] = play.seen(Send)
    assert (sent.message, sent.buffers) == (Deliver(run.run, 2), [b"head", b"rest"])
    play.done(run)
    assert play.play(Told(one.id, [b"late"])) == []
