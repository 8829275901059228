"""The object of an actor, where it lives."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gridengine.call_context.actors import (
    END,
    READY,
    ActorObject,
    ActorRequest,
    ActorTarget,
    decode_answer,
    encode,
)
from gridengine.call_context.current_call import GVAR
from gridengine.errors import CallError, ConfigurationError, PicklingError
from gridengine.serialize import pickling
from gridengine.serialize.payload import FULL, Payload
from gridengine.wire.messages import Deliver, Pushed, Waits
from tests.support.runner_driver import RunnerDriver


class Stack:
    def __init__(self, *items: Any, limit: int = 10) -> None:
        self.items = [*items]
        self.limit = limit

    def push(self, item: Any, *, twice: bool = False) -> int:
        self.items += [item] * (1 + twice)
        return len(self.items)

    def fail(self) -> None:
        raise LookupError("not here")

    def interrupt(self) -> None:
        raise KeyboardInterrupt

    def lock(self) -> Any:
        return threading.Lock()

    async def length(self) -> int:
        await asyncio.sleep(0)
        return len(self.items)


def request(number: int, method: str, *args: Any, **kwargs: Any) -> Payload:
    return [encode(ActorRequest(number, method)), *pickling.dump_calls([(args, kwargs)], form=FULL)]


@pytest.fixture
def stack() -> ActorObject:
    return ActorObject(Stack, (1, 2), {"limit": 3})


def value(answer: Payload | None) -> Any:
    assert answer is not None
    assert not decode_answer(answer[0]).raised
    [found], _ = pickling.load_values(answer[1:])
    return found


def error(answer: Payload | None) -> BaseException:
    assert answer is not None
    assert decode_answer(answer[0]).raised
    return pickling.load_exception(answer[1:])


def test_a_request_is_answered_with_its_number_and_the_value(stack: ActorObject) -> None:
    answer = stack.answer(request(7, "push", "x", twice=True))
    assert answer is not None
    assert decode_answer(answer[0]).number == 7
    assert value(answer) == 4
    assert value(stack.answer(request(8, "length"))) == 4


def test_an_exception_is_an_answer_too_and_the_object_stays(stack: ActorObject) -> None:
    found = error(stack.answer(request(1, "fail")))
    assert isinstance(found, LookupError)
    assert "in fail" in str(found.__cause__)
    assert isinstance(error(stack.answer(request(2, "nosuch"))), AttributeError)
    assert isinstance(error(stack.answer(request(3, "lock"))), PicklingError)
    assert isinstance(error(stack.answer(request(4, "interrupt"))), CallError)
    assert value(stack.answer(request(5, "push", "x"))) == 3


def test_arguments_that_cannot_be_rebuilt_fail_their_call_alone(stack: ActorObject) -> None:
    broken = [encode(ActorRequest(1, "push")), b"\x80\x05]\x94(cnosuchmodule\nname\ne."]
    assert isinstance(error(stack.answer(broken)), ModuleNotFoundError)
    assert value(stack.answer(request(2, "push", "x"))) == 3


def test_exits_pass_and_the_last_request_has_no_answer() -> None:
    stack = ActorObject(Stack, (), {}, (KeyboardInterrupt,))
    with pytest.raises(KeyboardInterrupt):
        stack.answer(request(1, "interrupt"))
    assert stack.answer([encode(ActorRequest(0, END))]) is None


@pytest.fixture
def driver() -> Iterator[RunnerDriver]:
    made = RunnerDriver()
    with socket.socket(socket.AF_UNIX) as requests:
        GVAR.process = made.runner.as_calling_process(7, requests)
        yield made
    GVAR.process = None


def pushed(driver: RunnerDriver) -> list[tuple[int, Payload]]:
    return [
        (message.run, buffers)
        for message, buffers in driver.channel.sent
        if isinstance(message, Pushed)
    ]


def test_a_runner_answers_each_request_of_its_run_until_the_end(driver: RunnerDriver) -> None:
    driver.assign(ActorTarget(Stack), [((1,), {})], form=FULL, watched=True, once=True)
    told = [request(1, "push", "x"), request(2, "fail"), [encode(ActorRequest(0, END))]]
    driver.channel.incoming += [
        (Deliver(9, 1), request(1, "push", "for another run")),
        *((Deliver(1, len(one)), one) for one in told),
    ]
    driver.play()
    (_, ready), (run, first), (_, second) = pushed(driver)
    assert (run, decode_answer(ready[0]).number, value(first)) == (1, READY, 2)
    assert isinstance(error(second), LookupError)
    assert driver.values() == [None]


def test_an_actor_of_a_call_leaves_its_slot_before_each_wait(driver: RunnerDriver) -> None:
    driver.assign(ActorTarget(Stack, lends=True), [((), {})], form=FULL, watched=True, once=True)
    told = [request(1, "push", "x"), [encode(ActorRequest(0, END))]]
    driver.channel.incoming += [(Deliver(1, len(one)), one) for one in told]
    driver.play()
    said = [message for message, _ in driver.channel.sent if isinstance(message, Pushed | Waits)]
    assert said == [Waits(7, 1), said[1], Waits(7, 1), said[3]]


def test_an_actor_of_an_agent_that_is_gone_ends(driver: RunnerDriver) -> None:
    driver.assign(ActorTarget(Stack), [((), {})], form=FULL, watched=True, once=True)
    driver.play()
    assert len(pushed(driver)) == 1


def test_an_object_that_cannot_be_made_is_the_error_of_the_call(driver: RunnerDriver) -> None:
    driver.assign(ActorTarget(Stack), [((), {"nosuch": 1})], form=FULL, watched=True, once=True)
    driver.play()
    [(_, raised)] = driver.outcomes()
    assert isinstance(raised, TypeError)
    assert pushed(driver) == []


def test_outside_of_a_runner_there_is_no_actor(driver: RunnerDriver) -> None:
    GVAR.process = None
    with pytest.raises(ConfigurationError, match="lives in a worker's own process"):
        ActorTarget(Stack)()
