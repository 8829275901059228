"""Whatever is recalled, cancelled and handed from one runner to another, and whichever runner dies,
in whatever order: each run begins once at most, and is answered, given back or ended once.
"""

from __future__ import annotations

import io
import random
import signal
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridengine.call_context.status_block import (
    BARRED_FROM,
    BARRED_TO,
    CUT,
    CUT_RUN,
    HOLD,
    INDEX,
    RUN,
    UNTIL,
)
from gridengine.serialize.payload import SINGLE
from gridengine.wire.messages import (
    CANCELLED,
    VALUES,
    Assign,
    Assignment,
    Cancel,
    Crashed,
    Define,
    Message,
    Recall,
    Result,
    Results,
    Returned,
    Shortened,
    Waits,
)
from gridengine.worker.agent import Agent
from gridengine.worker.forkserver import Exited
from gridengine.worker.runner_handle import RunnerHandle
from tests.support.agent_driver import NoForkServer

SLOTS = 3
Calls: TypeAlias = Counter[tuple[int, int]]


class PlayedRunner:
    """Takes what a runner is sent, and goes one step at a time through what a runner does; in the
    place of its own channel, as the agent has it.
    """

    def __init__(self, handle: RunnerHandle) -> None:
        self.words = handle.status.words
        self.fileno = handle.channel.fileno
        self.close = handle.channel.close
        self.ended = self.more = self.dead = False
        self.inbox: deque[Message] = deque()
        self.queue: deque[Assignment] = deque()
        self.held = 0
        self.current: Assignment | None = None
        self.calls: list[int] = []
        self.is_to_look = False
        """Whether it has written where its next stride ends, and is to look for a cut."""
        self.stride_start = self.stride_end = 0
        self.sent: deque[Message] = deque()
        self.waits = False
        """Whether its call waits for others."""

    def poll(self) -> list[tuple[Message, list[Any]]]:
        """Return the next of what it sent, to its agent."""
        message = self.sent.popleft() if self.sent else None
        self.more = bool(self.sent)
        return [] if message is None else [(message, [b""] * message.count_buffers())]

    def step(self, begun: Calls) -> None:
        """Read a message, begin the next run, or make a call of the one in progress or end it."""
        if self.dead or self.waits:
            return
        if self.current is not None:
            self._go_on(self.current, begun)
        elif not self.queue:
            self._read()
        else:
            assignment = self.queue[0]
            self.words[INDEX] = self.words[UNTIL] = self.stride_end = assignment.start
            self.words[RUN] = assignment.run
            if self.words[HOLD] != self.held:
                self.words[RUN] = 0
                self._read()
            elif self.words[BARRED_FROM] <= assignment.run <= self.words[BARRED_TO]:
                self.words[RUN] = 0
                self.queue.popleft()
                self.sent.append(Returned([assignment.run]))
            else:
                self.current, self.calls = self.queue.popleft(), []

    def _read(self) -> None:
        message = self.inbox.popleft() if self.inbox else None
        if isinstance(message, Assign):
            self.queue.extend(message.assignments)
        elif isinstance(message, Cancel):
            self.held += 1
            for one in [one for one in self.queue if one.run in message.runs]:
                self.queue.remove(one)
                self.sent.append(Crashed(one.run, -1, -message.signal, CANCELLED, 0))

    def _go_on(self, current: Assignment, begun: Calls) -> None:
        run, index = current.run, current.start + len(self.calls)
        cut = self.words[CUT] if self.words[CUT_RUN] == run else current.stop
        if self.stride_start < index < self.stride_end and (run + index) % 2:
            self.stride_end = self.words[UNTIL] = index  # as its backstop thread does
        elif index < self.stride_end:
            self.words[INDEX] = index
            begun[current.task, index] += 1
            self.calls.append(index)
        elif index == current.stop:
            self._answer(run)
            self._end()
        elif not self.is_to_look:
            self.words[UNTIL] = min(index + 1 + (run + index) % 3, current.stop)
            self.is_to_look = True
        elif cut <= index:
            self._answer(run)
            self.sent.append(Shortened(run, index))
            self._end()
        else:
            self.stride_start, self.stride_end = index, min(self.words[UNTIL], cut)
            self.is_to_look = False

    def _answer(self, run: int) -> None:
        if self.calls:
            first, last = self.calls[0], self.calls[-1]
            self.sent.append(Results([Result(run, first, last + 1, VALUES, 0.0, buffers=0)]))

    def _end(self) -> None:
        self.current, self.is_to_look = None, False
        self.words[RUN] = 0


class PlayedForkServer(NoForkServer):
    """Ends runners that are only played, at once; `ended` is what the agent has not been told."""

    def __init__(self) -> None:
        super().__init__()
        self.played: dict[int, PlayedRunner] = {}
        self.ended: list[Exited] = []

    def signal(self, runner: int, number: int) -> None:
        if not self.played[runner].dead:
            self.played[runner].dead = True
            self.ended.append(Exited(runner, -number, 0))

    def receive(self) -> list[Exited]:
        ended, self.ended = self.ended, []
        return ended


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
        self.fork_server = PlayedForkServer()
        self.played = self.fork_server.played
        self.agent = Agent(
            self.receive,
            self.fork_server,  # type: ignore[arg-type]
            slots=SLOTS,
            grace_seconds=1.0,
            output_bytes=0,
            streams=[io.BytesIO(), io.BytesIO()],  # type: ignore[arg-type]
        )
        self.agent.pool.send = self.deliver  # type: ignore[method-assign]
        self.begun: Calls = Counter()
        self.cancelled: set[int] = set()
        self.never: set[int] = set()
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
            runner.channel = played  # type: ignore[assignment]
        played.inbox.append(message)

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
            case Crashed(run=run, index=index):
                assert index == -1 or self.next[run] <= index < self.stop[run]
                assert index != -1 or run in self.cancelled
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

    def cancel(self, number: int) -> None:
        """Cancel some runs; of those of which no call has begun by then none ever does."""
        runs = [run for run in self.next if number >> (run % 7) & 1]
        self.cancelled.update(runs)
        self.agent.handle(Cancel(runs, signal.SIGTERM))
        begun = {task for task, _ in self.begun}
        self.never |= set(runs) - begun

    def kill(self, number: int) -> None:
        """Kill a runner that has done something: after three others the agent would give up."""
        worked = [one for one, played in self.played.items() if played.sent or played.current]
        if worked:
            self.fork_server.signal(worked[number % len(worked)], signal.SIGKILL)

    def reap(self, number: int) -> None:
        self.agent._runner_messages.handle_fork_server()

    def step(self, number: int) -> None:
        if self.played:
            list(self.played.values())[number % len(self.played)].step(self.begun)

    def read(self, number: int) -> None:
        """Have the agent read one message of a runner."""
        if self.played:
            runner = list(self.played)[number % len(self.played)]
            handle, sent = self.agent.pool.runners.get(runner), self.played[runner].sent
            if handle is not None and sent:
                self.agent._runner_messages.handle_runner(handle)

    def wait(self, number: int) -> None:
        """Have a call begin to wait for others."""
        busy = [one for one, played in self.played.items() if played.calls and played.current]
        runner = self.agent.pool.runners.get(busy[number % len(busy)]) if busy else None
        if runner is not None and not self.played[runner.id].dead:
            played = self.played[runner.id]
            played.waits = True
            run = played.words[RUN]
            self.agent._nested_calls.begin_waiting(runner, Waits(runner.id, run))
            played.waits = runner.waits_in == run  # else it has ended for the agent

    def resume(self, number: int) -> None:
        """Have a call go on that waited, if there is a slot."""
        waiting = sorted(self.agent.pool._waiting)
        busy = len(self.agent.pool.runners) - len(waiting) - len(self.agent.pool.idle)
        if waiting and busy < SLOTS:
            self._go_on(waiting[number % len(waiting)])

    def _go_on(self, runner: int) -> None:
        handle = self.agent.pool.runners[runner]
        self.agent.pool.end_waiting(handle, 0)
        self.played[runner].waits = False

    def finish(self) -> None:
        """Have all runs end but those of calls that wait: none of them waits for one of these. Then
        these.
        """
        self._finish(lambda: self.next.keys() <= self._waited_for())
        for runner in sorted(self.agent.pool._waiting):
            self._go_on(runner)
        self._finish(lambda: not self.next)

    def _waited_for(self) -> set[int]:
        """Return the runs of calls that wait, and what was cancelled behind them."""
        pool = self.agent.pool
        return {
            run
            for one in pool._waiting
            for run in pool.runners[one].given
            if run == pool.runners[one].waits_in or run in self.cancelled
        }

    def _finish(self, has_ended: Callable[[], bool]) -> None:
        for _ in range(100 * self.last + 1):
            if has_ended():
                return
            for number in range(len(self.played)):
                self.step(number)
                self.read(number)
            self.reap(0)
            self.agent.tick(0.0)
        raise AssertionError(f"runs {list(self.next)} have no end")


ACTS = [Play.assign, Play.recall, Play.recall_all, Play.step, Play.step, Play.read, Play.read]
NESTED = [*ACTS, Play.wait, Play.wait, Play.wait, Play.resume]
ENDS = [Play.cancel, Play.reap]


@pytest.mark.parametrize(
    "acts",
    [
        pytest.param(NESTED, id="calls wait for others"),
        pytest.param([*NESTED, *ACTS, *ENDS], id="and runs are cancelled"),
        pytest.param([*ACTS, *ENDS, Play.cancel, Play.kill], id="and runners die"),
    ],
)
@given(seed=st.integers(0, 2**32))
def test_each_call_begins_once_and_each_run_ends_once(
    acts: list[Callable[[Play, int], None]], seed: int
) -> None:
    play = Play(dice := random.Random(seed))
    try:
        for _ in range(dice.randrange(300)):
            dice.choice(acts)(play, dice.randrange(128))
        play.finish()
    finally:
        play.agent.close()
    assert set(play.begun.values()) <= {1}
    assert play.never.isdisjoint(task for task, _ in play.begun)
    if acts is NESTED:
        assert sum(play.begun.values()) == sum(play.answered.values())
