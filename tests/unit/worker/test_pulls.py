"""The results that a worker gets from others, and the batches that wait for them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gridengine.serialize.payload import Payload
from gridengine.system.polling import Poller
from gridengine.wire.messages import (
    ABSENT,
    NOT_PULLED,
    UNREACHED,
    Assignment,
    Define,
    Input,
    Message,
    Pull,
    Pulled,
    Returned,
    Serves,
    input_name,
)
from gridengine.wire.peer_results import CONNECT_SECONDS, IDLE_SECONDS, SILENT_SECONDS
from gridengine.wire.sockets import new_keys
from gridengine.worker import pulls
from gridengine.worker.definition_store import DefinitionStore
from gridengine.worker.pulls import PeerKeys, Pulls
from gridengine.worker.runner_handle import Batch, BatchQueue
from tests.support.manual_clock import ManualClock

PATIENCE = 60
FIRST, SECOND = 71, 72
NAME = input_name(FIRST)
NOWHERE = Pull(NAME, 1, ["tcp://192.0.2.1:1"], new_keys().public)
"""From an address that nobody has (RFC 5737)."""


class Worker:
    """A worker's side of results that go from worker to worker."""

    def __init__(self, keys: PeerKeys, clock: ManualClock) -> None:
        self.sent: list[Message] = []
        self.queued: list[list[int]] = []
        self.held_back: dict[int, BatchQueue] = {}
        self.definitions = DefinitionStore()
        self.poller = Poller()
        self.clock = clock
        self.pulls = Pulls(
            keys,
            poller=self.poller,
            definitions=self.definitions,
            take_in=lambda payload: payload,
            send=lambda message, buffers: self.sent.append(message),
            pool=self,  # type: ignore[arg-type]
            clock=clock,
        )

    def enqueue(self, batch: Batch, allocation: int) -> None:
        self.queued.append([one.run for one, _ in batch])

    @property
    def serves(self) -> Serves:
        self.pulls.serve()
        [serves] = [one for one in self.sent if isinstance(one, Serves)]
        return serves

    def pull(self, reference: int, number: int, source: Worker) -> None:
        serves = source.serves
        self.pulls.pull(Pull(input_name(reference), number, serves.addresses, serves.key))

    def assign(self, run: int, *references: int) -> None:
        inputs = [Input(one) for one in references]
        one = Assignment(run, run, b"f", 0, 1, 1, 0, inputs=inputs)
        self.pulls.hold_back(deque([(one, [])]), 0)

    def tick(self) -> None:
        self.pulls.tick(self.clock.monotonic())

    def told(self, kind: type) -> list[Any]:
        return [one for one in self.sent if isinstance(one, kind)]


class Workers:
    """Workers of one run; the clock stands still."""

    def __init__(self) -> None:
        keys = new_keys()
        self.keys = PeerKeys(keys.peer_public, keys.peer_secret)
        self.clock = ManualClock()
        self.made: list[Worker] = []

    def add(self, **results: Payload) -> Worker:
        worker = Worker(self.keys, self.clock)
        self.made.append(worker)
        for payload in results.values():
            worker.definitions.hold(NAME, payload)
        return worker

    def go_on_until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, [one.sent for one in self.made]
            for worker in self.made:
                worker.poller.poll(0.01)
                worker.tick()


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    for worker in made.made:
        worker.pulls.close()


def test_a_batch_begins_when_the_result_that_it_needs_has_come(workers: Workers) -> None:
    source, worker = workers.add(result=[b"pickle"]), workers.add()
    worker.pull(FIRST, 1, source)
    worker.assign(5, FIRST)
    worker.assign(6)
    assert worker.queued == [[6]]
    workers.go_on_until(lambda: worker.told(Pulled))
    assert worker.told(Pulled) == [Pulled(NAME, 1)]
    assert worker.queued == [[6], [5]]
    assert [bytes(one) for one in worker.definitions.held[NAME]] == [b"pickle"]


def test_a_batch_waits_for_all_its_results(workers: Workers) -> None:
    source, worker = workers.add(result=[b"pickle"]), workers.add()
    source.definitions.hold(input_name(SECOND), [b"other"])
    worker.pull(FIRST, 1, source)
    worker.pulls.pull(Pull(input_name(SECOND), 2, NOWHERE.addresses, NOWHERE.key))
    worker.assign(5, FIRST, SECOND)
    workers.go_on_until(lambda: worker.told(Pulled))
    assert worker.queued == []


def test_a_result_is_pulled_on_from_a_worker_that_has_pulled_it(workers: Workers) -> None:
    source, second, third = workers.add(result=[b"pickle"]), workers.add(), workers.add()
    second.pull(FIRST, 1, source)
    workers.go_on_until(lambda: second.told(Pulled))
    third.pull(FIRST, 2, second)
    workers.go_on_until(lambda: third.told(Pulled))
    assert third.told(Pulled) == [Pulled(NAME, 2)]


def test_a_worker_that_does_not_have_a_result_is_told_and_runs_go_back(workers: Workers) -> None:
    source, worker = workers.add(), workers.add()
    worker.pull(FIRST, 1, source)
    worker.assign(5, FIRST)
    workers.go_on_until(lambda: worker.told(Returned))
    assert worker.sent[-2:] == [Pulled(NAME, 1, ABSENT), Returned([5], NOT_PULLED)]


def test_a_worker_that_does_not_answer_is_given_up(workers: Workers) -> None:
    worker = workers.add()
    worker.pulls.pull(NOWHERE)
    worker.assign(5, FIRST)
    workers.clock.advance(CONNECT_SECONDS - 0.1)
    worker.tick()
    assert worker.sent == []
    workers.clock.advance(0.2)
    worker.tick()
    assert worker.sent == [Pulled(NAME, 1, UNREACHED), Returned([5], NOT_PULLED)]


def test_an_address_or_key_that_is_none_is_a_failed_pull(workers: Workers) -> None:
    worker = workers.add()
    for number, address, key in ((1, "nowhere", NOWHERE.key), (2, "tcp://a:1", "short")):
        worker.pulls.pull(Pull(NAME, number, [address], key))
        assert worker.sent[-1] == Pulled(NAME, number, UNREACHED)
    worker.assign(5, FIRST)
    assert worker.sent[-1] == Returned([5], NOT_PULLED)


def test_a_worker_that_falls_silent_is_given_up_and_its_host_is_not(workers: Workers) -> None:
    source, worker = workers.add(result=[b"pickle"]), workers.add()
    worker.pull(FIRST, 1, source)
    workers.go_on_until(lambda: worker.told(Pulled))
    worker.definitions.remove([NAME])
    worker.pull(SECOND, 2, source)  # and the other does not go on
    workers.clock.advance(SILENT_SECONDS + 0.1)
    worker.tick()
    assert worker.told(Pulled)[1:] == [Pulled(input_name(SECOND), 2, ABSENT)]


def test_a_pull_from_a_lost_worker_ends_at_the_dispatchers_word(workers: Workers) -> None:
    worker = workers.add()
    worker.pulls.pull(NOWHERE)
    worker.assign(5, FIRST)
    worker.pulls.pull(Pull(NAME, 7))
    assert worker.sent == []
    worker.pulls.pull(Pull(NAME, 1))
    assert worker.sent == [Pulled(NAME, 1, ABSENT), Returned([5], NOT_PULLED)]
    worker.pulls.pull(Pull(NAME, 1))
    assert len(worker.sent) == 2


def test_a_result_that_is_forgotten_is_pulled_no_more_and_not_answered(workers: Workers) -> None:
    source, worker = workers.add(result=[b"pickle"]), workers.add()
    worker.pull(FIRST, 1, source)
    worker.pulls.forget([NAME])
    assert not worker.pulls.is_pulled(NAME)
    worker.pull(FIRST, 2, source)
    workers.go_on_until(lambda: worker.told(Pulled))
    assert worker.told(Pulled) == [Pulled(NAME, 2)]


def test_a_run_that_was_assigned_before_its_failed_pull_was_known_goes_back(
    workers: Workers,
) -> None:
    worker = workers.add()
    worker.pulls.pull(NOWHERE)
    worker.pulls.pull(Pull(NAME, 1))
    assert worker.pulls.is_pulled(NAME)
    worker.assign(5, FIRST)
    assert worker.told(Returned) == [Returned([5], NOT_PULLED)]
    worker.pulls.forget([NAME])
    assert not worker.pulls.is_pulled(NAME)
    worker.definitions.add(Define(NAME, [], b"", 1, result=True), [b"pickle"])
    worker.assign(6, FIRST)
    assert worker.queued == [[6]]


def test_runs_that_wait_for_a_result_can_be_taken_back(workers: Workers) -> None:
    worker = workers.add()
    worker.pulls.pull(NOWHERE)
    worker.assign(5, FIRST)
    worker.assign(6, FIRST)
    assert worker.held_back[0].take_out({5, 9}) == [5]
    worker.pulls.pull(Pull(NAME, 1))
    assert worker.told(Returned) == [Returned([6], NOT_PULLED)]


def test_an_idle_connection_is_closed(workers: Workers) -> None:
    source, worker = workers.add(result=[b"pickle"]), workers.add()
    worker.pull(FIRST, 1, source)
    workers.go_on_until(lambda: worker.told(Pulled))
    workers.clock.advance(IDLE_SECONDS + 0.1)
    worker.tick()
    worker.definitions.remove([NAME])
    worker.pull(FIRST, 2, source)
    workers.go_on_until(lambda: len(worker.told(Pulled)) == 2)
    assert worker.told(Pulled)[1] == Pulled(NAME, 2)


def test_a_worker_without_a_port_serves_nothing_and_says_so(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    taken = int(workers.add().serves.addresses[0].rpartition(":")[2])
    worker = Worker(PeerKeys(workers.keys.public, workers.keys.secret, [taken]), workers.clock)
    workers.made.append(worker)
    worker.definitions.hold(NAME, [b"pickle"])
    worker.pulls.serve()
    assert worker.sent == []
    assert caplog.text.count("other workers get no results from this one: no port") == 1


@pytest.fixture
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulls, "MOST_AT_ONCE", 2)


def from_nowhere(number: int, key: str = NOWHERE.key) -> Pull:
    return Pull(b"%d" % number, number, NOWHERE.addresses, key)


def test_only_so_many_results_are_asked_for_at_a_time(workers: Workers, two_at_once: None) -> None:
    source, worker = workers.add(result=[b"pickle"]), workers.add()
    worker.pull(SECOND, 1, source)
    workers.go_on_until(lambda: worker.told(Pulled))
    for number in (2, 3, 4):
        worker.pulls.pull(from_nowhere(number))
    worker.pull(FIRST, 5, source)
    worker.assign(6, FIRST)
    assert sum(len(one.incoming) for one in worker.pulls._connections.values()) == 2
    worker.pulls.pull(Pull(b"4", 4))
    assert worker.told(Pulled)[1:] == [Pulled(b"4", 4, ABSENT)]
    workers.clock.advance(CONNECT_SECONDS)
    assert worker.pulls.tick(workers.clock.monotonic()) == 0.0
    workers.go_on_until(lambda: worker.queued)
    ends = [Pulled(b"2", 2, UNREACHED), Pulled(b"3", 3, UNREACHED), Pulled(NAME, 5)]
    assert worker.told(Pulled)[2:] == ends


@pytest.mark.parametrize("same", [True, False])
def test_pulls_that_wait_fail_with_those_of_their_worker_or_where_none_is_reached(
    workers: Workers, two_at_once: None, same: bool
) -> None:
    worker = workers.add()
    for number in (1, 2):
        worker.pulls.pull(from_nowhere(number))
    worker.pulls.pull(from_nowhere(3, NOWHERE.key if same else new_keys().public))
    workers.clock.advance(CONNECT_SECONDS)
    worker.tick()
    failures = [UNREACHED, UNREACHED, UNREACHED if same else ABSENT]
    assert [one.failure for one in worker.told(Pulled)] == failures


FULL = """
import os, resource
from tests.unit.worker.test_pulls import NOWHERE, Workers

worker = Workers().add()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
last = 0
while last < 99 - {left}:
    last = os.dup(0)
worker.pulls.serve()
worker.pulls.pull(NOWHERE)
os.write(1, repr(worker.sent).encode())
"""


@pytest.mark.parametrize("left", [0, 4, 9])
def test_a_worker_with_few_descriptors_serves_and_pulls_nothing(left: int) -> None:
    program = [sys.executable, "-c", FULL.format(left=left)]
    run = subprocess.run(program, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert run.stdout == repr([Pulled(NAME, 1, ABSENT)]), run.stderr
