"""Large results that stay at their workers: who is given them, and where they go."""

from __future__ import annotations

from gridengine.dispatcher.core import worker_lifecycle
from gridengine.dispatcher.core.events import Closing, ResultAsked, ResultFetched, ResultStays
from gridengine.requests import CallsFinished, NamesForgotten, Submitted, Task
from gridengine.serialize.payload import PayloadAtWorker
from gridengine.serialize.shared_objects import SharedObject
from gridengine.wire.messages import (
    VALUES,
    Assignment,
    Define,
    Fetch,
    Fetched,
    Forget,
    Goodbye,
    Refuse,
    Result,
    Results,
    Stop,
    input_name,
)
from tests.support.core_play import CUBE, SQUARE, Play
from tests.support.tasks import make_task

FIRST, SECOND, THIRD = 71, 72, 73
MB = 1 << 20


def makes(number: int, *after: int, **options: object) -> Task:
    """Return the call that makes a result, of others."""
    return make_task(number, (b"calls",), after=after, kept=((0, number),), **options)  # type: ignore[arg-type]


def needs(number: int, *after: int, **options: object) -> Task:
    return make_task(number, (b"calls",), after=after, **options)  # type: ignore[arg-type]


def keeps(play: Play, one: Assignment, worker: bytes = b"w", index: int = 0) -> None:
    """Have a worker answer a call whose result stays there."""
    held = one.kept[0][1], MB
    result = Result(one.run, index, index + 1, VALUES, 1.0, 0, held=held)
    play.say(Results([result]), worker=worker)


def workers(*names: bytes, **policy: float) -> Play:
    """Have workers, of which each runs a call at a time."""
    play = Play(**policy)
    for name in names:
        play.hello(name, pid=ord(name))
    return play


def kept_at(play: Play, worker: bytes, task: Task) -> None:
    """Have a result stay at this worker, which alone has nothing to do."""
    play.play(Submitted(SQUARE, [task]))
    [one] = play.assigned(worker)
    keeps(play, one, worker)


def test_a_call_goes_to_the_worker_that_holds_its_input_and_nothing_is_sent() -> None:
    play = workers(b"a", b"b")
    kept_at(play, b"b", makes(FIRST))
    [kept], [finished] = play.seen(ResultStays), play.seen(CallsFinished)
    assert finished.payload is kept.payload
    assert (type(kept.payload), kept.payload.reference) == (PayloadAtWorker, FIRST)
    for number in (200, 201):  # and not to who came last
        play.play(Submitted(CUBE, [needs(number, FIRST)]))
        [one] = play.assigned(b"b")
        assert [given.reference for given in one.inputs] == [FIRST]
        assert play.sent(Fetch) == []
        play.done(one, worker=b"b")


def test_a_kept_result_of_a_busy_worker_comes_here_once_and_goes_on_to_others() -> None:
    play = workers(b"a", b"b")
    kept_at(play, b"b", makes(FIRST))
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in (200, 201, 202)]))
    [one] = play.assigned(b"b")
    assert play.assigned(b"a") == []
    assert play.sent(Fetch) == [Fetch([input_name(FIRST)])]
    play.say(Fetched(input_name(FIRST)), b"bytes", worker=b"b")
    [other] = play.assigned(b"a")
    assert {one.task, other.task} < {200, 201, 202}
    play.done(other, worker=b"a")
    assert len(play.assigned(b"a")) == 1
    assert play.sent(Fetch) == []


def test_the_caller_gets_it_when_it_asks() -> None:
    play = workers(b"a")
    kept_at(play, b"a", makes(FIRST))
    play.play(ResultAsked(FIRST))
    assert play.sent(Fetch, b"a") == [Fetch([input_name(FIRST)])]
    play.play(ResultAsked(FIRST))
    assert play.sent(Fetch) == []
    play.say(Fetched(input_name(FIRST)), b"bytes", worker=b"a")
    [fetched] = play.seen(ResultFetched)
    assert fetched.data.payload == [b"bytes"]
    play.play(ResultAsked(FIRST))
    assert [one.data.payload for one in play.seen(ResultFetched)] == [[b"bytes"]]


def test_a_result_of_a_run_that_is_no_more_is_forgotten_where_it_lies() -> None:
    play = workers(b"a")
    play.play(Submitted(SQUARE, [makes(FIRST)]))
    [one] = play.assigned()
    play.values(one, 0, 1, worker=b"a")
    keeps(play, one, b"a")
    assert play.sent(Forget, b"a") == [Forget([input_name(FIRST)])]


def test_a_worker_that_keeps_unneeded_results_breaks_the_protocol() -> None:
    play = workers(b"a")
    [task] = play.submit()
    [one] = play.assigned()
    assert one.task == task.id
    play.say(Results([Result(one.run, 0, 1, VALUES, 1.0, 0, held=(FIRST, MB))]), worker=b"a")
    assert len(play.sent(Refuse, b"a")) == 1


def test_results_kept_by_a_worker_that_breaks_the_protocol_are_made_again() -> None:
    play = Play(slots=2)
    play.hello(b"b", pid=8, slots=2)
    play.play(Submitted(SQUARE, [makes(FIRST)]))
    [one] = play.assigned(b"b")
    play.submit()
    [other] = play.assigned(b"b")
    kept, wrong = (
        Result(one.run, 0, 1, VALUES, 1.0, 0, held=(FIRST, MB)),
        Result(other.run, 5, 9, VALUES, 1.0),
    )
    play.say(Results([kept, wrong]), b"value", worker=b"b")
    assert not play.core.state.workers
    play.hello(b"a", pid=9, slots=2)
    play.play(ResultAsked(FIRST))
    assert [list(again.kept) for again in play.assigned(b"a")] == [[(0, FIRST)]]


def test_a_leaving_worker_has_time_to_hand_over_its_results() -> None:
    play = workers(b"a")
    for number in (FIRST, SECOND):
        play.play(Submitted(SQUARE, [makes(number)]))
        [one] = play.assigned(b"a")
        held = number, int(20 * worker_lifecycle.HAND_OVER_RATE)
        play.say(Results([Result(one.run, 0, 1, VALUES, 1.0, 0, held=held)]), worker=b"a")
    play.later(6.0, beats=[b"a"])
    assert play.sent(Stop, b"a") == [Stop()]
    play.later(45.0, beats=[b"a"])
    play.say(Fetched(input_name(FIRST)), b"bytes", worker=b"a")
    play.later(25.0, beats=[b"a"])
    assert b"a" in play.core.state.workers
    play.later(10.0, beats=[b"a"])
    assert b"a" not in play.core.state.workers


def test_at_the_end_only_results_of_the_caller_are_handed_over() -> None:
    play = workers(b"a", b"b")
    kept_at(play, b"b", makes(FIRST))
    kept_at(play, b"b", makes(SECOND))
    play.play(NamesForgotten(references=[FIRST, SECOND]))
    play.play(NamesForgotten(references=[FIRST]))
    assert play.sent(Forget, b"b") == [Forget([input_name(FIRST)])]
    play.play(Closing())
    assert play.sent(Forget) == []
    assert play.core.state.away == {input_name(SECOND): None}


def test_when_the_interpreter_ends_nothing_is_handed_over() -> None:
    play = workers(b"a")
    kept_at(play, b"a", makes(FIRST))
    play.play(Closing(for_good=True))
    assert play.sent(Forget, b"a") == [Forget([input_name(FIRST)])]
    assert not play.core.state.away


def test_a_worker_that_does_not_have_it_any_more_costs_making_it_again() -> None:
    play = workers(b"a")
    kept_at(play, b"a", makes(FIRST))
    play.play(ResultAsked(FIRST))
    play.say(Fetched(input_name(FIRST), 0), worker=b"a")
    [one] = play.assigned(b"a")
    assert (one.task < 0, list(one.kept)) == (True, [(0, FIRST)])


def test_a_call_that_makes_a_lost_result_again_has_the_shared_objects_of_the_first() -> None:
    play = workers(b"a")
    kept_at(play, b"a", makes(FIRST, needs=(SharedObject(b"A", [b"object"]),)))
    play.play(NamesForgotten(shared=[b"A"]))
    assert Forget([b"A"]) in play.sent(Forget, b"a")
    play.play(ResultAsked(FIRST))
    play.say(Fetched(input_name(FIRST), 0), worker=b"a")
    [one] = play.assigned(b"a")
    assert [define.function for define in play.sent(Define, b"a")] == [b"A"]
    play.done(one, worker=b"a")
    assert Forget([b"A"]) in play.sent(Forget, b"a")


def busy_holder(size: int) -> Play:
    """Have a worker with a result of this size be at a call that takes a second, and another have
    nothing to do; a call waits that needs the result.
    """
    play = workers(b"b", idle_seconds=1000.0)
    play.play(Submitted(SQUARE, [makes(FIRST)]))
    [one] = play.assigned(b"b")
    play.say(Results([Result(one.run, 0, 1, VALUES, 1.0, 0, held=(FIRST, size))]), worker=b"b")
    play.play(Submitted(SQUARE, [needs(200)]))
    assert len(play.assigned(b"b")) == 1
    play.hello(b"a", pid=ord("a"))
    play.play(Submitted(CUBE, [needs(201, FIRST)]))
    return play


def test_a_call_waits_for_the_worker_that_has_its_input_if_that_is_sooner_than_to_fetch_it() -> (
    None
):
    play = busy_holder(1 << 30)
    assert (play.sent(Fetch), play.assigned()) == ([], [])
    [busy] = play.core.state.runs.values()
    play.say(Results([Result(busy.number, 0, 1, VALUES, 1.0)]), b"value", worker=b"b")
    assert [one.task for one in play.assigned(b"b")] == [201]
    assert not play.core.state.near


def test_a_hand_over_has_a_limit_and_waits_for_no_lost_worker() -> None:
    play = busy_holder(1 << 30)
    play.later(10.0, beats=[b"a", b"b"])
    assert play.sent(Fetch) == []
    play.later(12.0, beats=[b"a", b"b"])
    assert play.sent(Fetch, b"b") == [Fetch([input_name(FIRST)])]
    play = busy_holder(1 << 30)
    play.say(Goodbye("killed", [play.core.state.last_run]), worker=b"b")
    [again] = play.assigned(b"a")
    assert list(again.kept) == [(0, FIRST)]
    assert not play.core.state.near


def test_a_result_that_is_soon_fetched_is_fetched() -> None:
    play = busy_holder(MB)
    assert play.sent(Fetch, b"b") == [Fetch([input_name(FIRST)])]
