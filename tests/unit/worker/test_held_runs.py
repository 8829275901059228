"""What a worker keeps for a dispatcher that is killed and started again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gridengine.serialize.payload import Payload
from gridengine.wire.messages import (
    CANCELLED,
    VALUES,
    Assign,
    Assignment,
    Beat,
    Crashed,
    Goodbye,
    HeldRun,
    Hello,
    Message,
    NestedHello,
    Output,
    Result,
    Results,
    Returned,
    Shortened,
)
from gridengine.worker.held_runs import HeldRuns

HELLO = Hello(1, "1", "3.11", "run", "here", 1, 1, "")


class Client:
    """Notes what is sent; says that so much of it is acknowledged."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = 0
        self.messages: list[tuple[Message, Payload]] = []

    def send(self, message: Message, buffers: Payload = ()) -> None:
        self.sent += 1
        self.messages.append((message, buffers))

    def begin_again(self) -> None:
        self.sent = self.acknowledged = 0
        self.messages.clear()


class Agent:
    def __init__(self) -> None:
        self.under_way: Mapping[int, int] = {}
        self.nested_ended = False

    def allocations(self) -> list[int]:
        return [3]

    def defined(self) -> list[bytes]:
        return [b"square"]

    def end_nested_calls(self) -> None:
        self.nested_ended = True

    def forget_output(self, under_way: Mapping[int, int]) -> None:
        self.under_way = under_way


class Held:
    """Such runs, with what is around them."""

    def __init__(self, *batches: Sequence[tuple[int, int, int]], allocation: int = 0) -> None:
        self.client, self.agent = Client(), Agent()
        self.runs = HeldRuns(self.client, lambda: HELLO)  # type: ignore[arg-type]
        for batch in batches:
            items = [Assignment(run, 1, b"f", start, stop, 1, 0) for run, start, stop in batch]
            self.runs.assigned(Assign(items, allocation))

    def send(self, message: Message, *buffers: bytes) -> None:
        self.runs.send(message, buffers)

    def acknowledge(self) -> None:
        self.client.acknowledged = self.client.sent

    def introduce(self) -> Any:
        """Return what it says that it has."""
        self.runs.introduce(self.agent)  # type: ignore[arg-type]
        hello, _ = self.client.messages[0]
        assert isinstance(hello, Hello)
        return hello.held

    def introduced(self) -> list[list[HeldRun]]:
        """The batches that it says that it has."""
        return [list(batch.runs) for batch in self.introduce().batches]

    def sent_again(self) -> list[Message]:
        return [message for message, _ in self.client.messages[1:]]


def values(run: int, start: int, stop: int) -> Results:
    return Results([Result(run, start, stop, VALUES, 1.0)])


def test_a_worker_lists_the_unanswered_calls_of_each_batch() -> None:
    held = Held([(1, 0, 10), (2, 10, 12)], [(3, 12, 20)])
    assert held.introduced() == [
        [HeldRun(1, 1, 0, 10), HeldRun(2, 1, 10, 12)],
        [HeldRun(3, 1, 12, 20)],
    ]


def test_a_worker_lists_its_allocations_and_definitions() -> None:
    held = Held([(1, 0, 10)], allocation=3)
    has = held.introduce()
    assert (has.batches[0].allocation, has.allocations) == (3, [3])
    assert (has.defined, has.taken) == ([b"square"], 10)
    assert held.agent.nested_ended


def test_acknowledged_answers_are_not_held() -> None:
    held = Held([(1, 0, 10), (2, 10, 12)])
    held.send(values(1, 0, 4))
    held.send(values(2, 10, 12))
    held.acknowledge()
    assert held.introduced() == [[HeldRun(1, 1, 4, 10)]]
    assert held.sent_again() == []


def test_unacknowledged_answers_are_held_and_sent_again() -> None:
    held = Held([(1, 0, 10)])
    held.send(values(1, 0, 4))
    held.acknowledge()
    held.send(values(1, 4, 10), b"squares")
    assert held.introduced() == [[HeldRun(1, 1, 4, 10)]]
    assert held.sent_again() == [values(1, 4, 10)]
    assert held.client.messages[1][1] == (b"squares",)


def test_repeated_answers_are_kept_until_acknowledged_anew() -> None:
    held = Held([(1, 0, 10)])
    held.send(values(1, 0, 10))
    held.introduced()
    assert held.introduced() == [[HeldRun(1, 1, 0, 10)]]
    held.acknowledge()
    held.runs.settle()
    assert held.introduced() == []


@pytest.mark.parametrize(
    ("message", "left"),
    [
        (Crashed(1, 3, -9, CANCELLED, 1), []),
        (Returned([1]), []),
        (Shortened(1, 6), [[HeldRun(1, 1, 0, 6)]]),
    ],
    ids=["crashed", "returned", "shortened"],
)
def test_an_end_of_a_run_counts_when_acknowledged(
    message: Message, left: list[list[HeldRun]]
) -> None:
    held = Held([(1, 0, 10)])
    held.send(message)
    assert held.introduced() == [[HeldRun(1, 1, 0, 10)]]
    assert held.sent_again() == [message]
    held.acknowledge()
    assert held.introduced() == left


def test_a_run_that_is_shortened_to_its_answered_calls_has_ended() -> None:
    held = Held([(1, 0, 10)])
    held.send(values(1, 0, 6))
    held.send(Shortened(1, 6))
    held.acknowledge()
    assert held.introduced() == []


def test_messages_of_nested_calls_are_not_sent_again() -> None:
    held = Held()
    held.send(NestedHello(1))
    held.send(Beat())
    held.send(Goodbye("the end"))
    held.introduced()
    assert held.sent_again() == [Goodbye("the end")]


def test_repeated_output_counts_as_sent() -> None:
    held = Held()
    held.send(Output(1, 1), b"taken")
    held.acknowledge()
    held.send(Output(1, 2), b"lost")
    held.introduced()
    assert held.agent.under_way == {1: 4}


def test_nothing_is_kept_that_is_acknowledged() -> None:
    held = Held([(1, 0, 10)])
    results: Any = [values(1, number, number + 1) for number in range(10)]
    for result in results:
        held.send(result)
        held.acknowledge()
        held.runs.settle()
    assert not held.runs._sent
    assert not held.runs._runs
