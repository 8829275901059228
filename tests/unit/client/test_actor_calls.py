"""The calls of an actor's methods as their client has them; the other end is played."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from gridengine.call_context.actors import END, READY, ActorAnswer, decode_request, encode
from gridengine.client.actor_calls import MOST_SENT, MOST_SLOW, ActorCalls
from gridengine.client.future import CallFuture
from gridengine.client.options import CallOptions
from gridengine.errors import (
    ActorLost,
    Cancelled,
    ConfigurationError,
    GridEngineError,
    PicklingError,
    WorkerLost,
)
from gridengine.requests import CallsFinished, TaskBegan, TaskMessage
from gridengine.serialize import pickling
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler


class Far:
    """An actor's calls, and the far end, which answers when the test says."""

    def __init__(self) -> None:
        self.dispatcher = FakeDispatcher(on_submit=lambda dispatcher: None)
        self.calls = ActorCalls(
            self.dispatcher,  # type: ignore[arg-type]
            FakeScheduler(),
            "Stack-1",
            CallOptions(retries=0),
        )
        self.calls.begin(list, (), {})

    def call(self, method: str = "append", *args: Any) -> CallFuture:
        return self.calls.call(method, args, {})

    def ready(self) -> None:
        self.calls.began(TaskBegan(self.calls.task, 7, "node3", 1))
        self.note(ActorAnswer(READY))

    def note(self, answer: ActorAnswer, *payload: Any) -> None:
        self.calls.noted(TaskMessage(self.calls.task, [encode(answer), *payload]))
        self.helped()

    def answer(self, number: int, value: Any = None, *, seconds: float = 0.0) -> None:
        self.note(ActorAnswer(number, seconds=seconds), *pickling.dump_values([value]))

    def raised(self, number: int, error: BaseException) -> None:
        self.note(ActorAnswer(number, raised=True), *pickling.dump_exception(error))

    def helped(self) -> None:
        """Return when the helper thread has done what it was asked for."""
        done = threading.Event()
        self.calls.do_soon(done.set)
        assert done.wait(60)

    def told(self) -> list[tuple[int, str]]:
        heads = [decode_request(payload[0]) for _, payload in self.dispatcher.told]
        return [(head.number, head.method) for head in heads]

    def end(self, error: GridEngineError | None = None, payload: Any = None, **more: Any) -> None:
        [entry] = self.dispatcher.entries
        self.dispatcher.settle(
            entry, CallsFinished(self.calls.task, 0, 1, payload, error=error, last=True, **more)
        )
        if not self.calls._finished:
            self.helped()


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.calls.kill_all()
    made.calls.close(wait=True)


def test_calls_wait_until_the_object_is_made_and_are_sent_in_their_order(far: Far) -> None:
    first, second = far.call("append", 1), far.call("pop")
    assert far.told() == []
    assert not first.running()
    far.ready()
    assert far.told() == [(1, "append"), (2, "pop")]
    assert first.running()
    far.answer(1)
    far.answer(2, "x")
    assert (first.result(), second.result()) == (None, "x")


def test_few_calls_travel_ahead_of_slow_methods_and_more_of_quick_ones(far: Far) -> None:
    far.ready()
    for _ in range(2 * MOST_SENT):
        far.call()
    assert len(far.told()) == MOST_SLOW
    far.answer(1, seconds=1.0)
    assert len(far.told()) == 1 + MOST_SLOW
    far.answer(2, seconds=0.001)
    assert len(far.told()) == 2 + MOST_SENT


def test_a_call_that_was_not_sent_can_be_cancelled_and_one_that_was_cannot(far: Far) -> None:
    far.ready()
    futures = [far.call() for _ in range(MOST_SLOW + 1)]
    assert [one.cancel() for one in futures] == [False] * MOST_SLOW + [True]
    far.answer(1)
    assert len(far.told()) == MOST_SLOW


def test_an_exception_of_a_method_names_the_call_and_the_machine(far: Far) -> None:
    far.ready()
    future = far.call("pop")
    far.raised(1, IndexError("empty"))
    with pytest.raises(IndexError, match="empty") as caught:
        future.result()
    assert caught.value.__notes__ == ["the call of Stack-1.pop, on node3"]


def test_a_lost_actor_fails_the_calls_that_were_sent_that_wait_and_that_come(far: Far) -> None:
    far.ready()
    futures = [far.call() for _ in range(MOST_SLOW + 1)]
    far.end(WorkerLost("the worker that ran it was killed", host="node3", job="7", hint="look"))
    for future in (*futures, far.call()):
        with pytest.raises(ActorLost, match="Stack-1 is lost: the worker that ran it") as caught:
            future.result()
        error = caught.value
        assert (error.host, error.job) == ("node3", "7")
        assert "make the actor anew" in str(error)
        assert str(error).endswith("; look")
        assert isinstance(error.__cause__, WorkerLost)


def test_an_object_that_could_not_be_made_fails_all_calls_with_its_own_error(far: Far) -> None:
    waiting = far.call()
    far.end(payload=pickling.dump_exception(ValueError("below zero")), raised=True)
    for future in (waiting, far.call()):
        with pytest.raises(ValueError, match="below zero") as caught:
            future.result()
        assert caught.value.__notes__ == ["the making of Stack-1"]


def test_an_actor_is_lost_when_its_dispatcher_is_started_again(far: Far) -> None:
    far.ready()
    future = far.call()
    far.calls.restarted()
    with pytest.raises(ActorLost, match="the dispatcher was started again"):
        future.result()
    assert far.dispatcher.cancelled == {far.calls.task: 9}
    with pytest.raises(ActorLost, match="the dispatcher was started again"):
        far.call().result()


def test_an_actor_that_was_shut_down_ends_after_the_calls_it_has(far: Far) -> None:
    far.ready()
    futures = [far.call() for _ in range(MOST_SLOW + 1)]
    far.calls.end(cancel=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        far.call()
    assert END not in dict(far.told()).values()
    far.answer(1, seconds=1.0)
    assert [method for _, method in far.told()] == ["append"] * len(futures) + [END]
    for number in range(2, len(futures) + 1):
        far.answer(number)
    far.end(payload=pickling.dump_values([None]))
    far.calls.close(wait=True)
    assert [one.result() for one in futures] == [None] * len(futures)


def test_at_a_shutdown_calls_that_were_not_sent_may_be_withdrawn(far: Far) -> None:
    futures = [far.call() for _ in range(3)]
    far.calls.end(cancel=True)
    for future in futures:
        with pytest.raises(CancelledError):
            future.result()
    far.ready()
    assert far.told() == [(0, END)]


def test_without_calls_one_that_waits_for_a_worker_never_begins() -> None:
    far, other = Far(), Far()
    far.dispatcher.slots = 0  # what waits is given back
    far.calls.close(wait=True)
    assert far.dispatcher.settled == {far.calls.task}
    other.calls.end(cancel=False)
    other.ready()
    assert other.told() == [(0, END)], "it has begun, and ends as soon as it can"
    other.end(payload=pickling.dump_values([None]))
    other.calls.close(wait=True)


def test_a_killed_actor_has_all_its_calls_cancelled(far: Far) -> None:
    far.ready()
    futures = [far.call() for _ in range(MOST_SLOW + 1)]
    far.calls.kill_all()
    far.helped()
    for future in futures:
        with pytest.raises(Cancelled, match="Stack-1 was ended"):
            future.result()


def test_the_garbage_collector_ends_it_without_waiting(far: Far) -> None:
    far.ready()
    with far.calls.lock:  # the thread that collects may hold it
        far.calls.close(wait=False)
    far.helped()
    assert far.told() == [(0, END)]


def test_an_argument_that_cannot_travel_fails_its_call_alone(far: Far) -> None:
    far.ready()
    with pytest.raises(PicklingError, match=r"the call of Stack-1\.append"):
        far.call("append", threading.Lock()).result()
    with pytest.raises(ConfigurationError, match="a future, which methods of actors do not take"):
        far.call("append", [far.call()]).result()
    assert far.told() == [(1, "append")]


def test_when_the_call_that_made_it_ends_nobody_waits_for_its_outcome(far: Far) -> None:
    far.ready()
    future = far.call()
    far.calls.abandoned()
    with pytest.raises(Cancelled, match="Stack-1 has ended with the call that made it"):
        future.result()
    far.calls.close(wait=True)
    far.end(Cancelled("the call was cancelled"))
