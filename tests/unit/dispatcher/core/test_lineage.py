"""Results that were lost with their workers are made again, and with them what they are made of."""

from __future__ import annotations

import sys

from gridengine.dispatcher.core.events import (
    ReferencesReleased,
    ResultAsked,
    ResultFetched,
    Submitted,
)
from gridengine.dispatcher.core.tasks import CallsFinished, Task
from gridengine.errors import WorkerLost
from gridengine.wire.messages import (
    RAISED,
    Assignment,
    Fetch,
    Fetched,
    Goodbye,
    Result,
    Results,
    input_name,
)
from tests.support.core_play import CUBE, SQUARE, Play
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


def lose(play: Play, worker: bytes) -> list[Assignment]:
    """Have a worker be gone, with all it has; return what others are given now."""
    play.say(Goodbye("killed", []), worker=worker)
    return play.assigned()


def let_go(play: Play, *references: int) -> None:
    """Have the caller have these results no more, and refer to them no more."""
    for reference in references:
        for _ in range(2):
            play.play(ReferencesReleased([reference]))


def test_what_was_lost_is_made_again_only_when_it_is_needed() -> None:
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


def test_what_it_was_made_of_is_made_again_too() -> None:
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


def test_what_cannot_be_made_again_is_kept_for_what_it_may_be_needed_for() -> None:
    play = workers(b"a")
    play.play(Submitted(SQUARE, [makes(FIRST)]))
    play.done(play.assigned()[0], worker=b"a")
    kept_at(play, b"a", makes(SECOND, FIRST))
    play.play(ReferencesReleased([FIRST]))
    assert play.core.state.awaited.keys() == {FIRST, SECOND}
    play.play(ReferencesReleased([SECOND]))
    play.play(ReferencesReleased([SECOND]))
    assert not play.core.state.awaited


def test_who_was_asked_and_is_lost_has_it_made_again_for_who_waits() -> None:
    play = workers(b"a", b"b")
    kept_at(play, b"b", makes(FIRST))
    play.play(ResultAsked(FIRST))
    [again] = lose(play, b"b")
    assert again.task < 0
    play.done(again, worker=b"a")  # small this time
    [fetched] = play.seen(ResultFetched)
    assert fetched.data.payload == (b"values",)


def test_what_fails_when_it_is_made_again_fails_who_needs_it() -> None:
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


def test_of_many_calls_the_one_is_made_again() -> None:
    play = workers(b"a")
    play.play(Submitted(SQUARE, [Task(300, (b"calls",), 5, kept=((3, FIRST),))]))
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
