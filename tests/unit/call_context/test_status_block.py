"""What an agent and its runner write for each other."""

from __future__ import annotations

import os

import pytest

from gridengine.call_context.status_block import (
    BARRED_FROM,
    BARRED_TO,
    CUT,
    CUT_RUN,
    LISTENS,
    RUN,
    STOP_BY,
    STOP_NOW,
    UNTIL,
    WORDS_SIZE,
    RunnerStatus,
    map_words,
)
from gridengine.system import nameless_memory


@pytest.fixture
def status() -> RunnerStatus:
    return RunnerStatus(memoryview(bytearray(WORDS_SIZE)).cast("Q"))


def barred(status: RunnerStatus) -> tuple[int, int]:
    return status.words[BARRED_FROM], status.words[BARRED_TO]


def test_both_ends_map_the_same_words() -> None:
    fd = nameless_memory()
    os.ftruncate(fd, WORDS_SIZE)
    agent, runner = RunnerStatus(map_words(fd)), map_words(fd)
    os.close(fd)
    runner[RUN] = 7
    assert agent.run == 7


def test_barred_calls_still_to_come_stay_barred(status: RunnerStatus) -> None:
    status.bar(8, 12, current=5)
    status.bar(6, 6, current=5)
    assert barred(status) == (6, 12)
    status.bar(15, 16, current=5)
    assert barred(status) == (6, 16)


def test_barred_calls_that_are_past_are_barred_no_more(status: RunnerStatus) -> None:
    status.bar(8, 12, current=5)
    status.bar(22, 23, current=20)
    assert barred(status) == (22, 23)
    assert [status.is_barred(run) for run in (12, 22, 23, 24)] == [False, True, True, False]
    assert status.last_barred == 23


def test_nothing_is_barred_at_first_nor_after_it_was_lifted(status: RunnerStatus) -> None:
    assert status.last_barred == 0
    status.bar(1, 3, current=0)
    status.unbar()
    assert barred(status) == (0, 0)
    assert status.last_barred == 0


def test_a_cut_run_ends_where_its_runner_next_looks(status: RunnerStatus) -> None:
    assert status.cut(4, 10) == 10
    status.words[UNTIL] = 12
    assert status.cut(4, 11) == 12


def test_a_run_is_cut_once(status: RunnerStatus) -> None:
    status.cut(4, 10)
    status.cut(4, 20)
    assert (status.words[CUT_RUN], status.words[CUT]) == (4, 10)
    status.cut(5, 30)
    assert (status.words[CUT_RUN], status.words[CUT]) == (5, 30)


def test_a_run_that_has_asked_whether_it_must_stop_is_known_until_it_ends(
    status: RunnerStatus,
) -> None:
    assert not status.listens
    status.words[RUN] = status.words[LISTENS] = 7
    assert status.listens
    status.words[RUN] = 8
    assert not status.listens


def test_calls_are_told_when_the_worker_leaves(status: RunnerStatus) -> None:
    status.leave_by(123, now=True)
    assert (status.words[STOP_BY], status.words[STOP_NOW]) == (123, 1)
