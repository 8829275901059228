"""What workers hold, when it is forgotten, and how a lost result is made again."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.core import objects
from gridengine.dispatcher.core.events import ResultAsked, ResultFetched, Send
from gridengine.errors import WorkerLost
from gridengine.requests import CallsFinished, Function, NamesForgotten, Submitted
from gridengine.serialize.shared_objects import PayloadWithObjects, SharedObject
from gridengine.wire.messages import (
    RAISED,
    Assign,
    Assignment,
    Define,
    Fetch,
    Fetched,
    Forget,
    Goodbye,
    Reload,
    Result,
    Results,
    input_name,
)
from tests.support.core_play import CUBE, SQUARE, Play, function
from tests.support.tasks import make_task
from tests.unit.dispatcher.core.test_kept_results import (
    FIRST,
    SECOND,
    THIRD,
    keeps,
    kept_at,
    makes,
    needs,
    workers,
)


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
            Submitted(
                SQUARE, [make_task(100 + play.core.state.last_run, (b"calls",), 1)], generation
            )
        )
        assert [type(one.message) for one in play.seen(Send)] == [Reload] * told + [Assign]
        play.done(play.assigned()[0])


def test_a_worker_that_comes_later_has_loaded_nothing_that_has_changed() -> None:
    play = Play()
    play.play(Submitted(SQUARE, [make_task(1, (b"calls",), 1)], 3))
    play.hello()
    assert len(play.assigned()) == 1
    assert play.sent(Reload) == []


def test_the_oldest_function_out_of_use_is_forgotten_and_sent_again_when_it_is_used() -> None:
    play = Play()
    play.hello()
    for number in range(objects.IDLE_FUNCTIONS + 1):
        play.submit(1, function=function(number))
        play.done(play.assigned()[0])
    assert play.sent(Forget) == [Forget([b"f0"])]
    play.submit(1, function=function(0))
    assert [define.function for define in play.sent(Define)] == [b"f0"]


def test_a_function_in_use_is_never_forgotten() -> None:
    play = Play()
    play.running()
    play.hello(b"v", pid=8)
    for number in range(2 * objects.IDLE_FUNCTIONS):
        play.submit(1, function=function(number))
        play.done(play.assigned(b"v")[0], worker=b"v")
        assert Forget([b"square"]) not in play.sent(Forget)


def big(number: int, size: int) -> Function:
    return replace(function(number), payload=(b"pickled", bytes(size)))


@pytest.mark.parametrize(
    ("sizes", "forgotten"),
    [
        pytest.param([1, objects.IDLE_BYTES], b"f1", id="a large one"),
        pytest.param([objects.IDLE_BYTES // 2 - 100] * 3, b"f0", id="too large together"),
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


def test_a_shared_object_is_sent_once_before_the_first_call_and_after_its_parts() -> None:
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
    assert play.play(NamesForgotten(shared=[b"A"])) == []
    play.done(one)
    assert play.sent(Forget) == [Forget([b"A"])]


def test_a_shared_object_that_nobody_needs_is_forgotten_with_its_last_handle() -> None:
    play = Play()
    play.done(play.running(needs=(shared_object(),)))
    assert play.sent(Forget) == []
    play.play(NamesForgotten(shared=[b"A"]))
    assert play.sent(Forget) == [Forget([b"A"])]
    assert b"A" not in play.core.state.objects


def test_a_function_that_holds_a_shared_object_is_forgotten_with_it() -> None:
    play = Play()
    play.done(play.running(function=replace(SQUARE, needs=(shared_object(),))))
    play.play(NamesForgotten(shared=[b"A"]))
    assert play.sent(Forget) == [Forget([SQUARE.digest]), Forget([b"A"])]


def test_a_shared_object_that_was_forgotten_is_sent_again_to_calls_that_were_late() -> None:
    play = Play()
    shared = shared_object()
    play.done(play.running(needs=(shared,)))
    play.play(NamesForgotten(shared=[b"A"]))
    play.submit(1, needs=(shared,))
    assert (b"A", True) in names(play.sent(Define))


def test_the_release_of_an_unknown_object_is_nothing() -> None:
    assert Play().play(NamesForgotten(shared=[b"A"])) == []


def lose(play: Play, worker: bytes) -> list[Assignment]:
    """Have a worker be gone, with all it has; return what others are given now."""
    play.say(Goodbye("killed", []), worker=worker)
    return play.assigned()


def let_go(play: Play, *references: int) -> None:
    """Have the caller have these results no more, and refer to them no more."""
    for reference in references:
        for _ in range(2):
            play.play(NamesForgotten(references=[reference]))


def test_lost_results_are_made_again_only_when_needed() -> None:
    play = workers(b"a", b"b")
    kept_at(play, b"b", makes(FIRST))
    assert lose(play, b"b") == []
    play.play(Submitted(CUBE, [needs(200, FIRST)]))
    [again] = play.assigned(b"a")
    assert (again.function, again.task < 0) == (b"square", True)
    keeps(play, again, b"a")
    assert play.seen(CallsFinished) == []
    [one] = play.assigned(b"a")
    assert (one.task, [given.reference for given in one.inputs]) == (200, [FIRST])
    play.done(one, worker=b"a")
    assert [finished.task for finished in play.seen(CallsFinished)] == [200]


def test_inputs_of_a_lost_result_are_made_again_too() -> None:
    play = workers(b"a", b"b")
    kept_at(play, b"b", makes(FIRST))
    kept_at(play, b"b", makes(SECOND, FIRST))
    kept_at(play, b"b", makes(THIRD, SECOND))
    let_go(play, FIRST, SECOND)
    assert play.core.state.awaited.keys() == {THIRD}
    lose(play, b"b")
    play.play(ResultAsked(THIRD))
    for reference in (FIRST, SECOND, THIRD):
        [again] = play.assigned(b"a")
        assert list(again.kept) == [(0, reference)]
        keeps(play, again, b"a")
    assert play.sent(Fetch, b"a") == [Fetch([input_name(THIRD)])]
    play.say(Fetched(input_name(THIRD)), b"bytes", worker=b"a")
    [fetched] = play.seen(ResultFetched)
    assert fetched.data.payload == [b"bytes"]
    let_go(play, THIRD)
    state = play.core.state
    assert [*state.awaited, *state.released_early, *state.away] == []


def test_results_that_cannot_be_made_again_are_kept_while_needed() -> None:
    play = workers(b"a")
    play.play(Submitted(SQUARE, [makes(FIRST)]))
    play.done(play.assigned()[0], worker=b"a")
    kept_at(play, b"a", makes(SECOND, FIRST))
    play.play(NamesForgotten(references=[FIRST]))
    assert play.core.state.awaited.keys() == {FIRST, SECOND}
    play.play(NamesForgotten(references=[SECOND]))
    play.play(NamesForgotten(references=[SECOND]))
    assert not play.core.state.awaited


def test_a_result_lost_with_the_asked_worker_is_made_again() -> None:
    play = workers(b"a", b"b")
    kept_at(play, b"b", makes(FIRST))
    play.play(ResultAsked(FIRST))
    [again] = lose(play, b"b")
    assert again.task < 0
    play.done(again, worker=b"a")  # small this time
    [fetched] = play.seen(ResultFetched)
    assert fetched.data.payload == (b"values",)


def test_a_result_that_fails_when_made_again_fails_its_dependents() -> None:
    play = workers(b"a", b"b")
    kept_at(play, b"b", makes(FIRST))
    lose(play, b"b")
    play.play(Submitted(CUBE, [needs(200, FIRST), needs(201, FIRST)]))
    [again] = play.assigned(b"a")
    play.play(ResultAsked(FIRST))
    play.say(Results([Result(again.run, 0, 1, RAISED, 1.0)]), b"error", worker=b"a")
    finished = {one.task: one for one in play.seen(CallsFinished)}
    assert finished.keys() == {200, 201}
    assert {(one.raised, one.path) for one in finished.values()} == {(True, ("call 0 of square",))}
    [fetched] = play.seen(ResultFetched)
    assert fetched.data.raised


def test_losing_its_workers_again_and_again_is_an_error() -> None:
    play = workers(b"a", b"b", b"c", b"d")
    kept_at(play, b"d", makes(FIRST, retries=1))
    lose(play, b"d")
    play.play(Submitted(CUBE, [needs(200, FIRST)]))
    again = play.assigned()
    for _ in range(2):
        [worker] = {
            one
            for one in (b"a", b"b", b"c")
            if play.core.state.workers.get(one) and play.core.state.workers[one].runs
        }
        again = lose(play, worker)
    assert again == []
    [finished] = play.seen(CallsFinished)
    assert finished.task == 200
    assert isinstance(finished.error, WorkerLost)


def test_one_call_of_many_is_made_again() -> None:
    play = workers(b"a")
    play.play(Submitted(SQUARE, [make_task(300, (b"calls",), 5, kept=((3, FIRST),))]))
    for index in range(5):
        [one] = play.assigned(b"a")
        assert (one.start, one.stop, list(one.kept)) == (
            index,
            index + 1,
            [(3, FIRST)] * (index == 3),
        )
        if index == 3:
            keeps(play, one, b"a", index)
        else:
            play.done(one, worker=b"a")
    lose(play, b"a")
    play.hello(b"b", pid=8)
    play.play(ResultAsked(FIRST))
    [again] = play.assigned(b"b")
    assert (again.start, again.stop, list(again.kept)) == (3, 4, [(3, FIRST)])


def test_a_call_that_is_retried_keeps_the_number_of_its_attempt_while_it_waits() -> None:
    play = workers(b"a", b"b")
    kept_at(play, b"b", makes(FIRST))
    play.play(Submitted(CUBE, [needs(200, FIRST, retries=1)]))
    [one] = play.assigned(b"b")
    lose(play, b"b")
    [again] = play.assigned(b"a")
    assert again.task < 0
    keeps(play, again, b"a")
    [one] = play.assigned(b"a")
    assert (one.task, one.attempt) == (200, 2)


def test_a_long_chain_is_let_go_of_without_recursion() -> None:
    links = 2 * sys.getrecursionlimit()
    play = workers(b"a")
    for number in range(1000, 1000 + links):
        kept_at(play, b"a", makes(number, *[number - 1] * (number > 1000)))
        if number > 1000:
            let_go(play, number - 1)
    last = 999 + links
    assert play.core.state.awaited.keys() == {last}
    let_go(play, last)
    assert not play.core.state.awaited
