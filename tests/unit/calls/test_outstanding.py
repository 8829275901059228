"""What a client has asked for, until its dispatcher has it on disk."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.calls.outstanding import (
    MOST_UNTOLD,
    TELL_SECONDS,
    ClientLimits,
    PendingRequests,
    TakenOutcomes,
)
from gridengine.calls.remote import RemoteDispatcher
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import ConfigurationError
from gridengine.requests import CallsFinished, ResultWanted
from gridengine.wire.messages import (
    ClientHello,
    Finished,
    FinishedItem,
    Message,
    Submit,
    TaskItem,
    Want,
)
from tests.support.tasks import make_task


def test_a_task_is_durable_once_its_request_is_on_disk_and_not_while_it_is_on_its_way() -> None:
    requests, unsettled = PendingRequests(), UnsettledTasks()
    requests.journaled = True
    dispatcher: Any = SimpleNamespace(_requests=requests, _unsettled=unsettled, _limits=None)

    def is_durable() -> bool:
        return RemoteDispatcher.is_durable(dispatcher, 5)

    assert not is_durable()  # not even handed in
    task = make_task(5, (b"calls",))
    RemoteDispatcher._admit(dispatcher, [task])
    unsettled.add([task], SimpleNamespace(daemon=True))  # type: ignore[arg-type]
    assert not is_durable()  # in the queue of the thread that sends
    requests.add(Submit(0, 0, b"digest", [TaskItem(5)]), [b"calls"])
    assert not is_durable()
    requests.taken(1)
    assert is_durable()


def test_a_result_that_is_kept_is_asked_for_again_until_that_is_on_disk() -> None:
    requests = PendingRequests()
    requests.journaled = True
    first, second = [(ResultWanted(5, 0, reference), list) for reference in (1, 2)]
    for want in first, second:
        requests.add(Want(0, 5, 0, want[0].reference), ())
        requests.promised(want)
    requests.taken(1)
    assert not requests.asks_for(1)
    assert requests.take_promises() == {2: second}
    assert requests.take_promises() == {}
    requests.promised(first)  # it is on disk by now
    assert requests.take_promises() == {}


def test_a_client_that_is_not_welcomed_yet_repeats_its_greeting_to_the_next_process() -> None:
    done: list[Message | str] = []
    connection = SimpleNamespace(
        begin_again=lambda: done.append("begins"),
        send=done.append,
        send_again=lambda: done.append("repeats"),
    )
    hello: Any = ClientHello
    taken = TakenOutcomes()
    taken.add(4)
    dispatcher: Any = SimpleNamespace(
        _number=7,
        _resuming=False,
        _taken=taken,
        _connection=connection,
        _hello_again=lambda: hello,
        _streams=(),
    )
    RemoteDispatcher._resume(dispatcher)
    assert done == ["begins", hello]
    RemoteDispatcher._resume(dispatcher)
    assert done == ["begins", hello, "repeats"]
    assert taken.take() == []


def test_more_calls_than_may_be_open_are_an_error_with_the_numbers() -> None:
    limits = ClientLimits(10, None)
    limits.enter([make_task(1, [b""], 6)])
    limits.check(4)
    with pytest.raises(ConfigurationError, match=r"6 calls open, .* 10 \(max_calls\): 5 more"):
        limits.check(5)
    with pytest.raises(ConfigurationError):
        limits.enter([make_task(2, [b""], 3), make_task(3, [b""], 2)])
    limits.enter([make_task(2, [b""], 4)])


def test_calls_that_have_ended_make_room() -> None:
    limits = ClientLimits(4, 100)
    limits.enter([make_task(1, [b"x" * 60, b"y" * 40], 4)])
    with pytest.raises(ConfigurationError, match="max_bytes"):
        limits.enter([make_task(2, [b"z"], 0)])
    limits.leave(CallsFinished(1, 0, 2, None))
    with pytest.raises(ConfigurationError, match="100 bytes"):
        limits.enter([make_task(2, [b"z"])])
    limits.leave(CallsFinished(1, 2, 4, None, last=True))
    limits.enter([make_task(2, [b"z" * 100], 4)])


def test_an_outcome_that_comes_twice_makes_room_once() -> None:
    limits, unsettled = ClientLimits(2, None), UnsettledTasks()
    tasks = [make_task(id, [b""]) for id in (1, 2)]
    limits.enter(tasks)
    unsettled.add(tasks, SimpleNamespace(daemon=True, settled=lambda event: None))  # type: ignore[arg-type]
    client: Any = object.__new__(RemoteDispatcher)
    client._limits, client._unsettled, client._repeats = limits, unsettled, True
    client._number = 0
    for _ in range(2):
        client._finished(Finished(0, [FinishedItem(1, 0, 1, last=True)]), [])
    limits.check(1)
    with pytest.raises(ConfigurationError):
        limits.check(2)


def test_outcomes_are_told_of_some_time_after_the_first_of_them_was_seen() -> None:
    taken = TakenOutcomes()
    assert taken.seconds_left(100.0) == math.inf
    taken.add(1, 2)
    assert taken.seconds_left(100.0) == pytest.approx(TELL_SECONDS)
    taken.add(3)
    assert taken.seconds_left(100.0 + TELL_SECONDS) == 0.0
    assert taken.take() == [1, 2, 3]
    assert (taken.take(), taken.seconds_left(200.0)) == ([], math.inf)
    taken.add(4)
    assert taken.seconds_left(200.0) == pytest.approx(TELL_SECONDS)


def test_many_are_told_of_at_once() -> None:
    taken = TakenOutcomes()
    taken.add(*range(MOST_UNTOLD - 1))
    assert not taken.are_many
    taken.add(99)
    assert taken.are_many
