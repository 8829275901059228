"""What a worker has to tell a dispatcher that was killed and started again: the runs that it has,
and what it has sent of them that may be lost.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gridengine.serialize.payload import Payload, size_of
from gridengine.wire.messages import (
    Assign,
    Crashed,
    Goodbye,
    Held,
    HeldBatch,
    HeldRun,
    Hello,
    Message,
    Output,
    Pushed,
    Results,
    Returned,
    Shortened,
    Started,
)
from gridengine.worker.agent import Agent

if TYPE_CHECKING:
    from gridengine.wire.client import Client


class _Run(Struct, frozen=True):
    """A run as its dispatcher knows it for good; see `HeldRun`. `batch` is its batch's number."""

    task: int
    done: int
    stop: int
    batch: int
    allocation: int


class HeldRuns:
    """Sends what an agent says, and keeps it until the dispatcher has acknowledged it; knows which
    runs have not ended by what is acknowledged.

    A dispatcher that does not know this worker takes these runs for assigned, and what is sent
    again as it takes what comes first: its calls are settled once.

    Args:
        client: the connection.
        hello: returns the worker's first message.
    """

    def __init__(self, client: Client, hello: Callable[[], Hello]) -> None:
        self._client = client
        self._hello = hello
        self._runs: dict[int, _Run] = {}
        self._sent: deque[tuple[int, Message, Payload]] = deque()
        self._batches = itertools.count(1)
        self._taken = 0

    def send(self, message: Message, buffers: Payload = ()) -> None:
        """Send the dispatcher a message of the agent."""
        self._client.send(message, buffers)
        if type(message) in _KEPT:
            self._sent.append((self._client.sent, message, buffers))
        self.settle()

    def assigned(self, message: Assign) -> None:
        """Note what the worker is assigned."""
        batch = next(self._batches)
        for one in message.assignments:
            self._runs[one.run] = _Run(one.task, one.start, one.stop, batch, message.allocation)
            self._taken += one.stop - one.start

    def settle(self) -> None:
        """Let go of what the dispatcher has acknowledged."""
        while self._sent and self._sent[0][0] <= self._client.acknowledged:
            self._apply(self._sent.popleft()[1])

    def _apply(self, message: Message) -> None:
        match message:
            case Results():
                for result in message.results:
                    self._change(result.run, done=result.stop)
            case Shortened():
                self._change(message.run, stop=message.stop)
            case Crashed():
                self._runs.pop(message.run, None)
            case Returned():
                for number in message.runs:
                    self._runs.pop(number, None)

    def _change(self, number: int, **known: int) -> None:
        """Note what is known of a run, if it has not ended; it is over when that is all of it."""
        if number in self._runs:
            run = self._runs[number] = replace(self._runs[number], **known)
            if run.done >= run.stop:
                del self._runs[number]

    def introduce(self, agent: Agent) -> None:
        """Begin again with a dispatcher that does not know this worker."""
        self.settle()
        agent.end_nested_calls()
        self._client.begin_again()
        self._client.send(replace(self._hello(), held=self._held(agent)))
        unknown, self._sent = self._sent, deque()
        written = Counter[int]()
        for _, one, buffers in unknown:
            if isinstance(one, Output):
                written[one.run] += size_of(buffers)
        agent.forget_output(written)
        for _, message, buffers in unknown:
            self.send(message, buffers)

    def _held(self, agent: Agent) -> Held:
        batches: dict[int, list[HeldRun]] = {}
        allocations = {}
        for number, run in self._runs.items():
            batches.setdefault(run.batch, []).append(HeldRun(number, run.task, run.done, run.stop))
            allocations[run.batch] = run.allocation
        return Held(
            [HeldBatch(runs, allocations[batch]) for batch, runs in batches.items()],
            agent.allocations(),
            agent.defined(),
            self._taken,
        )


_KEPT = frozenset((Results, Crashed, Returned, Shortened, Started, Pushed, Output, Goodbye))
"""What is sent again: all but what calls say that make calls, which are ended."""
