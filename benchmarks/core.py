"""How many calls a second the core can decide for: all else (sockets, pickling, the calls
themselves) is left out.

    python benchmarks/core.py [--profile] [--workers 10000] [--calls 1000000]

Each line is one kind of work on simulated workers that answer at once; time passes as if they had
worked, with ticks and signs of life. `core` is the time spent in `StateMachine.handle`; `calls/s`
is calls by that time.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from gridengine.dispatcher.core.events import (
    Continue,
    Event,
    Launch,
    Launched,
    Received,
    ReferencesReleased,
    Send,
    Submitted,
    Tick,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.core.tasks import CallsFinished, Function, Task
from gridengine.dispatcher.io_thread import MOST_TASKS
from gridengine.resources import Cores, Resource
from gridengine.schedulers.launcher import Handle
from gridengine.wire.messages import VALUES, VERSION, Assign, Beat, Hello, Result, Results

TICK_SECONDS = 0.25
BEAT_TICKS = 8
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
    before it, drawn at random; all submitted at once, and no future of them is kept.
    """

    title: str
    calls: int
    seconds: float

    def submissions(self) -> Iterator[Event]:
        draw = random.Random(1).randrange
        first, tasks = 1 << 40, list[Task]()
        for number in range(self.calls):
            needs = (first + draw(number), first + draw(number)) if number else ()
            tasks.append(Task(number, (b"calls",), after=needs, kept=((0, first + number),)))
            if len(tasks) == MOST_TASKS or number == self.calls - 1:
                yield Submitted(FUNCTION, tasks)
                tasks = []
        yield ReferencesReleased(range(first, first + self.calls))


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
            answer = self.answers.popleft()
            self.now += sum(result.seconds for result in answer.message.results) / self.workers
            self.play(answer, work.seconds)
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
    options = parser.parse_args()
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


if __name__ == "__main__":
    main()
