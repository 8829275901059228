"""What follows a fault: each combination of a fault and facts, and the table of the page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations
from pathlib import Path

import pytest

from gridengine.dispatcher.core.verdicts import OWN, TABLE, Fact, Fault, Verdict, judge
from gridengine.errors import Cancelled, OutOfMemory, TimeoutError, WorkerCrashed, WorkerLost
from gridengine.requests import CallsFinished
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.wire.messages import CANCELLED, CRASH, MEMORY, TIMEOUT
from tests.support.core_play import Play, attempts_to_come, chunk

PAGE = Path(__file__).parents[4] / "docs/reliability.md"
ALL = [
    frozenset(facts)
    for facts in chain.from_iterable(combinations(Fact, size) for size in range(len(Fact) + 1))
    if not {Fact.ONCE, Fact.LEFT} <= {*facts} and not {Fact.MORE, Fact.STUCK} <= {*facts}
]
"""All facts that may hold together."""
OF_WORKERS = [fault for fault in Fault if "worker" in fault.value and fault != Fault.INTERRUPTED]
EXCEPTIONS = [Fault.RAISED, Fault.RETRY_ON, Fault.MEMORY_ERROR]


def every(*faults: Fault) -> Iterator[tuple[Fault, frozenset[Fact], Verdict]]:
    for fault in faults:
        for facts in ALL:
            yield fault, facts, judge(fault, facts)


def test_each_fault_has_a_verdict_whatever_holds() -> None:
    assert set(TABLE) == set(Fault)
    assert len(list(every(*Fault))) == len(Fault) * len(ALL)


def test_no_row_of_the_table_is_hidden_by_another() -> None:
    for fault, rows in TABLE.items():
        decided = {next(row for row in rows if facts.issuperset(row)) for facts in ALL}
        assert decided == set(rows), fault


def test_a_call_that_may_run_only_once_runs_again_only_if_it_has_stopped_by_itself() -> None:
    once = [(fault, verdict) for fault, facts, verdict in every(*Fault) if Fact.ONCE in facts]
    assert {fault for fault, verdict in once if verdict.again} == {Fault.INTERRUPTED}


def test_a_retry_is_charged_only_where_one_is_left() -> None:
    assert all(Fact.LEFT in facts for _, facts, verdict in every(*Fault) if verdict.charged)


def test_memory_grows_only_in_a_retry_and_where_there_is_more() -> None:
    grown = [(facts, verdict) for _, facts, verdict in every(*Fault) if verdict.grows]
    assert grown != []
    assert all(Fact.MORE in facts and verdict.charged for facts, verdict in grown)


def test_a_call_either_runs_again_or_has_an_error_which_only_exceptions_have_themselves() -> None:
    for fault, _, verdict in every(*Fault):
        assert not (verdict.again and verdict.error)
        assert verdict is not OWN or fault in [*EXCEPTIONS, Fault.INTERRUPTED]
        assert verdict.again or not (verdict.charged or verdict.grows)


def test_a_cancelled_call_never_runs_again_and_is_told_so_unless_it_has_raised() -> None:
    for fault, facts, verdict in every(*Fault):
        if Fact.CANCELLED in facts:
            assert verdict == (OWN if fault in EXCEPTIONS else Verdict(error=Cancelled))


def test_only_a_call_in_progress_is_told_that_it_used_up_its_workers_time_or_memory() -> None:
    for _, facts, verdict in every(*OF_WORKERS):
        assert verdict.error not in (TimeoutError, OutOfMemory) or Fact.IN_PROGRESS in facts


def test_a_call_whose_result_is_lost_is_told_of_the_loss_alone() -> None:
    found = {verdict.error for _, _, verdict in every(Fault.UNANSWERED, Fault.LEFT_OUT)}
    assert found == {None, Cancelled, WorkerCrashed, WorkerLost}


@pytest.mark.parametrize("reason", [CRASH, TIMEOUT, MEMORY, CANCELLED])
def test_calls_that_had_returned_are_told_which_call_ended_their_process(reason: str) -> None:
    play = Play()
    one = chunk(play, retries=0, timeout=5.0)
    play.crash(one, 2, reason, exitcode=-9)
    before, last = sorted(play.seen(CallsFinished), key=lambda each: each.start)
    assert (before.start, before.stop, type(before.error)) == (0, 2, WorkerCrashed)
    assert "2 calls of square had returned, and the result was lost" in str(before.error)
    assert "ended in call 2 of square: it" in str(before.error)
    assert type(last.error) is judge(FAULTS[reason], {Fact.ONCE}).error


FAULTS = {
    CRASH: Fault.CRASHED,
    TIMEOUT: Fault.OVER_TIME,
    MEMORY: Fault.OUT_OF_MEMORY,
    CANCELLED: Fault.ENDED,
}


def finished(play: Play) -> list[tuple[int, int, type]]:
    found = [(each.start, each.stop, type(each.error)) for each in play.seen(CallsFinished)]
    return sorted(found, key=lambda each: each[0])


@pytest.mark.parametrize("fault", [TimeoutError, OutOfMemory])
def test_a_worker_over_its_limits_charges_the_call_in_progress_alone(
    fault: type[TimeoutError],
) -> None:
    play = Play(max_workers=1)
    one = play.running(1)
    play.done(one, seconds=1e-3)
    play.submit(12, retries=0)
    given = play.assigned()
    assert given[0].stop - given[0].start > 1
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.FAILED, "was over it", fault=fault)
    play.later(1)
    ended = finished(play)
    assert ended[0] == (0, 1, fault)
    assert {kind for _, _, kind in ended[1:]} == {WorkerLost}
    assert sum(stop - start for start, stop, _ in ended) == given[-1].stop


def test_calls_not_begun_by_a_worker_over_its_time_run_again() -> None:
    play = Play(max_workers=1)
    play.done(play.running(1), seconds=1e-3)
    play.submit(12)
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.FAILED, "its time", fault=TimeoutError)
    play.now += 1e6
    play.later(1)
    assert finished(play) == [(0, 1, TimeoutError)]
    assert attempts_to_come(play, below=12) == dict.fromkeys(range(1, 12), 1)


def test_a_batch_that_waits_behind_a_worker_s_last_call_has_not_used_up_its_time() -> None:
    play = Play(walltime=100.0, beat_seconds=1000.0, max_workers=1)
    play.learn(seconds=1e-3)
    first, behind = play.submit(1, 1)
    assert {one.task for one in play.assigned()} == {first.id, behind.id}
    play.later(91.0)
    assert [(each.task, type(each.error)) for each in play.seen(CallsFinished)] == [
        (first.id, TimeoutError)
    ]
    assert attempts_to_come(play) == {0: 1}


# ------------------------------------------------------------------ the page


def words_of(verdict: Verdict) -> str:
    if verdict.again:
        grows = " with more memory" * verdict.grows
        return f"runs again as a retry{grows}" if verdict.charged else "runs again at no charge"
    return "ends with its exception" if verdict.error is None else f"`{verdict.error.__name__}`"


def row_of(fault: Fault) -> str:
    *rows, (_, otherwise) = TABLE[fault].items()
    cases = [
        f"{' and '.join(fact.value for fact in facts)}: {words_of(verdict)}"
        for facts, verdict in rows
    ]
    return f"| {fault.value} | {'; '.join([*cases, 'else ' * bool(cases) + words_of(otherwise)])} |"


def test_the_page_shows_the_table() -> None:
    table = "\n".join(["| fault | the call |", "|---|---|", *map(row_of, Fault)])
    assert f"\n\n{table}\n\n" in PAGE.read_text(), f"put this on the page:\n{table}"
