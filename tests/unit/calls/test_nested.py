"""What a call's process asks of the dispatcher that runs it, and what it makes of the answers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec import Struct

from gridengine.call_context.current_call import GVAR
from gridengine.calls.nested import NestedDispatcher
from gridengine.calls.translation import MOST_FUNCTIONS
from gridengine.errors import Cancelled, ConfigurationError, NestingError
from gridengine.requests import CallsFinished, Function, ResultData
from gridengine.resources import Capacity, Cores
from gridengine.resources.demand import Demand
from gridengine.serialize import pickling
from gridengine.serialize.shared_objects import SharedObject
from gridengine.wire.channel import Channel
from gridengine.wire.messages import (
    Allocate,
    Attempt,
    CheckDemand,
    Checked,
    ClientCancel,
    ClientForget,
    ClientWelcome,
    Finished,
    FinishedItem,
    Message,
    NestedHello,
    Resumed,
    Resumes,
    Supply,
    TaskPushed,
    TaskStarted,
    Waits,
    Want,
    WantAnswer,
)
from tests.support.tasks import make_task
from tests.support.waiting import wait_until

RUNNER, CLIENT, RUN = 3, 5, 77


class Own(Capacity):
    """A kind of this test's own."""


class Process(Struct):
    """A process whose agent is a test."""

    channel: Channel
    number: int = RUNNER
    pid: int = os.getpid()
    run: int = RUN
    allocated: list[Any] = []

    def connect(self) -> Channel:
        return self.channel

    def allocate(self, message: Allocate, buffers: Any) -> None:
        if message.failed:
            raise LookupError("nothing to give")
        self.allocated.append(message)


class Heard:
    """A listener."""

    daemon = True

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.left = 0

    def settled(self, event: CallsFinished) -> None:
        self.events.append(event)

    began = noted = settled

    def abandoned(self) -> None:
        self.left += 1


class Played:
    """A dispatcher, and the other end of its way."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        self.channel = Channel(mine)
        self.process = Process(Channel(theirs))
        self.received: list[tuple[Message, Any]] = []
        thread = threading.Thread(target=self._welcome)
        thread.start()
        self.dispatcher = NestedDispatcher(self.process)  # type: ignore[arg-type]
        thread.join()
        self.received.clear()

    def _welcome(self) -> None:
        assert self.next() == NestedHello(RUNNER)
        self.say(ClientWelcome(RUNNER, CLIENT, 8))

    def say(self, message: Message, *buffers: bytes) -> None:
        self.channel.deliver(message, buffers)

    def next(self) -> Any:
        """Return the next message that the dispatcher has sent."""
        return self.next_with_buffers()[0]

    def next_with_buffers(self) -> tuple[Any, Any]:
        if not self.received:
            self.received += self.channel.wait()
        return self.received.pop(0)

    def submit(self, *, digest: bytes = b"f", needs: Any = (), **more: Any) -> tuple[int, Heard]:
        heard, id = Heard(), self.dispatcher.new_id()
        function = Function(digest, [b"pickled"], (b"/p",), b"/d", "f")
        task = make_task(id, [b"calls"], needs=needs, **more)
        self.dispatcher.submit(function, [task], heard)
        return id, heard


@pytest.fixture
def played() -> Iterator[Played]:
    one = Played()
    yield one
    GVAR.at_end = None
    one.channel.close()
    one.dispatcher._thread.join()


def finish(played: Played, *items: FinishedItem, buffers: Any = ()) -> None:
    played.say(Finished(RUNNER, list(items)), *buffers)


def test_tasks_go_to_the_dispatcher_and_their_outcomes_come_back(played: Played) -> None:
    assert played.dispatcher.slots == 8
    id, heard = played.submit(submitter=4)
    message, buffers = played.next_with_buffers()
    assert (message.run, message.digest, message.function.name) == (RUN, b"f", "f")
    assert [bytes(one) for one in buffers] == [b"pickled", b"calls"]
    [task] = message.tasks
    assert (task.id, task.id >> 40, task.submitter >> 40) == (id, CLIENT, CLIENT)
    played.say(TaskStarted(RUNNER, id, 4711, "here", 1))
    played.say(TaskPushed(RUNNER, id, 1), b"value")
    attempt = Attempt("here", "", 0.0, 1.0, "returned")
    item = FinishedItem(id, 0, 1, 1, output=True, attempts=[attempt], last=True, seconds=1.0)
    finish(played, item, buffers=[b"result", b"out", b"err"])
    wait_until(lambda: len(heard.events) == 3)
    started, pushed, event = heard.events
    assert (started.pid, bytes(pushed.payload[0])) == (4711, b"value")
    assert ([bytes(one) for one in event.payload], event.stdout, event.stderr) == (
        [b"result"],
        b"out",
        b"err",
    )
    assert str(event.attempts[0]) == "on here, after 1.0 s: returned"
    assert (event.error, event.last) == (None, True)


def test_a_function_travels_once_and_the_oldest_of_many_is_forgotten(played: Played) -> None:
    for digest in (b"f", b"f"):
        played.submit(digest=digest)
    assert [played.next().function is None for _ in range(2)] == [False, True]
    for number in range(MOST_FUNCTIONS):
        played.submit(digest=b"%d" % number)
        if number == MOST_FUNCTIONS - 1:
            assert played.next() == ClientForget(RUNNER, [b"f"], [], [])
        assert played.next().function is not None


def test_a_shared_object_travels_once_until_it_is_released(played: Played) -> None:
    inner = SharedObject(b"i" * 16, [b"inner"])
    shared = SharedObject(b"s" * 16, [b"shared"])
    shared.needs = (inner,)
    played.submit(needs=(shared,))
    message, buffers = played.next_with_buffers()
    assert [one.name for one in message.shared] == [inner.name, shared.name]
    assert [bytes(one) for one in buffers] == [b"pickled", b"inner", b"shared", b"calls"]
    played.submit(needs=(shared,))
    assert played.next().shared == []
    shared.release()
    assert played.next() == ClientForget(RUNNER, [], [shared.name], [])
    played.submit(needs=(shared,))
    assert [one.name for one in played.next().shared] == [shared.name]


def test_each_run_s_children_have_a_submitter_of_their_own(played: Played) -> None:
    submitters = []
    for run in (RUN, RUN, RUN + 1):
        played.process.run = run
        played.submit(submitter=4)
        submitters.append(played.next().tasks[0].submitter)
    assert submitters[0] == submitters[1] != submitters[2]


def test_a_kind_of_the_user_s_own_is_refused_here(played: Played) -> None:
    with pytest.raises(ConfigurationError, match="a kind of your own"):
        played.submit(demand=Demand(Own(1)))


def test_results_that_are_missing_are_supplied(played: Played) -> None:
    missing: list[int] = []
    for reference in (1, 2):
        played.dispatcher.want(
            9, 0, reference, lambda reference=reference: missing.append(reference)
        )
        assert played.next() == Want(RUNNER, 9, 0, reference)
        played.say(WantAnswer(RUNNER, reference, reference == 2))
    wait_until(lambda: missing)
    assert missing == [2]
    played.dispatcher.supply(2, ResultData([b"value"], 3))
    message, buffers = played.next_with_buffers()
    assert (message, [*map(bytes, buffers)]) == (
        Supply(RUNNER, 2, 3, path=[], buffers=1),
        [b"value"],
    )
    played.dispatcher.supply(2, ResultData(error=Cancelled("ended"), path=("f",)))
    message, buffers = played.next_with_buffers()
    assert (message.raised, message.path) == (True, ["f"])
    assert str(pickling.load_exception(buffers)) == "ended"


def test_nested_calls_left_by_a_call_end_with_it(played: Played) -> None:
    id, heard = played.submit()
    played.next()
    assert GVAR.at_end is not None
    GVAR.at_end()
    assert GVAR.at_end is None
    assert heard.left == 1
    assert played.next() == ClientCancel(RUNNER, [id], 15, [])


def test_detached_calls_go_on(played: Played) -> None:
    played.dispatcher.detach(4)
    _, heard = played.submit(submitter=4)
    assert played.next().detached
    id, _ = played.submit()
    assert not played.next().detached
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(played.dispatcher.end_call)
        question = played.next()  # the dispatcher is to have them before the call has ended
        assert isinstance(question, CheckDemand)
        played.say(Checked(RUNNER, question.number))
        ended.result(60)
    assert heard.left == 0
    assert played.next() == ClientCancel(RUNNER, [id], 15, [])
    played.dispatcher.end_call()


def test_a_call_that_may_not_wait_has_the_reason_of_all_that_it_waits_for(played: Played) -> None:
    id, heard = played.submit()
    played.next()
    played.dispatcher.call_slot.give_back()
    assert played.next() == Waits(RUNNER, RUN)
    played.say(Resumed(RUNNER, RUN, refused="too many wait"))
    wait_until(lambda: heard.events)
    assert isinstance(heard.events[0].error, NestingError)
    assert played.next() == ClientCancel(RUNNER, [id], 15, [])
    finish(played, FinishedItem(id, 0, 1, last=True))  # too late
    assert played.dispatcher.call_slot.take_again(threading.Lock()) is False


def test_a_call_goes_on_with_its_new_allocation(played: Played) -> None:
    slot, waiter = played.dispatcher.call_slot, threading.Semaphore(0)
    slot.give_back()
    slot.take_again(waiter)
    assert [played.next(), played.next()] == [Waits(RUNNER, RUN), Resumes(RUNNER, RUN)]
    played.say(Allocate(9, buffers=0))
    played.say(Resumed(RUNNER, RUN, 9))
    assert waiter.acquire(timeout=60)
    assert played.process.allocated == [Allocate(9, buffers=0)]
    slot.give_back()
    slot.take_again(waiter)
    played.say(Allocate(10, failed=True, buffers=0))
    assert waiter.acquire(timeout=60)
    with pytest.raises(LookupError, match="nothing to give"):
        slot.check()


@pytest.mark.parametrize("refused", ["", "too many wait"])
def test_an_answer_to_an_earlier_call_is_none_to_the_present_one(
    played: Played, refused: str
) -> None:
    _, heard = played.submit()
    played.next()
    slot, waiter = played.dispatcher.call_slot, threading.Semaphore(0)
    slot.give_back()
    slot.take_again(waiter)
    assert [played.next(), played.next()] == [Waits(RUNNER, RUN), Resumes(RUNNER, RUN)]
    played.say(Resumed(RUNNER, RUN - 1, 8, refused))
    played.say(Allocate(9, buffers=0))
    wait_until(lambda: played.process.allocated)
    assert not waiter.acquire(blocking=False)
    assert heard.events == []
    slot.check()
    played.say(Resumed(RUNNER, RUN, 9))
    assert waiter.acquire(timeout=60)


def test_waiters_are_told_when_the_agent_is_gone(played: Played) -> None:
    _, heard = played.submit()
    played.channel.close()
    wait_until(lambda: heard.events)
    assert isinstance(heard.events[0].error, Cancelled)
    with pytest.raises(ConfigurationError):
        played.submit()
    with pytest.raises(Cancelled):
        played.dispatcher.check(Demand(Cores(1)))
