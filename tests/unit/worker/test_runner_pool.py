"""Who of a worker's runners is given what, and when one is started or ended."""

from __future__ import annotations

import io
import math
import signal
import time
from collections import deque
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from gridengine.call_context.status_block import BACKGROUND, INDEX, RUN, START
from gridengine.errors import ProtocolError
from gridengine.serialize.payload import SINGLE
from gridengine.system.polling import Poller
from gridengine.wire.messages import Allocate, Assignment, Define
from gridengine.worker.definition_store import DefinitionStore
from gridengine.worker.runner_handle import BatchQueue, RunnerHandle
from gridengine.worker.runner_output import OutputReaders
from gridengine.worker.runner_pool import MOST_AHEAD_BYTES, RunnerPool
from tests.support.agent_driver import NotingForkServer
from tests.support.manual_clock import ManualClock


class Worker:
    """A pool whose runners do what a test says."""

    def __init__(self, slots: int = 2, spare: int | None = None) -> None:
        self.clock = ManualClock(100.0)
        self.server = NotingForkServer()
        self.poller = Poller()
        definitions = DefinitionStore()
        definitions.add(Define(b"f", [], b"/"), [b""])
        streams: Any = [io.BytesIO(), io.BytesIO()]
        self.pool = RunnerPool(
            self.server,  # type: ignore[arg-type]
            self.poller,
            definitions,
            OutputReaders(streams, self.poller),
            slots=slots,
            spare=slots if spare is None else spare,
            grace_seconds=5.0,
            output_bytes=100,
            relay=None,
            clock=self.clock,
        )
        self.pool._poller.register(self.server.fileno(), lambda: None)

    def enqueue(
        self, *runs: int, allocation: int = 0, payload: bytes = b"", **options: Any
    ) -> None:
        self.pool.enqueue(
            deque(
                (Assignment(run, 7, b"f", 0, 3, 0, SINGLE, **options), [payload]) for run in runs
            ),
            allocation,
        )

    def enqueue_each(self, *runs: int) -> None:
        """Have each be a batch."""
        for run in runs:
            self.enqueue(run)

    def held(self) -> list[list[int]]:
        """Return the runs that runners were given, of each."""
        return [list(runner.given) for runner in self.pool.runners.values()]

    def with_run(self, run: int) -> RunnerHandle:
        [found] = [one for one in self.pool.runners.values() if run in one.given]
        return found

    def begin(self, run: int) -> RunnerHandle:
        runner = self.with_run(run)
        runner.status.words[INDEX], runner.status.words[RUN] = 0, run
        return runner

    def end(self, *runs: int) -> None:
        for run in runs:
            runner = self.begin(run)
            runner.status.words[RUN] = 0
            self.pool.end_run(runner, run)
            self.pool.go_on(runner)

    def allocate(self, number: int, cores: list[int] | None = None, slots: int = 1) -> None:
        self.pool.allocate(Allocate(number, slots, cores), [b"resources"])

    def close(self) -> None:
        for runner in list(self.pool.runners.values()):
            self.pool.remove(runner)
        self.poller.close()
        self.server.close()


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


@pytest.fixture
def single() -> Iterator[Worker]:
    """One that runs a call at a time."""
    worker = Worker(slots=1)
    yield worker
    worker.close()


def test_each_batch_has_a_runner_up_to_the_slots_and_then_comes_ahead(worker: Worker) -> None:
    worker.enqueue_each(1, 2, 3, 4, 5)
    assert worker.held() == [[1, 3], [2, 4]]
    worker.end(1)
    assert worker.held() == [[3, 5], [2, 4]]


def test_a_runner_that_has_nothing_to_do_is_used_again(worker: Worker) -> None:
    worker.enqueue(1)
    worker.end(1)
    assert len(worker.pool.idle) == 1
    worker.enqueue(2)
    assert worker.held() == [[2]]


def test_more_idle_runners_than_are_kept_are_ended() -> None:
    worker = Worker(slots=2, spare=1)
    worker.enqueue_each(1, 2)
    worker.end(1, 2)
    assert worker.server.signals == [(1, signal.SIGTERM)]
    assert [runner.id for runner in worker.pool.idle] == [2]
    worker.close()


def test_a_runner_with_threads_left_is_told_that_nothing_comes() -> None:
    worker = Worker(slots=1, spare=0)
    worker.enqueue(1)
    worker.with_run(1).status.words[BACKGROUND] = 1
    worker.end(1)
    assert worker.server.signals == []
    [runner] = worker.pool.runners.values()
    assert runner.ending is not None
    worker.close()


def test_an_idle_runner_whose_threads_stay_is_killed_after_the_grace_time() -> None:
    worker = Worker(slots=1, spare=0)
    worker.enqueue(1)
    worker.with_run(1).status.words[BACKGROUND] = 1
    worker.end(1)
    assert worker.pool.tick(104.0) <= 1.0
    assert worker.server.signals == []
    worker.pool.tick(105.0)
    assert worker.server.signals == [(1, signal.SIGKILL)]
    worker.close()


def test_a_watched_run_goes_alone_and_its_output_is_kept(worker: Worker) -> None:
    worker.enqueue(1, 2, watched=True)
    assert worker.held() == [[1]]
    assert worker.with_run(1).outputs[0].excerpt is not None
    worker.end(1)
    assert worker.held() == [[2]]


@pytest.mark.parametrize(
    "batch",
    [{"memory": 2**50}, {"watched": True}, {"payload": bytes(MOST_AHEAD_BYTES + 1)}],
    ids=["memory", "watched", "large"],
)
def test_exclusive_runs_do_not_come_ahead(single: Worker, batch: dict[str, Any]) -> None:
    single.enqueue(1)
    single.enqueue(2, **batch)
    assert single.held() == [[1]]
    single.end(1)
    assert single.held() == [[2]]


def test_waiting_runs_are_taken_out_of_any_queue(single: Worker) -> None:
    single.enqueue_each(1, 2)
    single.enqueue(3, 4)
    single.enqueue(5)
    held = [(Assignment(run, 7, b"f", 0, 3, 0, SINGLE), [b""]) for run in (6, 7)]
    single.pool.held_back[1] = BatchQueue([deque(held)])
    assert single.pool.take_queued({1, 2, 4, 7, 99}) == [7, 4]
    assert single.pool.take_all_queued() == [6, 3, 5]
    assert single.pool.take_all_queued() == []


def test_an_idle_runner_takes_a_batch_that_another_was_given_ahead(worker: Worker) -> None:
    worker.enqueue_each(1, 2, 3)
    worker.begin(1)
    worker.end(2)
    assert worker.held() == [[1], [3]]


def test_a_call_that_waits_for_others_takes_no_slot(worker: Worker) -> None:
    worker.enqueue_each(1, 2)
    waiting = worker.begin(1)
    worker.pool.begin_waiting(waiting, 1)
    worker.enqueue(3)
    assert len(worker.held()) == 3
    assert worker.pool.end_waiting(waiting, 0) is None
    worker.end(1, 2, 3)
    assert len(worker.pool.idle) == 3
    assert worker.pool.tick(worker.clock.monotonic()) <= 1.0
    worker.clock.advance(2.0)
    worker.pool.tick(worker.clock.monotonic())
    assert len(worker.pool.idle) == 2


def test_an_allocation_has_one_runner_at_its_own_place(worker: Worker) -> None:
    worker.allocate(1, [0])
    worker.allocate(2, [1])
    for run, allocation in ((1, 1), (2, 2), (3, 1)):
        worker.enqueue(run, allocation=allocation)
    assert worker.held() == [[1, 3], [2]]
    assert [runner.place[0] for runner in worker.pool.runners.values()] == [(0,), (1,)]
    worker.pool.release([1, 99])
    assert worker.pool.allocations() == [2]


def test_calls_that_ask_for_nothing_have_the_slots_that_allocations_leave(worker: Worker) -> None:
    worker.allocate(1, slots=2)
    worker.enqueue(1)
    assert worker.held() == []
    worker.pool.release([1])
    assert worker.held() == [[1]]


def test_an_idle_runner_of_another_place_makes_room(worker: Worker) -> None:
    worker.enqueue_each(1, 2)
    worker.end(1, 2)
    worker.allocate(1, [0])
    worker.enqueue(3, allocation=1)
    assert worker.server.signals == [(1, signal.SIGTERM)]
    worker.pool.remove(worker.pool.runners[1])
    worker.pool.assign_queued()
    assert worker.with_run(3).place == ((0,), ())


def test_an_allocation_that_there_is_not_is_a_fault(worker: Worker) -> None:
    with pytest.raises(ProtocolError, match="allocation 5 is not this worker's"):
        worker.enqueue(1, allocation=5)
    worker.enqueue(2)
    with pytest.raises(ProtocolError, match="allocation 5 is not this worker's"):
        worker.pool.end_waiting(worker.begin(2), 5)


@pytest.mark.parametrize("before", [(), (1,)], ids=["none", "one"])
def test_with_fewer_processes_than_slots_the_rest_waits_for_those_there_are_if_any(
    worker: Worker, caplog: pytest.LogCaptureFixture, before: tuple[int, ...]
) -> None:
    worker.enqueue_each(*before)
    refused = BlockingIOError(11, "Resource temporarily unavailable")
    worker.server.fork = Mock(side_effect=refused)
    worker.enqueue(2)
    if before:
        assert (worker.held(), worker.pool.broken) == ([[1, 2]], "")
        assert "no more than 1 processes" in caplog.text
    else:
        why = "no runner can be started: Resource temporarily unavailable"
        assert (worker.pool.broken, worker.pool.take_all_queued()) == (why, [2])


def test_time_in_which_the_worker_was_stopped_counts_for_no_call(worker: Worker) -> None:
    worker.enqueue(1, timeout=10.0)
    worker.begin(1).status.words[START] = time.monotonic_ns()
    assert worker.pool.tick(100.0) <= 0.5
    worker.pool.tick(200.0)  # 99 s later than it was to be called
    assert worker.server.signals == []
    for now in (200.5 + 0.5 * step for step in range(17)):
        worker.pool.tick(now)
    assert worker.server.signals == []
    worker.pool.tick(209.0)
    assert worker.server.signals == [(1, signal.SIGTERM)]


def test_with_nothing_to_look_after_the_next_tick_may_be_late(worker: Worker) -> None:
    assert worker.pool.tick(100.0) == 3600.0
    assert worker.pool._ticked == math.inf


def test_when_the_fork_server_is_gone_nothing_more_is_given(worker: Worker) -> None:
    worker.pool.give_up("the process that starts runners is gone")
    worker.enqueue(1)
    assert worker.held() == []
    assert worker.pool.broken == "the process that starts runners is gone"
