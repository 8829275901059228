"""Errors name the part that cannot be pickled."""

from __future__ import annotations

import asyncio
import functools
import resource
import sqlite3
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridengine import InlineScheduler
from gridengine.errors import OutOfMemory, PicklingError
from gridengine.serialize import pickling, unpicklable
from gridengine.serialize.payload import FULL, SINGLE, STAR


class Held:
    lock = threading.Lock()  # one that a module offers under a name travels by that


LOOP = asyncio.new_event_loop()
LOOP.close()


class Holder:
    def __init__(self, value: Any) -> None:
        self.model = value


def text_of(dump: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(PicklingError) as caught:
        dump(*arguments, **options)
    assert caught.value.__cause__ is None  # the text has it all
    assert caught.value.__suppress_context__
    return str(caught.value)


@pytest.mark.parametrize(
    ("call", "form", "words"),
    [
        (Held.lock, SINGLE, "the argument of call 1 (a _thread.lock)"),
        ((1, Held.lock), SINGLE, "the argument of call 1, at [1] (a _thread.lock)"),
        ((1, Held.lock), STAR, "argument 2 of call 1 (a _thread.lock)"),
        (((1,), {"key": Held.lock}), FULL, "argument 'key' of call 1 (a _thread.lock)"),
        (
            {"a": [0, Holder(Held.lock)]},
            SINGLE,
            "the argument of call 1, at ['a'][1].model (a _thread.lock)",
        ),
    ],
)
def test_an_error_names_the_call_the_argument_and_the_place_in_it(
    call: Any, form: int, words: str
) -> None:
    fine: Any = ((1,), {}) if form == FULL else (1,)
    text = text_of(pickling.dump_calls, [fine, call], form=form)
    assert words in text
    assert "cannot pickle '_thread.lock' object" in text


def test_an_error_uses_the_callers_name_for_the_call() -> None:
    assert "the argument of job 'train'" in text_of(
        pickling.dump_calls, [Held.lock], describe=lambda _: "job 'train'"
    )


def test_an_error_names_the_result() -> None:
    assert "the result of call 1 (a generator)" in text_of(
        pickling.dump_values, [0, (one for one in [])]
    )


def uses_lock() -> object:
    return LOCK  # type: ignore[name-defined] # noqa: F821


uses_lock = types.FunctionType(uses_lock.__code__, {"LOCK": Held.lock})
uses_lock.__qualname__ = "nowhere"


def test_an_error_names_the_variable_of_a_function() -> None:
    held = Held.lock
    assert "its global variable 'LOCK' (a _thread.lock)" in text_of(
        pickling.dump_function, uses_lock
    )
    assert "its captured variable 'held' (a _thread.lock)" in text_of(
        pickling.dump_function, lambda: held
    )
    assert "argument 1 of the function functools.partial (a _thread.lock)" in text_of(
        pickling.dump_function, functools.partial(len, Held.lock)
    )
    assert "its object, at .model (a _thread.lock)" in text_of(
        pickling.dump_function, Holder(Held.lock).__init__
    )


def test_a_circle_on_the_way_to_the_culprit_is_no_trap() -> None:
    circle: list[Any] = [Held.lock]
    circle.insert(0, circle)
    assert "(a _thread.lock)" in text_of(pickling.dump, circle)


class Node:
    def __init__(self, following: Node | None) -> None:
        self.following = following


def test_too_deep_nesting_is_named_after_few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    node: Node | None = None
    for _ in range(200_000):
        node = Node(node)
    attempts: list[Any] = []
    really_try = unpicklable.failure_of
    monkeypatch.setattr(
        unpicklable,
        "failure_of",
        lambda obj, **how: attempts.append(obj) or really_try(obj, **how),
    )
    text = text_of(pickling.dump_calls, [{"settings": 1, "first": node}])
    assert "the argument of call 0, at ['first']" in text
    assert "nested too deeply" in text
    assert len(text) < 600
    assert len(attempts) < 10
    while node is not None:  # else its end would need as many frames
        node = node.following


def refuses(self: object) -> Any:
    raise ValueError("not this one")


def test_the_error_of_the_users_own_code_is_the_cause() -> None:
    Refusing = type("Refusing", (), {"__reduce__": refuses})
    with pytest.raises(PicklingError, match="ValueError: not this one") as caught:
        pickling.dump_calls([Refusing()])
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.hint is None


@pytest.mark.parametrize(
    ("make", "to_a_call", "back"),
    [
        (threading.Lock, "multiprocessing.Manager().Lock()", "the data that it guards"),
        (threading.RLock, "multiprocessing.Manager().Lock()", "the data that it guards"),
        (threading.Condition, "multiprocessing.Manager().Lock()", "the data that it guards"),
        (threading.Thread, "start it in the function", "the data that it made"),
        (Path(__file__).open, "its path, and open it", "its path, or its content"),
        (lambda: asyncio.Future(loop=LOOP), "await it, and give the result", "await it"),
        (lambda: (one for one in []), "list() of it", "list() of it"),
        (lambda: sqlite3.connect(":memory:"), "make it in the function", "plain data"),
    ],
)
def test_an_error_has_the_remedy_for_its_object(
    make: Callable[[], Any], to_a_call: str, back: str
) -> None:
    one = make()
    texts = [text_of(pickling.dump_calls, [[one]]), text_of(pickling.dump_values, [[one]])]
    for text, remedy in zip(texts, [to_a_call, back], strict=True):
        assert remedy in text.rpartition("  try: ")[2]


def test_an_object_whose_class_has_a_remedy_is_named_itself_and_not_its_lock() -> None:
    text = text_of(pickling.dump_calls, [Holder(InlineScheduler())])
    assert "the argument of call 0, at .model (a gridengine.schedulers.workerless.Inline" in text
    assert "try: leave it out: calls that a call makes" in text


def test_captured_objects_may_come_from_a_module() -> None:
    connection = sqlite3.connect(":memory:")
    text = text_of(pickling.dump_function, lambda: connection)
    assert "try: make it in the function, or in a module" in text


class Full:
    def __reduce__(self) -> Any:
        raise MemoryError("full")


@pytest.mark.parametrize(
    ("dump", "what"),
    [
        (lambda: pickling.dump(Full()), "the object"),
        (lambda: pickling.dump_calls([Full()]), "call 0"),
        (lambda: pickling.dump_values([Full()]), "the result of call 0"),
        (lambda: pickling.dump_values([1, Full()]), "these calls or results together"),
    ],
)
def test_a_lack_of_memory_names_the_object_and_the_limits_of_the_process(
    dump: Callable[[], Any], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {resource.RLIMIT_AS: (2048000, -1), resource.RLIMIT_DATA: (-1, -1)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    words = (
        rf"no memory to pickle {what} in process \d+, which may have 2,048,000 bytes \(`ulimit -v"
    )
    with pytest.raises(OutOfMemory, match=words) as raised:
        dump()
    assert repr(raised.value.__cause__) == "MemoryError('full')"
