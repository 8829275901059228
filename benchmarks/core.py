"""How many calls a second the core can decide for: all else (sockets, pickling, the calls
themselves) is left out.

    python -m benchmarks.core [--profile] [--watching] [--workers 10000] [--calls 1000000]

Each line is one kind of work on simulated workers that answer at once; time passes as if they had
worked, with ticks and signs of life. `core` is the time spent in `StateMachine.handle`; `calls/s`
is calls by that time. The last lines tell what it takes that a dispatcher is watched, and, on real
processes, that it could be.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import math
import os
import pstats
import random
import socket
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import gridengine
from benchmarks.workloads import noop
from gridengine.calls.posting import MOST_TASKS
from gridengine.dispatcher.core.events import (
    Continue,
    Event,
    Launch,
    Launched,
    Received,
    Send,
    Tick,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.io_loop import WATCH_SECONDS
from gridengine.dispatcher.watch_answers import FRESH_SECONDS, WatchAnswers
from gridengine.dispatcher.watch_messages import FOLLOW, STATUS, Identity, WatchRequest
from gridengine.dispatcher.watch_server import FollowerAnswer
from gridengine.requests import (
    CallsFinished,
    Function,
    NamesForgotten,
    Submitted,
    Task,
)
from gridengine.resources import Cores, Resource
from gridengine.schedulers.launcher import Handle
from gridengine.settings.values import Settings, settings
from gridengine.wire.messages import VALUES, VERSION, Assign, Beat, Hello, Result, Results

TICK_SECONDS = 0.25
BEAT_TICKS = 8
FOLLOWERS, SAMPLED, ROUNDS = 5, 500, 15
MADE_PER_SECOND = 1 / FRESH_SECONDS
"""How many answers are made for pages at most, however many ask."""
PIECE = 64 * 1024
PAIRS = 200
FUNCTION = Function(b"digest", (b"pickled",), (), b"/", "f")
ANSWER = b"answer"


@dataclass(frozen=True)
class Work:
    """So many calls of so many seconds, in tasks of `block` calls each, submitted `at_once` tasks
    at a time.
    """

    title: str
    calls: int
    block: int
    seconds: float
    at_once: int

    def submissions(self) -> Iterator[Submitted]:
        tasks = [
            Task(number, (b"calls",), self.block) for number in range(self.calls // self.block)
        ]
        for start in range(0, len(tasks), self.at_once):
            yield Submitted(FUNCTION, tasks[start : start + self.at_once])


@dataclass(frozen=True)
class RandomGraph:
    """So many calls of so many seconds, each of which needs the results of two that were submitted
    before it, drawn at random; all submitted at once, and no future of them is kept. `near`: of how
    many submitted before it they are, if not of all.
    """

    title: str
    calls: int
    seconds: float
    near: int = 0

    def submissions(self) -> Iterator[Event]:
        random_below, near = random.Random(1).randrange, self.near or self.calls

        def draw(below: int) -> int:
            return below - 1 - random_below(min(below, near))

        first, tasks = 1 << 40, list[Task]()
        for number in range(self.calls):
            needs = (first + draw(number), first + draw(number)) if number else ()
            tasks.append(Task(number, (b"calls",), after=needs, kept=((0, first + number),)))
            if len(tasks) == MOST_TASKS or number == self.calls - 1:
                yield Submitted(FUNCTION, tasks)
                tasks = []
        yield NamesForgotten(references=range(first, first + self.calls))


class Cluster:
    """Simulated workers, and the time that the core takes for them; `shared` ones hold a core each,
    which is allocated to calls.
    """

    def __init__(self, workers: int, *, shared: Resource | None = None) -> None:
        self.core = StateMachine(Policy(max_workers=workers, run_id="run", resources=shared))
        self.workers = workers
        self.answers: deque[Received] = deque()
        self.names: list[bytes] = []
        self.now = 0.0
        self.tick_at = 0.0
        self.ticks = 0
        self.settled = 0
        self.core_seconds = 0.0
        self.most_seconds = 0.0

    def play(self, event: Event, seconds: float = 0.0) -> None:
        begin = time.perf_counter()
        effects = self.core.handle(event, self.now)
        spent = time.perf_counter() - begin
        self.core_seconds += spent
        self.most_seconds = max(self.most_seconds, spent)
        for effect in effects:
            if type(effect) is CallsFinished:
                self.settled += effect.stop - effect.start
            elif type(effect) is Send and type(effect.message) is Assign:
                self.answer(effect.worker, effect.message, seconds)
            elif type(effect) is Launch:
                self.launch(effect.count, seconds)
        while self.core.state.deferred and type(event) is not Continue:
            self.play(Continue(), seconds)

    def answer(self, worker: bytes, message: Assign, seconds: float) -> None:
        results = [
            Result(one.run, one.start, one.stop, VALUES, seconds * (one.stop - one.start))
            for one in message.assignments
        ]
        self.answers.append(Received(worker, Results(results), [ANSWER] * len(results)))

    def launch(self, count: int, seconds: float) -> None:
        fresh = range(len(self.names), len(self.names) + count)
        self.names += [b"%016d" % number for number in fresh]
        self.play(
            Launched([Handle(str(number), f"/runs/r/{number}.log") for number in fresh]), seconds
        )
        for number in fresh:
            hello = Hello(VERSION, "", "", "run", "node", number, 1, f"/runs/r/{number}.log")
            self.play(Received(self.names[number], hello), seconds)

    def run(self, work: Work | RandomGraph) -> None:
        for submission in work.submissions():
            self.play(submission, work.seconds)
        while self.settled < work.calls:
            self.step(work.seconds)

    def second(self) -> float:
        """Have a second pass in which calls end and others begin; return the core's time."""
        until, before = self.now + 1.0, self.core_seconds
        while self.now < until:
            self.step(1.0)
        return self.core_seconds - before

    def step(self, seconds: float) -> None:
        """Have the next worker answer, and be assigned calls of so many seconds."""
        answer = self.answers.popleft()
        self.now += sum(result.seconds for result in answer.message.results) / self.workers
        self.play(answer, seconds)
        while self.now >= self.tick_at:
            self.tick()

    def tick(self) -> None:
        self.tick_at += TICK_SECONDS
        self.ticks += 1
        for name in self.names[self.ticks % BEAT_TICKS :: BEAT_TICKS]:
            self.play(Received(name, Beat()))
        self.play(Tick())


def kinds(calls: int) -> list[Work]:
    return [
        Work("tasks of one call, 1 s each", calls, 1, 1.0, MOST_TASKS),
        Work("tasks of one call, 1 s each, one by one", calls, 1, 1.0, 1),
        Work("tasks of one call, 10 us each", calls, 1, 1e-5, MOST_TASKS),
        Work("blocks of 1000 calls, 1 s each", calls, 1000, 1.0, MOST_TASKS),
        Work("blocks of 1000 calls, 10 us each", calls, 1000, 1e-5, MOST_TASKS),
    ]


def graphs(calls: int) -> list[RandomGraph]:
    return [
        RandomGraph("random graph, two inputs each", share, 1e-5) for share in (calls // 10, calls)
    ]


def measure(work: Work | RandomGraph, workers: int, shared: Resource | None = None) -> None:
    cluster = Cluster(workers, shared=shared)
    cluster.run(work)
    assert not cluster.core.state.awaited
    print(
        f"{work.title:42} {work.calls:>9,} calls {workers:>7,} workers  core "
        f"{cluster.core_seconds:6.2f} s"
        f"  longest event {cluster.most_seconds * 1000:6.0f} ms  "
        f"{work.calls / cluster.core_seconds:>10,.0f} calls/s",
        flush=True,
    )


class Looker:
    """Somebody who looks, and reads at once what he is sent; `seconds` is the processor time that
    the reading took, which is not the dispatcher's.
    """

    def __init__(self) -> None:
        self._ours, self._other = socket.socketpair()
        self.seconds = 0.0

    def tell(self, told: FollowerAnswer) -> bool:
        left = memoryview(told.line)
        while left:
            sent = self._ours.send(left[:PIECE])
            left = left[sent:]
            begin = time.process_time()
            while sent:
                sent -= len(self._other.recv(sent))
            self.seconds += time.process_time() - begin
        return True

    def drop(self) -> None:
        self._ours.close()
        self._other.close()

    end = drop


def watched(calls: int, workers: int) -> None:
    """Tell which part of a processor it takes that a dispatcher can be watched, and that ten do:
    five as `top` does, which follow, and five as a page does, which ask each second, at different
    times. Meanwhile calls of a second run, end and wait.
    """
    cluster = Cluster(workers)
    for submission in Work("", calls, 1, 1.0, MOST_TASKS).submissions():
        cluster.play(submission, 1.0)
    state, page = cluster.core.state, WatchRequest(STATUS, SAMPLED)
    answers = WatchAnswers(
        state,
        None,  # type: ignore[arg-type]  # only asked for reasons
        (),
        Identity("bench", "run", 1, "host", "", "", 0.0, "", "", ""),
        traffic=({}, {}),
        settings=Settings(),
        post=lambda event: None,
        began=0.0,
    )
    streams, lookers = answers.streams, [Looker() for _ in range(FOLLOWERS)]
    alone, followed, told = list[float](), list[float](), list[float]()
    for _ in range(ROUNDS):
        alone.append(cluster.second())
        for one in lookers:
            streams.add(one, WatchRequest(FOLLOW, SAMPLED), cluster.now)
        followed.append(cluster.second())
        told.append(spent(lookers, lambda: streams.push(cluster.now)))
        for one in lookers:
            streams.remove(one)
    made = FollowerAnswer(answers.status(page, cluster.now))
    asked = MADE_PER_SECOND * seconds_of(
        lambda: FollowerAnswer(answers.status(page, cluster.now)).line
    )
    asked += min(spent(lookers, lambda: [one.tell(made) for one in lookers]) for _ in range(ROUNDS))
    taken_in = min(followed) - min(alone)
    snapshots = seconds_of(state.snapshot) / TICK_SECONDS
    whole = snapshots + taken_in + min(told) + asked
    print(
        f"watched: {calls:,} calls, {workers:,} workers: snapshots {snapshots:.3%} of a processor; "
        f"{2 * FOLLOWERS} who look {whole:.1%}: events {taken_in:.2%}, {FOLLOWERS} who follow "
        f"{min(told):.2%}, {FOLLOWERS} pages {asked:.2%} with answers of {len(made.line):,} bytes",
        flush=True,
    )


def nobody_looks() -> None:
    """Tell how much longer things take where a dispatcher could be watched and nobody looks than
    where it could not: its socket is to be in a folder that cannot be. Both are there at a time and
    take turns, so that what else the machine does falls on both.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        pairs: dict[str, list[Callable[[], object]]] = {}
        for place in (folder, os.devnull):
            os.environ["GRIDENGINE_WATCH_DIRECTORY"] = place
            settings.cache_clear()
            ours = stack.enter_context(gridengine.ProcessScheduler(2))
            dispatcher = stack.enter_context(gridengine.LocalDispatcher(n_workers=2))
            client = stack.enter_context(gridengine.Client(dispatcher.address))
            for name, act in (
                ("map", partial(gridengine.map, noop, range(100_000), scheduler=ours)),
                ("round trip", partial(round_trips, executor_of(stack, ours), 20)),
                ("client-submit", partial(submits, executor_of(stack, client), 20_000)),
            ):
                pairs.setdefault(name, []).append(act)
        for name, (could_be, could_not) in pairs.items():
            until = time.monotonic() + 2 * WATCH_SECONDS
            while time.monotonic() < until:
                could_be(), could_not()
            print(f"nobody looks: {name:15} {compared(could_be, could_not)}", flush=True)


def executor_of(
    stack: contextlib.ExitStack, scheduler: gridengine.Scheduler
) -> gridengine.Executor:
    return stack.enter_context(gridengine.Executor(scheduler=scheduler))


def round_trips(executor: gridengine.Executor, calls: int) -> None:
    for number in range(calls):
        executor.submit(noop, number).result()


def submits(executor: gridengine.Executor, calls: int) -> None:
    for one in [executor.submit(noop, number) for number in range(calls)]:
        one.result()


def compared(first: Callable[[], object], second: Callable[[], object]) -> str:
    """Return how much longer the first takes: the middle of so many pairs, and between what it is
    with a certainty of 95 % (by the ranks of a sign test).
    """
    more = []
    for number in range(PAIRS):
        taken = {}
        for act in (first, second) if number % 2 else (second, first):
            begin = time.perf_counter()
            act()
            taken[act] = time.perf_counter() - begin
        more.append(taken[first] / taken[second] - 1)
    more.sort()
    rank = int(PAIRS / 2 - math.sqrt(PAIRS))
    return f"{statistics.median(more):+.1%} ({more[rank]:+.1%} to {more[-rank - 1]:+.1%})"


def spent(lookers: Sequence[Looker], act: Callable[[], object]) -> float:
    """Return the processor time that something takes, without what those who look read."""
    read, begin = sum(one.seconds for one in lookers), time.process_time()
    act()
    return time.process_time() - begin - sum(one.seconds for one in lookers) + read


def seconds_of(act: Callable[[], object]) -> float:
    """Return the least processor time that it takes."""
    taken = []
    for _ in range(20):
        begin = time.process_time()
        act()
        taken.append(time.process_time() - begin)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument(
        "--shared", action="store_true", help="have calls share the workers, by allocations"
    )
    parser.add_argument("--profile", action="store_true", help="say where the time goes instead")
    parser.add_argument(
        "--watching", action="store_true", help="only what it takes that a dispatcher is watched"
    )
    options = parser.parse_args()
    if options.watching:
        watched(options.calls, options.workers)
        nobody_looks()
        return
    shared = Cores(1) if options.shared else None
    if options.profile:
        for work in [*kinds(options.calls), *graphs(options.calls)[1:]]:
            with cProfile.Profile() as profile:
                measure(work, options.workers, shared)
            pstats.Stats(profile).sort_stats("tottime").print_stats(14)
        return
    for share in (10, 1):
        for work in kinds(options.calls // share):
            measure(work, options.workers // share, shared)
    for graph in graphs(options.calls):
        measure(graph, options.workers // 10, shared)
    watched(options.calls, options.workers)
    nobody_looks()


if __name__ == "__main__":
    main()
