"""Functions and shared objects: which worker has them, and when they are forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.core import (
    objects,
)
from gridengine.dispatcher.core.events import (
    Released,
    Send,
    Submitted,
)
from gridengine.dispatcher.core.tasks import Function, Task
from gridengine.serialize.shared_objects import PayloadWithObjects, SharedObject
from gridengine.wire.messages import (
    Assign,
    Define,
    Forget,
    Goodbye,
    Reload,
)
from tests.support.core_play import SQUARE, Play, function


def test_a_function_is_kept_a_while_after_its_last_call() -> None:
    play = Play()
    play.done(play.running())
    play.submit(1)
    assert play.sent(Define) == []


def test_workers_are_told_once_and_before_the_calls_that_modules_have_changed() -> None:
    play = Play()
    play.done(play.running())
    play.submit(1)
    assert play.sent(Reload) == []
    play.done(play.assigned()[0])
    for generation, told in ((1, 1), (1, 0), (0, 0), (2, 1)):
        play.play(
            Submitted(SQUARE, [Task(100 + play.core.state.last_run, (b"calls",), 1)], generation)
        )
        assert [type(one.message) for one in play.seen(Send)] == [Reload] * told + [Assign]
        play.done(play.assigned()[0])


def test_a_worker_that_comes_later_has_loaded_nothing_that_has_changed() -> None:
    play = Play()
    play.play(Submitted(SQUARE, [Task(1, (b"calls",), 1)], 3))
    play.hello()
    assert len(play.assigned()) == 1
    assert play.sent(Reload) == []


def test_the_oldest_function_out_of_use_is_forgotten_and_sent_again_when_it_is_used() -> None:
    play = Play()
    play.hello()
    for number in range(objects.KEPT_FUNCTIONS + 1):
        play.submit(1, function=function(number))
        play.done(play.assigned()[0])
    assert play.sent(Forget) == [Forget([b"f0"])]
    play.submit(1, function=function(0))
    assert [define.function for define in play.sent(Define)] == [b"f0"]


def test_a_function_in_use_is_never_forgotten() -> None:
    play = Play()
    play.running()
    play.hello(b"v", pid=8)
    for number in range(2 * objects.KEPT_FUNCTIONS):
        play.submit(1, function=function(number))
        play.done(play.assigned(b"v")[0], worker=b"v")
        assert Forget([b"square"]) not in play.sent(Forget)


def big(number: int, size: int) -> Function:
    return replace(function(number), payload=(b"pickled", bytes(size)))


@pytest.mark.parametrize(
    ("sizes", "forgotten"),
    [
        pytest.param([1, objects.KEPT_BYTES], b"f1", id="a large one"),
        pytest.param([objects.KEPT_BYTES // 2 - 100] * 3, b"f0", id="too large together"),
    ],
)
def test_functions_out_of_use_are_forgotten_when_they_are_large(
    sizes: list[int], forgotten: bytes
) -> None:
    play = Play()
    play.hello()
    for number, size in enumerate(sizes):
        play.submit(1, function=big(number, size))
        play.done(play.assigned()[0])
    assert play.sent(Forget) == [Forget([forgotten])]


def shared_object(name: bytes = b"A") -> SharedObject:
    return SharedObject(name, [b"object"])


def names(defines: Sequence[Define]) -> list[tuple[bytes, bool]]:
    return [(one.function, one.shared) for one in defines]


def test_a_shared_object_is_sent_once_before_the_first_call_and_behind_what_lies_in_it() -> None:
    play = Play()
    play.hello()
    payload = PayloadWithObjects([b"outer"])
    payload.needs = (shared_object(b"inner"),)
    shared = SharedObject(b"outer", payload)
    play.submit(1, needs=(shared,))
    assert [type(one.message) for one in play.seen(Send)] == [Define, Define, Define, Assign]
    found = names(play.sent(Define))
    assert found == [(b"inner", True), (b"outer", True), (SQUARE.digest, False)]
    play.done(play.assigned()[0])
    play.submit(1, needs=(shared,))
    assert play.sent(Define) == []
    assert len(play.assigned()) == 1


def test_a_shared_object_goes_to_the_worker_that_a_lost_workers_call_goes_to() -> None:
    play = Play()
    play.running(needs=(shared_object(),))
    play.hello(b"v", pid=8)
    play.say(Goodbye("killed"))
    assert (b"A", True) in names(play.sent(Define, b"v"))
    assert len(play.assigned(b"v")) == 1


def test_a_shared_object_without_a_handle_is_kept_until_the_last_call_that_needs_it_has_ended() -> (
    None
):
    play = Play()
    one = play.running(needs=(shared_object(),))
    assert play.play(Released(b"A")) == []
    play.done(one)
    assert play.sent(Forget) == [Forget([b"A"])]


def test_a_shared_object_that_nobody_needs_is_forgotten_with_its_last_handle() -> None:
    play = Play()
    play.done(play.running(needs=(shared_object(),)))
    assert play.sent(Forget) == []
    play.play(Released(b"A"))
    assert play.sent(Forget) == [Forget([b"A"])]
    assert b"A" not in play.core.state.objects


def test_a_function_that_holds_a_shared_object_is_forgotten_with_it() -> None:
    play = Play()
    play.done(play.running(function=replace(SQUARE, needs=(shared_object(),))))
    play.play(Released(b"A"))
    assert play.sent(Forget) == [Forget([SQUARE.digest]), Forget([b"A"])]


def test_a_shared_object_that_was_forgotten_is_sent_again_to_calls_that_were_late() -> None:
    play = Play()
    shared = shared_object()
    play.done(play.running(needs=(shared,)))
    play.play(Released(b"A"))
    play.submit(1, needs=(shared,))
    assert (b"A", True) in names(play.sent(Define))


def test_the_release_of_what_was_never_handed_in_is_nothing() -> None:
    assert Play().play(Released(b"A")) == []
