"""The state that a worker reports to a dispatcher that was killed and started again: the runs that
it holds, and the messages about them that may be lost.

A dispatcher that was started again answers an unknown worker by `Rejoin`. The worker begins a new
session with a `Hello` that lists its runs as far as its messages were acknowledged, and sends all
other messages again. The core handles them like any others. A dispatcher with a journal
acknowledges a message only when its effects are durable; so nothing is lost, and a duplicate is
about a call that is settled already.

Rejected: a table of results at the worker and requests for them, which would be a second session
protocol.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

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
    Saved,
    Shortened,
    Started,
)
from gridengine.worker.agent import Agent

if TYPE_CHECKING:
    from gridengine.wire.session_client import SessionClient


class HeldRuns:
    """Sends an agent's messages and keeps them until the dispatcher has acknowledged them. The
    acknowledged messages say which runs have not ended.

    A dispatcher that does not know this worker takes these runs as assigned. It handles messages
    that are sent again as if they came for the first time, because each call is settled once.
    `hello` returns the worker's first message.
    """

    def __init__(self, client: SessionClient, hello: Callable[[], Hello]) -> None:
        self._client = client
        self._hello = hello
        self._runs: dict[int, tuple[int, int, HeldRun]] = {}
        """The runs as the dispatcher has acknowledged them, each with its batch and allocation."""
        self._sent: deque[tuple[int, Message, Payload]] = deque()
        self._batches = itertools.count(1)
        self._taken = 0

    def send(self, message: Message, buffers: Payload = ()) -> None:
        """Send the dispatcher a message of the agent."""
        self._client.send(message, buffers)
        if type(message) in _SENT_AGAIN:
            self._sent.append((self._client.sent, message, buffers))
        self.settle()

    def assigned(self, message: Assign) -> None:
        """Record the runs that the worker is assigned."""
        batch = next(self._batches)
        for one in message.assignments:
            run = HeldRun(one.run, one.task, one.start, one.stop)
            self._runs[one.run] = batch, message.allocation, run
            self._taken += one.stop - one.start

    def settle(self) -> None:
        """Drop the messages that the dispatcher has acknowledged, and apply them to the runs."""
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
        """Update a run that has not ended. It ends when all its calls are answered."""
        if number in self._runs:
            batch, allocation, run = self._runs[number]
            run = replace(run, **known)
            self._runs[number] = batch, allocation, run
            if run.done >= run.stop:
                del self._runs[number]

    def introduce(self, agent: Agent) -> None:
        """Introduce this worker to a dispatcher that does not know it."""
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
        batches: dict[tuple[int, int], list[HeldRun]] = {}
        for batch, allocation, run in self._runs.values():
            batches.setdefault((batch, allocation), []).append(run)
        return Held(
            [HeldBatch(runs, allocation) for (_, allocation), runs in batches.items()],
            agent.allocations(),
            agent.defined(),
            self._taken,
        )


_SENT_AGAIN = frozenset(
    (Results, Saved, Crashed, Returned, Shortened, Started, Pushed, Output, Goodbye)
)
"""The messages that are sent again: all except those of nested calls, which are ended."""
