"""A core, a clock, and the words of those around it: for tests that play what may happen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from gridengine.dispatcher.core import state_machine
from gridengine.dispatcher.core.events import Event, Launched, Polled, Received, Send, Tick
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.workers_and_queues import Run
from gridengine.requests import CallsFinished, Effect, Function, Submitted, Task
from gridengine.resources import Memory
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus
from gridengine.wire.messages import (
    CRASH,
    VALUES,
    VERSION,
    Assign,
    Assignment,
    Beat,
    Crashed,
    Hello,
    Message,
    Result,
    Results,
)
from tests.support.tasks import make_task

T = TypeVar("T")
GOOD = {"version": "1", "python": "3.11", "run_id": "run"}
SQUARE = Function(b"square", (b"pickled",), (b"/code",), b"/home", "square")
CUBE = Function(b"cube", (b"pickled",), (), b"/", "cube")


def function(number: int) -> Function:
    return Function(f"f{number}".encode(), (b"pickled",), (), b"/", f"f{number}")


class Play:
    """A core, a clock, and the words of those around it; all invariants are checked after each
    event, unless there are too many calls for that.
    """

    def __init__(self, *, checked: bool = True, **policy: Any) -> None:
        self.core = state_machine.StateMachine(
            Policy(**{"max_workers": 10, **GOOD, **policy}), checked=checked
        )
        self.now = 100.0
        self.effects: list[Effect] = []
        self.last_task = 0

    def play(self, event: Event) -> list[Effect]:
        self.effects = self.core.handle(event, self.now)
        return self.effects

    def seen(self, kind: type[T]) -> list[T]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def submit(self, *counts: int, function: Function = SQUARE, **options: Any) -> list[Task]:
        tasks = [
            make_task(self.last_task + place, (b"calls",), count, **options)
            for place, count in enumerate(counts or (1,), 1)
        ]
        self.last_task += len(tasks)
        self.play(Submitted(function, tasks))
        return tasks

    def hello(
        self, name: bytes = b"w", *, pid: int = 7, log: str = "", slots: int = 1, **other: Any
    ) -> list[Effect]:
        words = {
            "protocol": VERSION,
            "version": "1",
            "python": "3.11",
            "run_id": "run",
            "host": f"node-{name.decode()}",
            **other,
        }
        return self.say(Hello(**words, pid=pid, slots=slots, log=log), worker=name)

    def say(self, message: Message, *buffers: bytes, worker: bytes = b"w") -> list[Effect]:
        return self.play(Received(worker, message, buffers))

    def values(
        self, one: Assignment, start: int, stop: int, *, seconds: float = 1.0, worker: bytes = b"w"
    ) -> list[Effect]:
        return self.say(
            Results([Result(one.run, start, stop, VALUES, seconds)]), b"values", worker=worker
        )

    def done(self, one: Assignment, *, seconds: float = 1.0, worker: bytes = b"w") -> list[Effect]:
        return self.values(one, one.start, one.stop, seconds=seconds, worker=worker)

    def crash(
        self,
        one: Assignment,
        index: int,
        reason: str = CRASH,
        exitcode: int = -11,
        worker: bytes = b"w",
    ) -> list[Effect]:
        return self.say(Crashed(one.run, index, exitcode, reason, 1), b"out", b"err", worker=worker)

    def sent(self, kind: type[T], worker: bytes | None = None) -> list[T]:
        return [
            one.message
            for one in self.seen(Send)
            if isinstance(one.message, kind) and worker in (None, one.worker)
        ]

    def assigned(self, worker: bytes | None = None) -> list[Assignment]:
        """What the last event had handed out."""
        return [
            assignment
            for message in self.sent(Assign, worker)
            for assignment in message.assignments
        ]

    def later(self, seconds: float, *, beats: Sequence[bytes] = ()) -> list[Effect]:
        self.now += seconds
        for worker in beats:
            self.say(Beat(), worker=worker)
        return self.play(Tick())

    def poll(
        self, handle: Handle, state: WorkerStatus, reason: str = "", **report: Any
    ) -> list[Effect]:
        return self.play(Polled({handle: Report(state, reason, **report)}))

    def running(self, count: int = 1, *, log: str = "/runs/x/1.log", **options: Any) -> Assignment:
        """Have one launched worker run one task; return what it was given."""
        self.submit(count, **options)
        self.play(Launched([Handle("41", log)]))
        self.hello(log=log)
        [one] = self.assigned()
        return one

    def learn(self, seconds: float) -> None:
        """Have the core know how long a call takes; the worker `w` is there afterwards."""
        one = self.running()
        self.done(one, seconds=seconds)


def calls(assignments: Sequence[Assignment]) -> list[tuple[int, int, int]]:
    return [(one.task, one.start, one.stop) for one in assignments]


def chunk(play: Play, size: int = 6, **options: Any) -> Assignment:
    """Have the worker be given a chunk of a task's calls."""
    play.learn(seconds=1e-3)
    play.submit(2 * size, **options)
    one, *_ = play.assigned()
    assert one.stop - one.start == size
    return one


def assignment_of(run: Run) -> Assignment:
    """Return what is left to a worker of a run."""
    task, span = run.span.open_task, run.span
    return Assignment(
        run.number, task.id, b"f", run.done, span.stop, span.attempt, task.options.form
    )


def attempts_to_come(play: Play, below: int = 6) -> dict[int, int]:
    """Those of the first calls that wait, each with the number of its next attempt."""
    return {
        call: span.attempt
        for pool in play.core.state.queues.values()
        for span in pool.waiting
        for call in range(span.start, min(span.stop, below))
    }


def exhausted(play: Play, reason: str = CRASH, **options: Any) -> CallsFinished:
    one = play.running(retries=2, **options)
    for _ in range(2):
        play.now += 1.5
        play.crash(one, 0, reason)
        [one] = play.assigned()
    play.now += 1.5
    play.crash(one, 0, reason)
    [settled] = play.seen(CallsFinished)
    return settled


def lost_for_good(play: Play, **report: Any) -> CallsFinished:
    one = play.running(retries=0)
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.FAILED, "its own words", **report)
    play.later(1)
    assert one.attempt == 1
    [settled] = play.seen(CallsFinished)
    return settled


def failing_starts(play: Play, count: int, **report: Any) -> list[Effect]:
    for number in range(count):
        handle = Handle(f"5{number}", f"/runs/x/5{number}.log")
        play.later(100)
        play.play(Launched([handle]))
        play.poll(handle, WorkerStatus.FAILED, "no such interpreter", **report)
    return play.effects


def two_demands(**policy: Any) -> Play:
    """A worker has nothing left to do; calls of another demand wait."""
    play = Play(pooled=True, idle_seconds=5, **policy)
    play.done(play.running())
    play.submit(demand=Demand(Memory(1)))
    return play
