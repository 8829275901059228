"""How calls are settled, and what is kept of that."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from gridengine.dispatcher.core import objects, outcomes
from gridengine.dispatcher.core.calls import EXCEPTION_BYTES, OpenTask, Span
from gridengine.dispatcher.core.outcomes import facts_of, has_failed, unwritable
from gridengine.dispatcher.core.verdicts import Fact
from gridengine.errors import Cancelled
from gridengine.requests import CallsFinished, Function, ResultData, TasksCancelled
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import ANY, Demand
from gridengine.serialize.shared_objects import SharedObject
from gridengine.wire.messages import MEMORY, RAISED, Assignment, Result, Results
from tests.support.core_play import Play, chunk, exhausted, lost_for_good

ONE: Any = object()
"""In the place of an open task."""


def span(start: int, stop: int) -> Span:
    return Span(ONE, start, stop, ANY, 1)


def parts(spans: list[Span]) -> list[tuple[int, int]]:
    return [(one.start, one.stop) for one in spans]


@pytest.mark.parametrize(
    ("unwanted", "outside", "inside"),
    [
        ((0, 2), [(2, 10), (20, 25)], []),
        ((2, 4), [(4, 10), (20, 25)], [(2, 4)]),
        ((5, 6), [(2, 5), (6, 10), (20, 25)], [(5, 6)]),
        ((8, 22), [(2, 8), (22, 25)], [(8, 10), (20, 22)]),
        ((0, 99), [], [(2, 10), (20, 25)]),
        ((10, 20), [(2, 10), (20, 25)], []),
        ((5, 5), [(2, 10), (20, 25)], []),
    ],
)
def test_wanted_and_unwanted_calls_of_a_run_are_told_apart(
    unwanted: tuple[int, int], outside: list[tuple[int, int]], inside: list[tuple[int, int]]
) -> None:
    found = [one.split([unwanted]) for one in (span(2, 10), span(20, 25))]
    wanted, rejected = ([*first, *second] for first, second in zip(*found, strict=True))
    assert (parts(wanted), parts(rejected)) == (outside, inside)


def test_ranges_are_cut_out_in_any_order() -> None:
    ranges = [(20, 30), (3, 5), (5, 7), (4, 6)]
    wanted, rejected = span(2, 25).split(ranges)
    assert parts(wanted) == [(2, 3), (7, 20)]
    assert parts(rejected) == [(3, 7), (20, 25)]


def open_task(play: Play) -> OpenTask:
    [one] = play.core.state.open_tasks.values()
    return one


def raised(play: Play, one: Assignment, payload: bytes) -> CallsFinished:
    play.say(Results([Result(one.run, one.start, one.start + 1, RAISED, 1.0)]), payload)
    [settled] = play.seen(CallsFinished)
    return settled


def test_calls_that_end_in_any_order_are_each_settled_once_and_known_as_settled() -> None:
    play = Play()
    one = chunk(play, size=6)
    play.play(TasksCancelled([], signal.SIGTERM, [(one.task, 10, 12)]))
    assert [(each.start, each.stop) for each in play.seen(CallsFinished)] == [(10, 12)]
    play.values(one, 0, 2)
    play.values(one, 2, 3)
    assert open_task(play).details.settled == [(10, 12), (0, 3)]
    assert open_task(play).unsettled == 12 - 5
    play.values(one, 0, 3)  # once more
    assert play.seen(CallsFinished) == []
    assert open_task(play).unsettled == 12 - 5


def test_the_last_call_of_a_task_closes_it() -> None:
    play = Play()
    one = play.running(2)
    play.done(one)
    assert [each.last for each in play.seen(CallsFinished)] == [False]
    play.done(*play.assigned())
    assert [each.last for each in play.seen(CallsFinished)] == [True]
    assert not play.core.state.open_tasks
    assert not play.core.state.submitters


def test_done_failed_and_cancelled_calls_are_counted() -> None:
    play = Play()
    one = chunk(play, size=6)
    before = play.core.state.done
    play.values(one, 0, 2)
    play.say(Results([Result(one.run, 2, 3, RAISED, 1.0)]), b"pickled")
    play.play(TasksCancelled([], signal.SIGTERM, [(one.task, 10, 12)]))
    state = play.core.state
    assert (state.done - before, state.failed, state.cancelled) == (2, 1, 2)
    assert [failure.cancelled for _, failure in state.failures] == [False, True]


@pytest.mark.parametrize(("codec", "kept"), [("pickle", EXCEPTION_BYTES), ("json", 0)])
def test_an_exception_s_text_is_kept_by_its_beginning(codec: str, kept: int) -> None:
    play = Play()
    payload = bytes(range(256)) * EXCEPTION_BYTES
    named = Function(b"f", (), (), b"/", "f", codec=codec)
    settled = raised(play, play.running(retries=0, function=named), payload)
    assert settled.payload is not None
    assert bytes(settled.payload[0]) == payload
    [(_, failure)] = play.core.state.failures
    assert failure.exception == payload[:kept]


@pytest.mark.parametrize(
    ("factor", "most", "facts"),
    [(2.0, 8, {Fact.MORE}), (2.0, 7, {Fact.STUCK}), (1.0, 8, set()), (0.5, 8, set())],
)
def test_a_call_may_grow_where_a_worker_has_room_for_more(
    factor: float, most: int, facts: set[Fact]
) -> None:
    play = Play(resources=Cores(1) & Memory(most))
    play.submit(demand=Demand(Memory(4)), escalate_memory=factor)
    [one] = play.core.state.open_tasks.values()
    found = facts_of(play.core.state, one.only_span())
    assert found & {Fact.MORE, Fact.STUCK} == facts


def test_each_attempt_that_ran_out_of_memory_has_more_than_the_one_before() -> None:
    play = Play(resources=Cores(1) & Memory(4))
    play.hello()
    play.submit(demand=Demand(Memory(1)), escalate_memory=2.0, retries=5)
    limits = []
    while one := play.assigned():
        limits.append(one[0].memory // 2**30)
        play.crash(one[0], 0, MEMORY)
    assert limits == [1, 2, 4]
    [settled] = play.seen(CallsFinished)
    assert len(settled.attempts) == 3


@pytest.mark.parametrize(
    ("data", "failed"),
    [
        (ResultData((b"value",)), False),
        (ResultData((b"error",), raised=True), True),
        (ResultData(error=Cancelled("no")), True),
        (ResultData(cancelled=True), True),
        (ResultData(()), False),
    ],
)
def test_a_result_has_failed_when_there_is_no_value(data: ResultData, failed: bool) -> None:
    assert has_failed(data) is failed


def test_results_that_others_load_too_are_read_only() -> None:
    large = bytearray(objects.SMALL_INPUT + 1)
    small, same, view = unwritable([bytearray(b"small"), b"same", large])
    assert (type(small), bytes(small)) == (bytes, b"small")
    assert same == b"same"
    assert isinstance(view, memoryview)
    assert view.readonly
    assert view.obj is large


def test_the_error_of_a_crash_names_signal_host_job_log_and_attempts() -> None:
    text = str(exhausted(Play()).error)
    assert "the process that ran call 0 of square was killed by SIGSEGV" in text
    assert "host: node-w" in text
    assert "cluster job: 41" in text
    assert "log: /runs/x/1.log" in text
    assert (
        text.count(
            "attempt: on node-w (cluster job 41), after 1.5 s: its process was killed by SIGSEGV"
        )
        == 3
    )


def test_the_error_names_the_call_of_a_chunk() -> None:
    play = Play()
    one = chunk(play, retries=0)
    play.values(one, 0, 3)
    play.crash(one, 3)
    [settled] = play.seen(CallsFinished)
    assert (settled.start, settled.stop) == (3, 4)
    assert "call 3 of square" in str(settled.error)


def test_the_error_of_a_loss_names_reason_host_job_log_and_attempts() -> None:
    text = str(lost_for_good(Play()).error)
    for part in (
        "its own words",
        "host: node-w",
        "cluster job: 41",
        "log: /runs/x/1.log",
        "attempt: on node-w (cluster job 41)",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("exitcode", "remedy"),
    [
        (-9, "ask for more with resources=Memory(M)"),
        (3, "InlineScheduler()"),
        (-11, "InlineScheduler()"),
    ],
)
def test_the_remedy_of_a_crash_follows_from_how_it_ended(exitcode: int, remedy: str) -> None:
    play = Play()
    play.crash(play.running(retries=0), 0, exitcode=exitcode)
    [settled] = play.seen(CallsFinished)
    assert settled.error is not None
    assert remedy in (settled.error.hint or "")


def test_the_remedy_of_a_crash_by_memory_names_shared_objects_if_the_call_has_any() -> None:
    for needs, named in (((), False), ((SharedObject(b"name of an array", (b"data",)),), True)):
        play = Play()
        play.crash(play.running(needs=needs, retries=0), 0, exitcode=-11)
        [settled] = play.seen(CallsFinished)
        assert settled.error is not None
        assert ("an array of share()" in (settled.error.hint or "")) == named


@pytest.mark.parametrize(
    ("exitcode", "words"),
    [
        (3, "exited with status 3"),
        (-9, "was killed by SIGKILL"),
        (-200, "was killed by signal 200"),
    ],
)
def test_an_exit_code_is_told_in_words(exitcode: int, words: str) -> None:
    assert outcomes.ending_of(exitcode) == words


def test_a_process_of_this_machine_is_no_cluster_job() -> None:
    play = Play()
    play.crash(play.running(log="", retries=0), 0)
    [settled] = play.seen(CallsFinished)
    assert settled.error is not None
    assert settled.error.job is None
