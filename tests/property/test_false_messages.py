"""Whatever a worker sends that can be decoded: the core goes on, its books agree, and each call is
settled once.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gridengine.dispatcher.core.events import (
    Closing,
    Continue,
    Event,
    Launched,
    Polled,
    Rebalance,
    Received,
    Tick,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.errors import ProtocolError
from gridengine.requests import CallsFinished, CallsRecalled, Submitted, TasksCancelled
from gridengine.resources import Cores, Memory, Token, WTime
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import (
    ABSENT,
    CANCELLED,
    CRASH,
    MEMORY,
    TERMINATED,
    TIMEOUT,
    UNREACHED,
    VERSION,
    Assign,
    Beat,
    Crashed,
    Goodbye,
    Hello,
    Message,
    Pulled,
    Pushed,
    Result,
    Results,
    Returned,
    Serves,
    Shortened,
    Started,
    Stop,
)
from tests.support.core_play import CUBE, SQUARE
from tests.support.hypothesis_profiles import examples
from tests.support.played_core import check_calls
from tests.support.tasks import make_task

WORKERS = [b"w1", b"w2", b"w3"]
HELD = Cores(2) & Memory(4) & Token("t")
DEMANDS = [ANY, *map(Demand, (Cores(1), Cores(2), Memory(2), WTime(150, group="g")))]
LARGE = st.sampled_from([-(2**63), -1, 0, 2**31, 2**63 - 1, 2**64 - 1])
NEAR = st.one_of(st.integers(-2, 12), st.integers(-2, 12), LARGE)
"""The number of a run, or a call, that may be one that the worker has."""
SECONDS = st.sampled_from([0.0, 1e-9, 0.001, 0.02, 11.0, 1e6, 1e12])
FAILURES = st.sampled_from(["", ABSENT, UNREACHED])
REASONS = st.sampled_from(["terminated", "x", ""])
RESULTS = st.builds(
    Result,
    NEAR,
    NEAR,
    NEAR,
    st.integers(0, 3),
    SECONDS,
    st.integers(0, 4),
    st.booleans(),
    LARGE,
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Results, st.lists(RESULTS, max_size=3)),
    st.builds(
        Crashed,
        NEAR,
        NEAR,
        LARGE,
        st.sampled_from([CRASH, TIMEOUT, CANCELLED, MEMORY]),
        LARGE,
        LARGE,
    ),
    st.builds(Returned, st.lists(NEAR, max_size=4), REASONS),
    st.builds(Shortened, NEAR, NEAR),
    st.builds(Started, NEAR, LARGE),
    st.builds(Pushed, NEAR, st.integers(0, 2)),
    st.builds(Serves, st.lists(st.just("tcp://node:1"), max_size=2), st.just("key")),
    st.builds(Pulled, st.sampled_from([b"", bytes(8), bytes([0] * 7 + [9])]), NEAR, FAILURES),
    st.builds(Goodbye, st.sampled_from([TERMINATED, "x"])),
    st.sampled_from([Beat(), Stop(), Assign([])]),
)
HELLOS = st.builds(
    Hello,
    st.sampled_from([VERSION, VERSION, VERSION, 0]),
    st.just("1"),
    st.just("3.11"),
    st.sampled_from(["run", "run", "run", "other"]),
    st.just("node"),
    st.integers(1, 3),
    st.sampled_from([1, 2, 2, 3, 0, -1, 2**64 - 1]),
    st.sampled_from(["", "/a/b.log"]),
    st.sampled_from([0.0, 0.0, 1e12]),
)
STEPS = st.one_of(
    st.tuples(st.just("says"), st.sampled_from(WORKERS), MESSAGES),
    st.tuples(st.just("says"), st.sampled_from(WORKERS), MESSAGES),
    st.tuples(st.just("says"), st.sampled_from(WORKERS), HELLOS),
    st.tuples(st.just("ends"), st.integers(0, 1), st.integers(0, 12)),
    st.tuples(st.just("submits"), st.integers(1, 12), st.sampled_from(DEMANDS)),
    st.tuples(st.just("cancels"), st.integers(0, 6), st.integers(0, 4)),
    st.tuples(st.just("recalls"), st.integers(0, 6), st.integers(0, 4)),
    st.tuples(st.just("polls"), st.integers(1, 3), st.sampled_from(WorkerStatus)),
    st.tuples(st.just("launches"), st.integers(1, 3), st.sampled_from(DEMANDS)),
    st.tuples(st.just("closes"), st.integers(0, 5), st.none()),
    st.tuples(st.just("waits"), st.sampled_from([0.0, 0.1, 1.0, 11.0, 70.0]), st.none()),
)


class Core:
    """A core of which each effect is checked."""

    def __init__(self, how: str, jobs_per_worker: int | None, walltime: float | None) -> None:
        policy = Policy(
            max_workers=3,
            slots=1 if how == "own" else 2,
            pooled=how == "own",
            resources=HELD if how == "shared" else None,
            jobs_per_worker=jobs_per_worker,
            walltime=walltime,
            version="1",
            python="3.11",
            run_id="run",
        )
        self.core = StateMachine(policy, checked=True)
        self.now = 100.0
        self.left: dict[int, set[int]] = {}

    def play(self, event: Event) -> None:
        for effect in self.core.handle(event, self.now):
            if isinstance(effect, CallsFinished):
                calls = set(range(effect.start, effect.stop))
                assert calls
                assert calls <= self.left[effect.task], "settled twice, or never submitted"
                self.left[effect.task] -= calls
                assert effect.last == (not self.left[effect.task])
        if self.core.state.deferred:
            self.play(Continue())
        check_calls(self.core.state, self.left)

    # Steps

    def says(self, worker: bytes, message: Message) -> None:
        try:
            frames = encode(message, [b"x"] * message.count_buffers())
            told, buffers = decode(frames)
            if isinstance(told, Hello) and told.slots > 0 and self.core.state.shared:
                told = replace(told, slots=2)  # as many as their launch says: nobody counts again
        except (ProtocolError, OverflowError):
            return
        self.play(Received(worker, told, buffers))

    def ends(self, which: int, place: int) -> None:
        """A worker sends the outcome of a run that it has."""
        runs = list(self.core.state.runs.values())
        if runs:
            run = runs[place % len(runs)]
            if which:
                told = Results([Result(run.number, run.done, run.span.stop, 0, 0.001)])
                self.says(run.worker.id, told)
            else:
                self.says(run.worker.id, Crashed(run.number, run.done, -11, CRASH, 1))

    def submits(self, count: int, demand: Demand) -> None:
        number = len(self.left) + 1
        self.left[number] = set(range(count))
        options: dict[str, Any] = {"watched": count == 1, "submitter": count % 3}
        task = make_task(number, (b"calls",), count, demand=demand, escalate_memory=2.0, **options)
        self.play(Submitted(CUBE if count % 2 else SQUARE, [task]))

    def cancels(self, back: int, start: int) -> None:
        task = len(self.left) - back
        whole = [task] * (start == 0)
        self.play(TasksCancelled(whole, 15, [(task, start, start + 2)]))

    def recalls(self, back: int, start: int) -> None:
        self.play(CallsRecalled([(len(self.left) - back, start, start + 2)]))

    def polls(self, number: int, status: WorkerStatus) -> None:
        self.play(Polled({Handle(str(number), "/a/b.log" if number == 1 else ""): Report(status)}))

    def launches(self, number: int, demand: Demand) -> None:
        handle = Handle(str(number), "/a/b.log" if number == 1 else "")
        self.play(Launched([handle], demand))

    def closes(self, place: int = 0, _: None = None) -> None:
        if place:  # seldom: little happens afterwards
            return
        if not self.core.state.closing:
            self.play(Closing())
        assert not any(self.left.values()), "not settled at closing"

    def waits(self, seconds: float, _: None) -> None:
        self.now += seconds
        self.play(Tick())
        self.play(Rebalance())


@pytest.mark.timeout(600)
@examples(300)
@given(
    how=st.sampled_from(["alike", "shared", "own"]),
    jobs_per_worker=st.sampled_from([None, None, 1, 3]),
    walltime=st.sampled_from([None, None, 20.0, 200.0]),
    steps=st.lists(STEPS, max_size=50),
)
def test_the_core_goes_on_whatever_a_worker_sends(
    how: str, jobs_per_worker: int | None, walltime: float | None, steps: list[Any]
) -> None:
    core = Core(how, jobs_per_worker, walltime)
    for act, first, second in steps:
        getattr(core, act)(first, second)
    core.closes()
