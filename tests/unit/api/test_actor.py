"""The handle of an actor; its object lives in this process."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gridengine import Actor, ConfigurationError, Cores, InlineScheduler, PicklingError, current_job


class Stack:
    size = 3

    def __init__(self, *items: Any) -> None:
        self.items = [*items]

    def push(self, item: Any) -> int:
        self.items.append(item)
        return len(self.items)

    def fail(self) -> None:
        raise LookupError("not here")

    def interrupt(self) -> None:
        raise KeyboardInterrupt

    def given(self) -> Any:
        job = current_job()
        return None if job is None else job.resources

    @property
    def top(self) -> Any:
        return self.items[-1]


class Busy:
    def kill(self) -> None:
        """Has a name of the handle's own."""


class Dynamic:
    def __getattr__(self, name: str) -> Any:
        return lambda: name


@pytest.fixture
def stack() -> Iterator[Any]:
    with InlineScheduler().actor(Stack, 1, 2) as made:
        yield made


def test_methods_return_futures_and_exceptions_are_theirs(stack: Any) -> None:
    assert isinstance(stack, Actor)
    assert stack.push(3).result() == 3
    assert isinstance(stack.fail().exception(), LookupError)
    assert stack.push(item=4).result() == 4


def test_objects_are_copied_on_their_way() -> None:
    item = [1]
    with InlineScheduler().actor(Stack, item) as stack:
        item.append(2)
        assert stack.push("x").result() == 2
        with pytest.raises(PicklingError):
            stack.push(threading.Lock()).result()
    with pytest.raises(PicklingError):
        InlineScheduler().actor(Stack, threading.Lock())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("psh", "Stack has no method 'psh'; did you mean 'push'"),
        ("nosuch", "Stack has no method 'nosuch'; for an attribute write one that returns it"),
        ("size", "'size' is an attribute of Stack, and an actor offers methods alone"),
        ("top", "'top' is an attribute of Stack, and an actor offers methods alone"),
        ("_hidden", "an actor offers public methods alone, not '_hidden'"),
    ],
)
def test_a_name_that_is_no_method_is_refused_at_once(stack: Any, name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        getattr(stack, name)


def test_an_object_of_an_unknown_class_lists_its_methods() -> None:
    with InlineScheduler().actor(lambda: Stack(1)) as stack:
        assert stack.push(2).result() == 2
        assert isinstance(stack.nosuch().exception(), AttributeError)
    with InlineScheduler().actor(Dynamic) as dynamic:
        assert dynamic.anything().result() == "anything"


def test_a_class_with_a_method_of_the_handle_s_own_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Busy has a method 'kill'"):
        InlineScheduler().actor(Busy)
    with pytest.raises(TypeError, match=r"made by a class, as actor\(Counter, 5\), not by 5"):
        InlineScheduler().actor(5)
    with pytest.raises(TypeError, match="resources"):
        InlineScheduler().actor(Stack, resources=4)


def test_an_object_that_cannot_be_made_is_the_error_of_its_calls() -> None:
    with InlineScheduler().actor(Stack, nosuch=1) as stack:
        assert isinstance(stack.push(1).exception(), TypeError)


def test_methods_of_an_actor_have_its_resources() -> None:
    with InlineScheduler().actor(Stack, resources=Cores(2)) as stack:
        assert stack.given().result().get(Cores).N == 2


def test_after_its_shutdown_no_method_can_be_called(stack: Any) -> None:
    stack.shutdown()
    stack.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        stack.push(1)


def test_a_ctrl_c_in_a_method_here_is_the_caller_s(stack: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        stack.interrupt()
    assert stack.push(3).result() == 3


def test_tasks_of_an_event_loop_await_its_methods() -> None:
    async def pushed() -> Any:
        async with InlineScheduler().actor(Stack) as stack:
            return await stack.push(1)

    assert asyncio.run(pushed()) == 1


def test_a_handle_lists_the_methods_and_tells_where_its_object_is(stack: Any) -> None:
    assert {"push", "fail", "shutdown", "kill"} <= {*dir(stack)}
    assert not {"size", "top"} & {*dir(stack)}
    assert "in this process" in repr(stack)


@pytest.mark.parametrize("travel", [pickle.dumps, copy.copy])
def test_a_handle_is_neither_pickled_nor_copied(stack: Any, travel: Any) -> None:
    with pytest.raises(TypeError, match="works in the process that made it"):
        travel(stack)
