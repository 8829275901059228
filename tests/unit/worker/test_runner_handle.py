"""One runner, as its agent has it: its limits, its end, and the call that it died in."""

from __future__ import annotations

import contextlib
import io
import math
import os
import resource
import signal
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from gridengine.call_context.status_block import HOLD, INDEX, LATE, RUN, START
from gridengine.serialize.payload import SINGLE
from gridengine.system import open_descriptors
from gridengine.wire.messages import CANCELLED, TIMEOUT, Assignment
from gridengine.worker.runner_handle import ANYWHERE, Batch, BatchQueue, RunnerHandle, take_out
from tests.support.agent_driver import NotingForkServer

GRACE = 5.0


def assignment(run: int, stop: int = 5, **options: Any) -> Assignment:
    return Assignment(run, 7, b"f", 0, stop, 0, SINGLE, buffers=0, **options)


@pytest.fixture
def server() -> Iterator[NotingForkServer]:
    server = NotingForkServer()
    yield server
    server.close()


@pytest.fixture
def runner(server: NotingForkServer) -> Iterator[RunnerHandle]:
    streams: Any = [io.BytesIO(), io.BytesIO()]
    handle = RunnerHandle(1, server, streams, ANYWHERE)  # type: ignore[arg-type]
    yield handle
    handle.close()


def give(runner: RunnerHandle, *assignments: Assignment) -> None:
    runner.give(assignments, deque((one, ()) for one in assignments))


def be_in(runner: RunnerHandle, run: int, index: int, began: float = 0.0) -> None:
    """Have the runner be in a call, which began then if it has a time limit."""
    words = runner.status.words
    words[INDEX], words[START], words[RUN] = index, int(began * 1e9), run


def test_a_runner_without_work_has_no_deadline(
    runner: RunnerHandle, server: NotingForkServer
) -> None:
    assert runner.enforce_deadlines(100.0, GRACE) == math.inf
    give(runner, assignment(1))
    be_in(runner, 1, 0)
    assert runner.enforce_deadlines(1e9, GRACE) == math.inf
    assert server.signals == []


def test_a_call_over_its_time_limit_is_asked_to_end_and_killed_when_it_does_not(
    runner: RunnerHandle, server: NotingForkServer
) -> None:
    give(runner, assignment(1, timeout=10.0))
    be_in(runner, 1, 2, began=100.0)
    assert runner.enforce_deadlines(106.0, GRACE) == pytest.approx(4.0)
    assert runner.enforce_deadlines(110.0, GRACE) == GRACE
    assert server.signals == [(1, signal.SIGTERM)]
    assert runner.ending is not None
    assert (runner.ending.reason, runner.ending.run, runner.ending.index) == (TIMEOUT, 1, 2)
    assert runner.status.words[LATE] == int(100e9)
    assert runner.enforce_deadlines(112.0, GRACE) == pytest.approx(3.0)
    runner.enforce_deadlines(115.0, GRACE)
    assert server.signals == [(1, signal.SIGTERM), (1, signal.SIGKILL)]


def test_a_call_that_has_not_begun_has_all_of_its_time(runner: RunnerHandle) -> None:
    give(runner, assignment(1, timeout=10.0), assignment(2, timeout=3.0))
    assert runner.enforce_deadlines(1e9, GRACE) == 3.0


def test_time_in_which_nobody_could_run_does_not_count_for_this_call_alone(
    runner: RunnerHandle, server: NotingForkServer
) -> None:
    give(runner, assignment(1, timeout=10.0))
    be_in(runner, 1, 0, began=100.0)
    runner.extend_time_limit(60.0)
    runner.extend_time_limit(30.0)
    assert runner.enforce_deadlines(150.0, GRACE) == pytest.approx(50.0)
    be_in(runner, 1, 1, began=150.0)
    runner.enforce_deadlines(160.0, GRACE)
    assert server.signals == [(1, signal.SIGTERM)]


def test_a_cancelled_run_is_ended_once_the_runner_is_in_it(
    runner: RunnerHandle, server: NotingForkServer
) -> None:
    give(runner, assignment(1), assignment(2))
    runner.cancelled[2] = signal.SIGINT
    be_in(runner, 1, 0)
    runner.enforce_deadlines(100.0, GRACE)
    assert server.signals == []
    be_in(runner, 2, 0)
    runner.enforce_deadlines(100.0, GRACE)
    assert server.signals == [(1, signal.SIGINT)]
    assert runner.status.words[HOLD] == 1
    assert runner.ending is not None
    assert (runner.ending.reason, runner.ending.kill_at) == (CANCELLED, 105.0)


def test_a_time_limit_holds_while_a_later_run_is_cancelled(
    runner: RunnerHandle, server: NotingForkServer
) -> None:
    give(runner, assignment(1, timeout=10.0), assignment(2))
    runner.cancelled[2] = signal.SIGTERM
    be_in(runner, 1, 0, began=100.0)
    runner.enforce_deadlines(110.0, GRACE)
    assert runner.ending is not None
    assert runner.ending.reason == TIMEOUT


def test_a_killed_runner_is_not_killed_again(
    runner: RunnerHandle, server: NotingForkServer
) -> None:
    runner.end(CANCELLED, signal.SIGKILL, 100.0)
    assert runner.enforce_deadlines(1e9, GRACE) == math.inf
    assert server.signals == [(1, signal.SIGKILL)]


@pytest.mark.parametrize(
    ("run", "index", "answered", "failed"),
    [
        (0, 0, {}, None),
        (1, 3, {}, (1, 3)),
        (1, 3, {1: 3}, (1, 3)),
        (1, 2, {1: 3}, None),
        (1, 5, {}, None),
        (2, 1, {}, (2, 1)),
        (99, 4, {}, (1, 0)),
        (99, 4, {1: 2}, (1, 2)),
        (2**64 - 1, 2**64 - 1, {}, (1, 0)),
    ],
)
def test_a_dead_runner_was_in_the_call_that_it_named_or_the_first_unanswered(
    runner: RunnerHandle,
    run: int,
    index: int,
    answered: dict[int, int],
    failed: tuple[int, int] | None,
) -> None:
    give(runner, assignment(1), assignment(2))
    runner.answered |= answered
    be_in(runner, run, index)
    assert runner.failed_call() == failed


def test_an_ended_runner_died_in_the_call_for_which_it_was(runner: RunnerHandle) -> None:
    give(runner, assignment(1, timeout=10.0))
    be_in(runner, 1, 2, began=100.0)
    runner.enforce_deadlines(110.0, GRACE)
    be_in(runner, 1, 3)
    assert runner.failed_call() == (1, 2)


def test_a_runner_without_work_died_in_no_call(runner: RunnerHandle) -> None:
    give(runner, assignment(1))
    be_in(runner, 1, 4)
    runner.forget(1)
    assert runner.failed_call() is None
    be_in(runner, 99, 4)
    assert runner.failed_call() is None


def test_a_busy_runner_takes_a_batch_ahead_and_gives_it_back(runner: RunnerHandle) -> None:
    assert not runner.takes_ahead
    give(runner, assignment(1))
    assert runner.takes_ahead
    give(runner, assignment(2), assignment(3))
    assert not runner.takes_ahead
    assert runner.take_ahead() == []  # it has not begun the first: it may be about to begin these
    be_in(runner, 1, 0)
    assert [work[0].run for work in runner.take_ahead()] == [2, 3]
    assert list(runner.given) == [1]
    assert runner.is_skipping
    assert not runner.may_begin(2)
    assert runner.may_begin(4)
    runner.skipped([2, 3])
    assert runner.may_begin(2)


@pytest.mark.parametrize(
    "state",
    [{"backlog": deque([1])}, {"outdated": True}, {"waits_in": 1}, {"dead": True}],
    ids=str,
)
def test_no_batch_is_given_ahead_to_one_that_may_not_come_to_it(
    runner: RunnerHandle, state: dict[str, object]
) -> None:
    give(runner, assignment(1))
    for name, value in state.items():
        setattr(runner, name, value)
    assert not runner.takes_ahead


def test_calls_not_begun_are_taken_back_once(runner: RunnerHandle) -> None:
    give(runner, assignment(1, stop=5), assignment(2))
    be_in(runner, 1, 2)
    taken, others, shortened = runner.recall({1, 2})
    assert (taken, others) == ([2], [])
    assert shortened is not None
    assert (shortened.run, shortened.stop, runner.given[1].stop) == (1, 3, 3)
    assert runner.recall({1}) == ([], [], None)


def test_nothing_is_taken_back_of_one_that_is_in_its_last_call_or_ends(
    runner: RunnerHandle,
) -> None:
    give(runner, assignment(1, stop=3))
    be_in(runner, 1, 2)
    assert runner.recall({1}) == ([], [], None)
    be_in(runner, 1, 0)
    runner.end(CANCELLED, signal.SIGTERM, 100.0)
    assert runner.recall({1}) == ([], [], None)


def open_all() -> list[int]:
    """Open as many files as the system gives."""
    opened: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    return opened


@pytest.mark.usefixtures("runner")  # so that all that it needs is imported
@pytest.mark.parametrize("free", range(7))
def test_when_the_system_gives_no_more_descriptors_none_is_left_open(
    server: NotingForkServer, free: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + 9, hard))
    opened = open_all()
    streams: Any = [io.BytesIO(), io.BytesIO()]
    try:
        for _ in range(free):
            os.close(opened.pop())
        with pytest.raises(OSError, match="Too many open files"):
            RunnerHandle(1, server, streams, ANYWHERE)  # type: ignore[arg-type]
        left = open_all()
        opened += left
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in opened:
            os.close(fd)
    assert len(left) == free


def batch(*runs: int) -> Batch:
    return deque((Assignment(run, 1, b"f", 0, 1, 0, SINGLE), [b""]) for run in runs)


def runs_of(one: Batch) -> list[int]:
    return [assignment.run for assignment, _ in one]


def test_a_batch_of_which_all_was_taken_out_is_gone() -> None:
    queue = BatchQueue()
    queue.append(batch(1, 2))
    queue.append(batch(3, 4))
    assert queue.take_out({1, 2, 4, 9}) == [1, 2, 4]
    assert runs_of(queue.popleft()) == [3]
    assert not queue


def test_the_rest_of_a_batch_keeps_its_order() -> None:
    one = batch(1, 2, 3, 4)
    assert take_out(one, {2}) == [2]
    assert runs_of(one) == [1, 3, 4]
