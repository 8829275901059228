"""Whatever is recalled and handed from one runner to another, in whatever order: each run begins
once at most, and is answered or given back once.
"""

from __future__ import annotations

import io
import random
from collections import Counter, deque
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from gridengine.serialize.payload import SINGLE
from gridengine.wire.messages import (
    VALUES,
    Assign,
    Assignment,
    Define,
    Message,
    Recall,
    Result,
    Results,
    Returned,
    Shortened,
)
from gridengine.worker.agent import Agent
from gridengine.worker.runner_handle import RunnerHandle
from gridengine.worker.status_block import BARRED_FROM, BARRED_TO, CUT, CUT_RUN, INDEX, RUN
from tests.support.agent_driver import NoForkServer

SLOTS = 3
Calls: TypeAlias = Counter[tuple[int, int]]


class PlayedRunner:
    """Takes what a runner is sent, and goes one step at a time through what a runner does."""

    def __init__(self, handle: RunnerHandle) -> None:
        self.handle = handle
        self.words = handle.status.words
        self.queue: deque[Assignment] = deque()
        self.current: Assignment | None = None
        self.calls: list[int] = []
        self.sent: deque[Message] = deque()

    def step(self, begun: Calls) -> None:
        """Begin the next run, or make a call of the one in progress, or end it."""
        if self.current is None:
            if not self.queue:
                return
            assignment = self.queue.popleft()
            self.words[INDEX], self.words[RUN] = assignment.start, assignment.run
            if self.words[BARRED_FROM] <= assignment.run <= self.words[BARRED_TO]:
                self.words[RUN] = 0
                self.sent.append(Returned([assignment.run]))
            else:
                self.current, self.calls = assignment, []
            return
        run, index = self.current.run, self.current.start + len(self.calls)
        if index < self.current.stop:
            self.words[INDEX] = index
            if self.words[CUT_RUN] == run and index >= self.words[CUT]:
                self._answer(run)
                self.sent.append(Shortened(run, index))
                self._end()
                return
            begun[self.current.task, index] += 1
            self.calls.append(index)
        else:
            self._answer(run)
            self._end()

    def _answer(self, run: int) -> None:
        if self.calls:
            first, last = self.calls[0], self.calls[-1]
            self.sent.append(Results([Result(run, first, last + 1, VALUES, 0.0, buffers=0)]))

    def _end(self) -> None:
        self.current = None
        self.words[RUN] = 0


class RacingWords:
    """The status block as the agent has it: between two looks the runner may have gone on."""

    def __init__(self, played: PlayedRunner, dice: random.Random, begun: Calls) -> None:
        self._words = played.words
        self._go_on = lambda: played.step(begun) if dice.random() < 0.2 else None

    def __getitem__(self, index: int) -> int:
        self._go_on()
        return self._words[index]

    def __setitem__(self, index: int, value: int) -> None:
        self._go_on()
        self._words[index] = value


class Play:
    """An agent, its runners, and what a dispatcher knows of its runs."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.agent = Agent(
            self.receive,
            NoForkServer(),  # type: ignore[arg-type]
            slots=SLOTS,
            grace_seconds=1.0,
            output_bytes=0,
            streams=[io.BytesIO(), io.BytesIO()],  # type: ignore[arg-type]
        )
        self.agent.pool.send = self.deliver  # type: ignore[method-assign]
        self.played: dict[int, PlayedRunner] = {}
        self.begun: Calls = Counter()
        self.next: dict[int, int] = {}
        self.stop: dict[int, int] = {}
        self.answered: Counter[int] = Counter()
        self.last = 0
        self.agent.handle(Define(b"f", [], b"/"), [b""])

    def deliver(self, runner: RunnerHandle, message: Message, payload: Any = ()) -> None:
        played = self.played.get(runner.id)
        if played is None:
            played = self.played[runner.id] = PlayedRunner(runner)
            runner.status.words = RacingWords(played, self.dice, self.begun)  # type: ignore[assignment]
        if isinstance(message, Assign):
            played.queue.extend(message.assignments)

    def receive(self, message: Message, buffers: Any) -> None:
        match message:
            case Results(results=results):
                for result in results:
                    assert result.start == self.next[result.run]
                    self.answered[result.run] += result.stop - result.start
                    self.next[result.run] = result.stop
                    if result.stop == self.stop[result.run]:
                        del self.next[result.run]
            case Returned(runs=runs):
                for run in runs:
                    del self.next[run]
            case Shortened(run=run, stop=stop):
                assert self.next[run] <= stop < self.stop[run]
                self.stop[run] = stop
                if self.next[run] == stop:
                    del self.next[run]

    def assign(self, number: int) -> None:
        assignments = []
        for _ in range(1 + number % 3):
            self.last += 1
            calls = 1 + number % 4
            self.next[self.last], self.stop[self.last] = 0, calls
            assignments.append(
                Assignment(self.last, self.last, b"f", 0, calls, 0, SINGLE, buffers=0)
            )
        self.agent.handle(Assign(assignments))

    def recall(self, number: int) -> None:
        self.agent.handle(Recall([run for run in self.next if number >> (run % 7) & 1]))

    def recall_all(self, number: int) -> None:
        self.agent.handle(Recall(list(self.next)))

    def step(self, number: int) -> None:
        if self.played:
            list(self.played.values())[number % len(self.played)].step(self.begun)

    def read(self, number: int) -> None:
        """Have the agent read one message of a runner."""
        if self.played:
            played = list(self.played.values())[number % len(self.played)]
            if played.sent:
                message = played.sent.popleft()
                self.agent._runner_messages.handle_message(played.handle, message, ())

    def finish(self) -> None:
        for _ in range(100 * self.last + 1):
            if not self.next:
                return
            for number in range(len(self.played)):
                self.step(number)
                self.read(number)
            self.agent.tick(0.0)
        raise AssertionError(f"runs {list(self.next)} have no end")


ACTS = [Play.assign, Play.recall, Play.recall_all, Play.step, Play.step, Play.read, Play.read]


@given(st.integers(0, 2**32), st.integers(0, 300))
def test_each_call_begins_once_and_each_run_ends_once(seed: int, acts: int) -> None:
    dice = random.Random(seed)
    play = Play(dice)
    try:
        for _ in range(acts):
            dice.choice(ACTS)(play, dice.randrange(128))
        play.finish()
        assert set(play.begun.values()) <= {1}
        assert sum(play.begun.values()) == sum(play.answered.values())
    finally:
        play.agent.close()
