"""What an agent does for calls that make calls: what it passes on, and who has a slot."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gridengine.call_context.status_block import INDEX, RUN
from gridengine.serialize.payload import SINGLE
from gridengine.wire.channel import Channel
from gridengine.wire.messages import (
    Allocate,
    Assign,
    Assignment,
    Beat,
    ClientCancel,
    ClientWelcome,
    Define,
    Input,
    Message,
    NestedEnded,
    NestedHello,
    Pull,
    Result,
    Results,
    Resumed,
    Returned,
    Shortened,
    Waits,
    input_name,
)
from gridengine.wire.sockets import new_keys
from gridengine.worker.pulls import PeerKeys
from gridengine.worker.runner_handle import RunnerHandle
from tests.support.agent_driver import NotingForkServer, played_agent
from tests.support.manual_clock import ManualClock


class Played:
    """An agent whose runners are only played, and the way of calls to it."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.sent: list[Message] = []
        self.server = NotingForkServer()
        self.agent = played_agent(
            lambda message, _: self.sent.append(message), self.server, clock=self.clock, **options
        )
        self.pool = self.agent.pool
        self.agent.handle(Define(b"f", [], b"/"), [b""])
        self.channels: dict[int, Channel] = {}

    def assign(self, *runs: int, calls: int = 1, allocation: int = 0) -> None:
        assignments = [Assignment(run, 7, b"f", 0, calls, 0, SINGLE, buffers=0) for run in runs]
        self.agent.handle(Assign(assignments, allocation))

    def runner_of(self, run: int) -> RunnerHandle:
        [found] = [one for one in self.pool.runners.values() if run in one.given]
        return found

    def begin(self, run: int, index: int = 0) -> RunnerHandle:
        runner = self.runner_of(run)
        runner.status.words[INDEX], runner.status.words[RUN] = index, run
        return runner

    def start(self, run: int, **options: int) -> RunnerHandle:
        self.assign(run, **options)
        return self.begin(run)

    def connect(self, runner: RunnerHandle) -> Channel:
        """Open the way of a runner's calls, as the runner does."""
        _, descriptor = self.agent._answer_request(b"c%d" % runner.id)
        assert descriptor is not None
        channel = self.channels[runner.id] = Channel(socket.socket(fileno=socket.dup(descriptor)))
        return channel

    def say(self, runner: RunnerHandle, message: Message) -> None:
        channel = self.channels.get(runner.id) or self.connect(runner)
        channel.deliver(message, [b""] * message.count_buffers())
        self.agent.on_ready()

    def answer(self, runner: RunnerHandle, run: int) -> None:
        result = Results([Result(run, 0, 1, 0, 0.0, buffers=0)])
        runner.status.words[RUN] = 0
        self.agent._runner_messages._handle_results(runner, result, [])


@pytest.fixture
def played() -> Iterator[Played]:
    one = Played()
    yield one
    one.agent.close()
    for channel in one.channels.values():
        channel.close()


def told(channel: Channel) -> list[Any]:
    return [message for message, _ in channel.poll()]


def test_messages_of_a_call_and_its_dispatcher_are_passed_on(played: Played) -> None:
    runner = played.start(1)
    played.say(runner, NestedHello(runner.id))
    played.say(runner, ClientCancel(runner.id, [3], 15, []))
    assert played.sent == [NestedHello(runner.id), ClientCancel(runner.id, [3], 15, [])]
    played.agent.handle(ClientWelcome(runner.id, 1, 4))
    assert told(played.channels[runner.id]) == [ClientWelcome(runner.id, 1, 4)]
    played.agent.handle(ClientWelcome(99, 1, 4))  # one that is gone is told nothing
    assert played.server.preloaded == 1


def test_a_slot_that_a_call_gives_back_is_anothers_until_it_goes_on(played: Played) -> None:
    parent = played.start(1)
    played.say(parent, Waits(parent.id, 1))
    child = played.start(2)
    assert child is not parent
    played.assign(3)  # which no runner is for
    assert len(played.pool.runners) == 2
    played.answer(child, 2)
    assert list(child.given) == [3]
    played.answer(child, 3)
    played.agent.handle(Resumed(parent.id, 1))
    assert told(played.channels[parent.id]) == [Resumed(parent.id, 1)]
    assert not parent.waits_in


def test_all_that_waits_behind_a_waiting_call_is_given_back(played: Played) -> None:
    played.assign(1, 2, calls=3)
    parent = played.begin(1)
    played.assign(3, 4)  # ahead
    played.assign(5)  # in the queue
    assert list(parent.given) == [1, 2, 3, 4]
    played.say(parent, Waits(parent.id, 1))
    assert played.sent == [Waits(parent.id, 1), Shortened(1, 1), Returned([5, 2, 3, 4])]
    assert list(parent.given) == [1]
    played.assign(6)
    assert list(played.runner_of(6).given) == [6]


def test_a_call_that_ends_while_it_waits_takes_no_slot_with_it(played: Played) -> None:
    parent = played.start(1)
    played.say(parent, Waits(parent.id, 1))
    played.answer(parent, 1)
    assert not parent.waits_in
    played.assign(2)
    assert list(parent.given) == [2]


def test_a_call_goes_on_with_its_new_allocation(played: Played) -> None:
    played.agent.handle(Allocate(8, 1, buffers=0))
    parent = played.start(1, allocation=8)
    played.say(parent, Waits(parent.id, 1))
    assert parent.allocation is None
    played.agent.handle(Resumed(parent.id, 1, 8))
    assert told(played.channels[parent.id]) == [Resumed(parent.id, 1, 8)]  # it has been told
    played.say(parent, Waits(parent.id, 1))
    played.agent.handle(Allocate(9, 1, buffers=0))
    played.agent.handle(Resumed(parent.id, 1, 9))
    channel = played.channels[parent.id]
    assert told(channel) == [Allocate(9, 1, buffers=0), Resumed(parent.id, 1, 9)]
    assert parent.allocation is not None
    assert parent.allocation.message.allocation == 9


def test_the_dispatcher_is_told_when_nobody_is_there_any_more(played: Played) -> None:
    runner = played.start(1)
    played.say(runner, NestedHello(runner.id))
    played.pool.remove(runner)
    assert played.sent[-1] == NestedEnded(runner.id)
    other = played.start(2)
    played.say(other, NestedHello(other.id))
    played.channels[other.id].close()
    played.agent.on_ready()
    assert played.sent[-1] == NestedEnded(other.id)


@pytest.mark.parametrize("message", [Beat(), NestedHello(99)])
def test_a_runner_with_an_impossible_message_is_killed(played: Played, message: Message) -> None:
    runner = played.start(1)
    played.say(runner, message)
    assert played.server.signals == [(runner.id, 9)]


def test_a_runner_that_has_made_calls_is_killed_when_their_dispatcher_is_gone(
    played: Played,
) -> None:
    runner = played.start(1)
    played.start(2)
    played.say(runner, NestedHello(runner.id))
    played.agent.end_nested_calls()
    assert played.server.signals == [(runner.id, 9)]


def test_only_a_runner_of_this_worker_gets_a_way_and_only_one(played: Played) -> None:
    runner = played.start(1)
    played.connect(runner)
    for number in (runner.id, 99):
        with pytest.raises(LookupError):
            played.agent._answer_request(b"c%d" % number)


def test_calls_that_wait_for_a_result_go_back_when_a_call_waits_for_its_calls() -> None:
    keys = new_keys()
    played = Played(peer_keys=PeerKeys(keys.peer_public, keys.peer_secret))
    runner = played.start(1)
    played.agent.handle(Pull(input_name(71), 1, ["tcp://192.0.2.1:1"], new_keys().public))
    inputs = [Input(71)]
    needy = Assignment(2, 7, b"f", 0, 1, 0, SINGLE, buffers=0, inputs=inputs)
    played.agent.handle(Assign([needy]))
    played.say(runner, Waits(runner.id, 1))
    assert played.sent == [Waits(runner.id, 1), Returned([2])]
    played.agent.handle(Pull(input_name(71), 1))
    assert [one for one in played.sent if isinstance(one, Returned)] == [Returned([2])]
    played.agent.close()
    played.channels[runner.id].close()
