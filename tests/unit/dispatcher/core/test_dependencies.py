"""Calls that need the results of others, played on the core in any order."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.core import objects, workers_and_queues
from gridengine.dispatcher.core.events import Closing, Event, Send
from gridengine.errors import Cancelled, GridEngineError, WorkerCrashed
from gridengine.requests import (
    CallsFinished,
    Effect,
    NamesForgotten,
    ResultData,
    ResultWanted,
    Submitted,
    Supplied,
    Task,
    TasksCancelled,
    WantAnswered,
)
from gridengine.resources import Cores
from gridengine.wire.messages import (
    CRASH,
    NO_INPUT,
    RAISED,
    VALUES,
    Assign,
    Assignment,
    Define,
    Forget,
    Keep,
    Result,
    Results,
    Returned,
    input_name,
)
from tests.support.core_play import SQUARE, Play, function
from tests.support.tasks import make_task

R = 1000
"""Task `n` makes the result with the reference `R + n`."""
LARGE = bytes(objects.SMALL_INPUT + 1)


class Graph(Play):
    """Tasks are known by their numbers, what they bring by `R` and that."""

    def __init__(self, **policy: Any) -> None:
        super().__init__(**policy)
        self.assignments: dict[int, tuple[bytes, Assignment]] = {}
        """Of each task the last, and its worker."""
        self.told: dict[int, list[str]] = {}
        """Of each task what became of it: once, or it is settled twice."""

    def play(self, event: Event) -> list[Effect]:
        super().play(event)
        for send in self.seen(Send):
            if isinstance(send.message, Assign):
                for one in send.message.assignments:
                    self.assignments[one.task] = send.worker, one
        for finished in self.seen(CallsFinished):
            self.told.setdefault(finished.task, []).append(outcome(finished))
        return self.effects

    def add(self, *tasks: Task) -> list[Effect]:
        return self.play(Submitted(SQUARE, tasks))

    def release(self, *numbers: int) -> list[Effect]:
        return self.play(NamesForgotten(references=[R + number for number in numbers]))

    def supply(self, number: int, *payload: bytes, **data: Any) -> list[Effect]:
        return self.play(Supplied(R + number, ResultData(payload or None, **data)))

    def finish(self, task: int, *payload: bytes, status: int = VALUES) -> list[Effect]:
        """Have the worker that has a task answer it."""
        worker, one = self.assignments[task]
        buffers = payload or (b"v%d" % task,)
        result = Result(one.run, one.start, one.stop, status, 1.0, len(buffers))
        return self.say(Results([result]), *buffers, worker=worker)

    def finish_all(self) -> list[int]:
        """Have workers answer all that they have, and get, one by one; return the tasks in this
        order.
        """
        order = []
        while left := [task for task in self.assignments if task not in self.told]:
            self.finish(left[0])
            order.append(left[0])
        return order

    def given(self) -> list[tuple[int, tuple[int, ...], list[bytes]]]:
        """What the last event had assigned: each task, the inputs' numbers, and its buffers."""
        found = []
        for send in self.seen(Send):
            if isinstance(send.message, Assign):
                offset = 0
                for one in send.message.assignments:
                    buffers = list(send.buffers[offset : offset + one.buffers])
                    offset += one.buffers
                    numbers = tuple(given.reference - R for given in one.inputs)
                    found.append((one.task, numbers, buffers))
        return found

    def began(self) -> list[int]:
        return [one.task for one in self.assigned()]

    def nothing_is_kept(self) -> bool:
        state = self.core.state
        return not (
            state.awaited
            or state.released_early
            or state.open_tasks
            or any(known.result for known in state.objects.values())
            or any(len(name) == 8 for one in state.workers.values() for name in one.functions)
        )


def task(number: int, *after: int, kept: bool = True, **options: Any) -> Task:
    """Return a task that needs the results of others; with `kept` others may need its own."""
    own = ((0, R + number),) if kept else ()
    return make_task(
        number, (b"calls",), after=tuple(R + one for one in after), kept=own, **options
    )


def outcome(event: CallsFinished) -> str:
    if event.recalled:
        return "cancelled" if event.path else "recalled"
    return "raised" if event.raised else "failed" if event.error is not None else "done"


@pytest.fixture(params=[None, Cores(1)], ids=["alike", "shared"])
def play(request: pytest.FixtureRequest) -> Graph:
    """Return a core with one worker."""
    graph = Graph(resources=request.param)
    graph.hello()
    return graph


# ------------------------------------------------------------------ what a call gets


@pytest.mark.parametrize("when", ["before its source", "behind its source", "after its source"])
def test_a_call_begins_when_its_input_is_there_and_has_it_after_its_own_buffers(
    play: Graph, when: str
) -> None:
    dependent = task(2, 1, kept=False)
    if when == "before its source":
        play.add(dependent)
        assert play.began() == []
    play.add(task(1))
    assert play.assigned()[0].kept
    if when == "behind its source":
        play.add(dependent)
        assert play.began() == []
    play.finish(1)
    if when == "after its source":
        play.add(dependent)
    assert play.given() == [(2, (1,), [b"calls", b"v1"])]
    assert not play.assigned()[0].kept


def test_an_input_that_is_named_twice_is_sent_once(play: Graph) -> None:
    play.add(task(1), task(2, 1, 1))
    play.finish(1)
    assert play.given() == [(2, (1,), [b"calls", b"v1"])]
    play.finish(2)
    play.release(1, 2)
    assert play.nothing_is_kept()


def test_a_call_that_crashed_is_given_its_input_again(play: Graph) -> None:
    play.add(task(1), task(2, 1, retries=1))
    play.finish(1)
    play.crash(play.assignments[2][1], 0)
    assert play.given() == [(2, (1,), [b"calls", b"v1"])]


def test_a_call_whose_inputs_have_come_begins_before_its_submitters_other_calls(
    play: Graph,
) -> None:
    play.add(task(1), task(2), task(3, 1))
    assert play.finish_all() == [1, 3, 2]


@pytest.mark.parametrize("result", [b"small", LARGE])
def test_the_bound_of_a_batch_counts_the_bytes_of_its_inputs(
    result: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_and_queues, "MOST_BYTES", 2 * (len(b"calls") + len(result)))
    play = Graph()
    play.learn(seconds=1e-6)
    for number in range(20):
        play.supply(100 + number, result)
    play.add(*(task(10 + number, 100 + number) for number in range(20)))
    assert [len(message.assignments) for message in play.sent(Assign)][:2] == [3, 3]


def test_a_large_result_is_defined_to_a_worker_once_and_forgotten_after_its_last_call(
    play: Graph,
) -> None:
    play.add(task(1), task(2, 1, kept=False), task(3, 1, kept=False))
    play.release(1)
    play.finish(1, LARGE)
    assert [(one.function, one.result) for one in play.sent(Define)] == [(input_name(R + 1), True)]
    [(number, inputs, buffers)] = play.given()
    assert (inputs, buffers) == ((1,), [b"calls"])
    play.finish(number)
    assert play.sent(Define) == play.sent(Forget) == []
    play.finish(*play.began())
    assert play.sent(Forget) == [Forget([input_name(R + 1)])]
    assert play.nothing_is_kept()


def test_workers_keep_a_bounded_number_of_results_that_new_calls_alone_may_need(
    play: Graph,
) -> None:
    numbers = range(1, objects.IDLE_RESULTS + 3)
    for number in numbers:
        play.supply(number, LARGE)
        play.add(task(100 + number, number, kept=False))
        assert len(play.sent(Define)) == (1 if number > 1 else 2)  # the function before the first
        play.finish(100 + number)
        forgotten = [Forget([input_name(R + number - objects.IDLE_RESULTS)])]
        assert play.sent(Forget) == (forgotten if number > objects.IDLE_RESULTS else [])
    for number in (1, numbers[-1]):  # the one is sent again, the other is there
        play.add(task(200 + number, number, kept=False))
        assert len(play.sent(Define)) == (number == 1)
        play.finish(200 + number)
    play.release(*numbers)
    assert play.nothing_is_kept()
    assert not play.core.state.idle_results


def test_a_result_passed_on_cannot_be_written_to(play: Graph) -> None:
    play.add(task(1))
    _, one = play.assignments[1]
    buffers = memoryview(bytearray(3)), memoryview(bytearray(LARGE))
    play.say(Results([Result(one.run, 0, 1, VALUES, 1.0, 2)]), *buffers)  # type: ignore[arg-type]
    [finished] = play.seen(CallsFinished)
    assert finished.payload is not None
    assert all(memoryview(buffer).readonly for buffer in finished.payload)


# ------------------------------------------------------------------ what the client supplies


@pytest.mark.parametrize(
    "acts", ["need supply", "supply need", "supply other need", "make need supply end"]
)
def test_a_supplied_result_is_as_good_as_one_that_a_call_makes_and_the_first_counts(
    play: Graph, acts: str
) -> None:
    for act in acts.split():
        if act == "need":
            play.add(task(2, 1))
        elif act == "make":
            play.add(task(1))
        elif act == "end":
            play.finish(1)
        else:
            play.supply(1, b"here" if act == "supply" else b"other")
    assert play.given() == [(2, (1,), [b"calls", b"here"])]


def test_a_result_that_is_wanted_too_late_is_missing_until_it_is_supplied(play: Graph) -> None:
    play.add(task(1, kept=False))
    play.finish(1)
    play.play(ResultWanted(1, 0, R + 1))
    assert play.effects == [WantAnswered(R + 1, missing=True)]
    play.add(task(2, 1))
    assert play.began() == []
    play.supply(1, b"here")
    assert play.given() == [(2, (1,), [b"calls", b"here"])]


def test_ended_calls_of_a_task_are_missing_inputs_no_more(play: Graph) -> None:
    play.submit(3)
    [one] = play.assigned()
    play.done(one)
    play.play(ResultWanted(1, 0, R))
    assert play.effects == [WantAnswered(R, missing=True)]
    play.play(ResultWanted(1, 1, R + 1))
    assert play.seen(WantAnswered) == []
    assert play.sent(Keep) == [Keep(2, 1, R + 1)]


@pytest.mark.parametrize("names", [b"find_class", b"make_class"])
def test_results_that_only_the_caller_can_load_are_supplied_to_late_calls(
    play: Graph, names: bytes
) -> None:
    play.add(task(1, kept=False), task(2, 1))
    play.play(ResultWanted(1, 0, R + 1))
    play.finish(1, names)
    if names == b"make_class":
        assert play.seen(WantAnswered) == [WantAnswered(R + 1, missing=False)]
        assert play.began() == [2]
    else:
        assert play.seen(WantAnswered) == [WantAnswered(R + 1, missing=True)]
        assert play.began() == []
        play.supply(1, b"class and all")
        assert play.given() == [(2, (1,), [b"calls", b"class and all"])]


def test_a_result_wanted_before_its_assignment_is_pickled_for_others(play: Graph) -> None:
    play.add(task(9), task(1, kept=False))
    play.play(ResultWanted(1, 0, R + 1))
    assert play.effects == [WantAnswered(R + 1, missing=False)]
    play.finish(9)
    assert play.assigned()[0].kept


def test_a_failure_or_a_cancellation_that_is_supplied_travels(play: Graph) -> None:
    play.add(task(2, 1))
    play.supply(1, b"exception", raised=True, path=("call 3 of load", "fit"))
    [finished] = play.seen(CallsFinished)
    assert (finished.payload, finished.raised) == ((b"exception",), True)
    assert finished.path == ("call 3 of load", "fit")
    play.add(task(5, 4), task(6, 5))
    play.supply(4, cancelled=True)
    assert play.told == {2: ["raised"], 5: ["cancelled"], 6: ["cancelled"]}


# ------------------------------------------------------------------ failure and cancellation


def test_an_exception_is_raised_by_all_dependents_and_no_other_call(play: Graph) -> None:
    play.add(task(1), task(2, 1), task(3, 2), task(4), task(5, 4, 3), task(6, 4))
    play.finish(1, b"exception", status=RAISED)
    raised = [one for one in play.seen(CallsFinished) if one.task > 1]
    assert [(one.task, one.raised, list(one.payload or ())) for one in raised] == [
        (number, True, [b"exception"]) for number in (2, 3, 5)
    ]
    assert [one.path for one in raised] == [
        ("call 0 of square",),
        ("call 0 of square", "square"),
        ("call 0 of square", "square", "square"),
    ]
    assert play.finish_all() == [4, 6]
    play.release(*range(1, 7))
    assert play.nothing_is_kept()


def test_an_error_that_is_not_the_call_s_own_travels_as_it_is(play: Graph) -> None:
    play.add(task(1, retries=0), task(2, 1))
    play.crash(play.assignments[1][1], 0, CRASH)
    first, second = play.seen(CallsFinished)
    assert isinstance(second.error, WorkerCrashed)
    assert second.error is first.error


def test_a_chain_of_any_length_fails_without_recursion() -> None:
    play, count = Graph(), 2 * sys.getrecursionlimit()
    play.hello()
    play.add(task(1), *(task(number, number - 1) for number in range(2, count + 1)))
    play.release(*range(1, count + 1))
    play.finish(1, b"exception", status=RAISED)
    assert play.told == {number: ["raised"] for number in range(1, count + 1)}
    [*_, last] = play.seen(CallsFinished)
    assert len(last.path) <= 8
    assert "..." in last.path
    assert play.nothing_is_kept()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_dependents_of_a_cancelled_call_are_cancelled_and_nothing_else(
    play: Graph, number: int
) -> None:
    play.add(task(1), task(2, 1), task(3, 2), task(4, 3), task(5, 1))
    play.play(TasksCancelled([2], number))
    assert play.told == {2: ["failed"], 3: ["cancelled"], 4: ["cancelled"]}
    assert isinstance(play.seen(CallsFinished)[0].error, Cancelled)
    assert play.finish_all() == [1, 5]


def test_closing_settles_each_call_once(play: Graph) -> None:
    play.add(task(1), task(2, 1), task(3, 1, 2), task(4, 77))
    play.play(Closing())
    assert play.told == {number: ["failed"] for number in range(1, 5)}
    play.add(task(5, 1), task(6, 5))
    assert {number: len(told) for number, told in play.told.items()} == dict.fromkeys(
        range(1, 7), 1
    )


def test_a_call_that_needs_itself_is_refused(play: Graph) -> None:
    play.add(task(1, 1), task(2, 1))
    assert play.told == {1: ["failed"], 2: ["failed"]}
    assert "needs its own result" in str(play.seen(CallsFinished)[0].error)


# ------------------------------------------------------------------ calls behind their sources


@pytest.fixture
def quick() -> Graph:
    """Return a core with one worker whose calls are quick."""
    play = Graph()
    play.learn(seconds=1e-5)
    play.told.clear()
    play.assignments.clear()
    return play


def behind(play: Graph) -> dict[int, list[int]]:
    """Return what was assigned, in order: of each task those whose results its runner is to
    have.
    """
    tasks = {one.run: number for number, (_, one) in play.assignments.items()}
    return {
        one.task: [tasks[given.run] for given in one.inputs if given.run] for one in play.assigned()
    }


def give_back(play: Graph, *numbers: int, reason: str = NO_INPUT) -> None:
    """Have the worker give back tasks."""
    play.say(Returned([play.assignments[number][1].run for number in numbers], reason))


@pytest.mark.parametrize(("second", "third"), [((1,), (2,)), ((), (1, 2))])
def test_a_quick_call_goes_behind_those_whose_results_it_alone_needs(
    quick: Graph, second: tuple[int, ...], third: tuple[int, ...]
) -> None:
    quick.add(task(1), task(2, *second), task(3, *third, kept=False))
    assert behind(quick) == {1: [], 2: [*second], 3: [*third]}
    assert quick.finish_all() == [1, 2, 3]
    quick.release(1, 2)
    assert quick.nothing_is_kept()


@pytest.mark.parametrize("others", [(2, 3), (2,)])
def test_shared_single_and_foreign_inputs_are_waited_for(
    quick: Graph, others: tuple[int, ...]
) -> None:
    once = {"retries": 0} if others == (2,) else {}
    quick.add(task(1), *(task(number, 1, **once) for number in others))
    assert behind(quick) == {1: []}
    quick.finish(1)
    assert not any(behind(quick).values())
    quick.add(task(4))
    quick.play(Submitted(function(7), [task(5, 4)]))
    quick.finish_all()
    assert quick.told[5] == ["done"]


def test_a_slow_call_waits(quick: Graph) -> None:
    next(iter(quick.core.state.objects.values())).pace.exceeded(0.01)
    quick.add(task(1), task(2, 1))
    assert behind(quick) == {1: []}


def test_a_call_without_its_input_fails_with_the_call_that_made_none(quick: Graph) -> None:
    quick.add(task(1), task(2, 1), task(3, 2))
    quick.finish(1, b"exception", status=RAISED)
    assert quick.told == {1: ["raised"]}
    give_back(quick, 2)
    give_back(quick, 3)
    assert quick.told == {1: ["raised"], 2: ["raised"], 3: ["raised"]}
    quick.release(1, 2, 3)
    assert quick.nothing_is_kept()


@pytest.mark.parametrize("known", [False, True])
def test_a_call_given_back_begins_again_once_its_input_is_known(quick: Graph, known: bool) -> None:
    quick.add(task(1), task(2, 1))
    if known:
        quick.finish(1)
    give_back(quick, 2)
    if not known:
        assert quick.assigned() == []
        quick.finish(1)
    assert behind(quick) == {2: []}
    assert quick.assigned()[0].attempt == 1


def test_a_call_given_back_is_chained_behind_no_other(quick: Graph) -> None:
    quick.add(task(1), task(2, 1))
    give_back(quick, 1, 2, reason="")
    assert behind(quick) == {1: []}


def test_a_worker_that_returns_calls_without_inputs_is_not_blamed(quick: Graph) -> None:
    quick.add(task(1), *(task(number, number - 1) for number in range(2, 10)))
    for number in range(9, 1, -1):
        give_back(quick, number)
    assert b"w" in quick.core.state.workers


def test_a_call_that_ended_its_runner_is_charged_though_its_input_went_with_it(
    quick: Graph,
) -> None:
    quick.add(task(1), task(2, 1, retries=1))
    quick.crash(quick.assignments[2][1], 0, CRASH)
    give_back(quick, 1, reason="")
    quick.finish(1)
    assert quick.assignments[2][1].attempt == 2
    quick.crash(quick.assignments[2][1], 0, CRASH)
    assert quick.told[2] == ["failed"]


# ------------------------------------------------------------------ how long results are kept


@pytest.mark.parametrize("payload", [b"small", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("order", list(itertools.permutations(["1", "2", "r1", "r2"])))
def test_nothing_is_kept_whenever_references_are_released(
    play: Graph, order: Sequence[str], payload: bytes
) -> None:
    play.add(task(1), task(2, 1))
    for act in order:
        if act[0] == "r":
            play.release(int(act[1]))
        elif int(act) in play.assignments:
            play.finish(int(act), payload)
    play.finish_all()
    assert play.told == {1: ["done"], 2: ["done"]}
    assert play.nothing_is_kept()


def test_a_call_that_needs_a_released_result_fails_with_words(play: Graph) -> None:
    play.add(task(1))
    play.release(1)
    play.add(task(2, 1))
    [finished] = play.seen(CallsFinished)
    assert isinstance(finished.error, GridEngineError)
    assert "was let go" in str(finished.error)


def test_a_function_that_holds_a_result_is_forgotten_with_its_last_call(play: Graph) -> None:
    play.add(task(1))
    play.finish(1, LARGE)
    holding = replace(function(7), after=(R + 1,))
    play.play(Submitted(holding, [task(2, 1)]))
    play.release(1)
    play.finish(2)
    assert play.sent(Forget) == [Forget([b"f7"]), Forget([input_name(R + 1)])]
