"""A real agent with its nursery and runners, driven without a transport."""

from __future__ import annotations

import ctypes
import itertools
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gridengine import pickling, runner
from gridengine.agent import Agent
from gridengine.nursery import Nursery
from gridengine.protocol import (
    CRASH,
    FULL,
    SINGLE,
    STAR,
    VALUES,
    Assign,
    Assignment,
    Crashed,
    Define,
    Message,
    Payload,
    Results,
    Returned,
    portions,
)

ROOT = Path(__file__).parents[2]
PATIENCE = 30


@dataclass
class Dispatcher:
    """Drives an agent, and notes all that it says."""

    agent: Agent
    said: list[tuple[Message, Payload]] = field(default_factory=list)
    values: dict[tuple[int, int], Any] = field(default_factory=dict)
    raised: dict[tuple[int, int], BaseException] = field(default_factory=dict)
    output: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def hear(self, message: Message, buffers: Payload) -> None:
        self.said.append((message, buffers))
        if isinstance(message, Results):
            for result, payload in portions(message.results, buffers):
                if result.output:
                    *payload, out, err = payload
                    self.output[result.run] = bytes(out), bytes(err)
                if result.status == VALUES:
                    found = pickling.load_values(payload)
                    assert len(found) == result.stop - result.start
                    self.values.update(((result.run, result.start + i), value) for i, value in enumerate(found))
                else:
                    self.raised[result.run, result.start] = pickling.load_exception(payload)

    def define(self, function: Callable[..., Any], directory: str | None = None) -> bytes:
        digest, payload = pickling.dump_function(function)
        path = [entry for entry in sys.path if entry]
        self.agent.handle(Define(digest, path, directory or str(Path.cwd()), len(payload)), payload)
        return digest

    def assign(self, function: Callable[..., Any], *batches: list[list[Any]], **options: Any) -> list[int]:
        """Hand out batches; each is a list of runs, each a list of calls. Return the runs' numbers."""
        digest = self.define(function, options.pop("directory", None))
        numbers = []
        for batch in batches:
            assignments, buffers = [], []
            for calls in batch:
                payload = pickling.dump_calls(calls)
                number = next(self.numbers)
                numbers.append(number)
                settings = {"run": number, "task": number + 1000, "start": 0, "stop": len(calls), "attempt": 0, "form": SINGLE, **options}
                assignments.append(Assignment(function=digest, buffers=len(payload), **settings))
                buffers += payload
            self.agent.handle(Assign(assignments), buffers)
        return numbers

    def run(self, function: Callable[..., Any], calls: list[Any], **options: Any) -> int:
        return self.assign(function, [calls], **options)[0]

    def until(self, done: Callable[[], object]) -> None:
        """Drive the agent until something has come true."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            now = time.monotonic()
            assert now < deadline, f"waited in vain; the agent said {[message for message, _ in self.said]}, broken: {self.agent.broken!r}"
            select.select([self.agent], [], [], min(self.agent.tick(now), 0.5))
            self.agent.on_ready()

    def heard(self, kind: type) -> list[Any]:
        return [message for message, _ in self.said if isinstance(message, kind)]

    def until_heard(self, kind: type, count: int = 1) -> Any:
        self.until(lambda: len(self.heard(kind)) >= count)
        return self.heard(kind)[-1]

    def results(self, run: int, count: int) -> list[Any]:
        self.until(lambda: all((run, i) in self.values for i in range(count)))
        return [self.values[run, i] for i in range(count)]

    def error(self, run: int, index: int = 0) -> BaseException:
        self.until(lambda: (run, index) in self.raised)
        return self.raised[run, index]


def start(slots: int = 1, grace_seconds: float = 5.0, output_bytes: int = 1_000_000) -> Dispatcher:
    said: list[Any] = []
    dispatcher: Dispatcher
    agent = Agent(
        lambda message, buffers: dispatcher.hear(message, buffers),
        Nursery(runner.main),
        slots=slots,
        grace_seconds=grace_seconds,
        output_bytes=output_bytes,
    )
    dispatcher = Dispatcher(agent, said)
    return dispatcher


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    made = start()
    yield made
    made.agent.close()


@pytest.fixture
def two() -> Iterator[Dispatcher]:
    made = start(slots=2)
    yield made
    made.agent.close()


@pytest.fixture
def hasty() -> Iterator[Dispatcher]:
    made = start(grace_seconds=0.2)
    yield made
    made.agent.close()


def square(x: int) -> int:
    return x * x


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_values_come_back_in_order(dispatcher: Dispatcher) -> None:
    run = dispatcher.run(square, list(range(10)))
    assert dispatcher.results(run, 10) == [x * x for x in range(10)]


def test_each_form_of_call_gets_its_arguments(dispatcher: Dispatcher) -> None:
    star = dispatcher.run(lambda *args: args, [(1, 2), ()], form=STAR)
    full = dispatcher.run(lambda *args, **kwargs: (args, kwargs), [((1,), {"b": 2})], form=FULL)
    assert dispatcher.results(star, 2) == [(1, 2), ()]
    assert dispatcher.results(full, 1) == [((1,), {"b": 2})]


def test_a_part_of_a_task_is_run_with_the_task_s_own_indices(dispatcher: Dispatcher) -> None:
    run = dispatcher.run(square, list(range(10)), start=4, stop=6)
    dispatcher.until(lambda: (run, 5) in dispatcher.values)
    assert dispatcher.values == {(run, 4): 16, (run, 5): 25}


def test_an_exception_is_its_call_s_alone(dispatcher: Dispatcher) -> None:
    run = dispatcher.run(lambda x: 1 // x, [1, 0, 1])
    error = dispatcher.error(run, 1)
    dispatcher.until(lambda: (run, 2) in dispatcher.values)
    assert isinstance(error, ZeroDivisionError)
    assert "1 // x" in str(error.__cause__)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_what_would_end_a_script_ends_the_call_alone(dispatcher: Dispatcher, error: BaseException) -> None:
    def call(x: int) -> int:
        if x:
            raise error
        return x

    run = dispatcher.run(call, [1, 0])
    assert type(dispatcher.error(run)) is type(error)
    dispatcher.until(lambda: dispatcher.values == {(run, 1): 0})


def test_a_hundred_thousand_tiny_calls(dispatcher: Dispatcher) -> None:
    run = dispatcher.run(square, list(range(100_000)))
    assert dispatcher.results(run, 100_000) == [x * x for x in range(100_000)]


def test_runners_work_side_by_side(two: Dispatcher, tmp_path: Path) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)

    def call(mode: str) -> str:
        with open(fifo, mode) as file:  # opening waits for the other end
            return file.read() if mode == "r" else file.write("met") and "wrote"

    reader, writer = two.assign(call, [["r"]], [["w"]])
    two.until(lambda: len(two.values) == 2)
    assert two.values == {(reader, 0): "met", (writer, 0): "wrote"}


@pytest.mark.parametrize(
    ("death", "exitcode"),
    [
        (lambda: os._exit(7), 7),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL),
        (lambda: ctypes.string_at(0), -signal.SIGSEGV),
    ],
    ids=["hard exit", "SIGKILL", "segmentation fault"],
)
def test_a_crash_names_the_call_and_loses_no_other(dispatcher: Dispatcher, death: Callable[[], object], exitcode: int) -> None:
    run = dispatcher.run(lambda x: death() if x == 50 else x, list(range(100)))
    crashed = dispatcher.until_heard(Crashed)
    assert (crashed.run, crashed.index, crashed.exitcode, crashed.reason) == (run, 50, exitcode, CRASH)
    assert crashed.peak_memory > 1_000_000
    again = dispatcher.run(square, [3])
    assert dispatcher.results(again, 1) == [9]


def test_what_ended_well_before_a_crash_has_been_answered(dispatcher: Dispatcher, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def call(x: int) -> int:
        if x == 50:
            fifo.read_bytes()
            os._exit(1)
        return x

    run = dispatcher.run(call, list(range(100)))
    assert dispatcher.results(run, 50) == list(range(50))
    fifo.write_bytes(b"die")
    assert dispatcher.until_heard(Crashed).index == 50


def test_the_rest_of_a_dead_runner_s_batch_is_given_back(dispatcher: Dispatcher) -> None:
    runs = dispatcher.assign(lambda x: os._exit(1) if x == 1 else x, [[[0]], [[1]], [[2]], [[3]]][:0] or [[0], [1], [2], [3]])
    crashed = dispatcher.until_heard(Crashed)
    returned = dispatcher.until_heard(Returned)
    answered = {run for run, _ in dispatcher.values}
    assert crashed.run == runs[1]
    assert set(returned.runs) | answered == {runs[0], runs[2], runs[3]}


def test_a_runner_killed_while_idle_costs_nothing(dispatcher: Dispatcher) -> None:
    run = dispatcher.run(lambda _: os.getpid(), [0])
    (pid,) = dispatcher.results(run, 1)
    os.kill(pid, signal.SIGKILL)
    again = dispatcher.run(lambda _: os.getpid(), [0])
    dispatcher.until(lambda: (again, 0) in dispatcher.values or dispatcher.heard(Returned))
    assert dispatcher.heard(Crashed) == []
