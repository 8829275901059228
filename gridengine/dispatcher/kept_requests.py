"""What a client has asked of a dispatcher that keeps a journal, until that has it on disk."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.serialize.payload import Buffer, Payload
from gridengine.wire.messages import Message, Submit, Want

Wanted: TypeAlias = tuple[Want, Callable[[], object]]
"""What asks for a result to be kept, and what to call should it be missing."""


class KeptRequests:
    """Such requests, oldest first. One thread adds and removes; any may expect, and ask for, tasks.

    keeps: whether the dispatcher has a journal; without one nothing is kept here either.
    """

    def __init__(self) -> None:
        self.keeps = False
        self._kept: deque[tuple[Message, Payload]] = deque()
        self._expected: set[int] = set()
        """The tasks that are not on disk, whether or not their requests were sent."""
        self._asked: set[int] = set()
        """The references of results that these requests ask for."""
        self._promised: dict[int, Wanted] = {}
        """Of those the ones that the dispatcher has said to keep."""
        self._added = self.durable = 0
        """How many were added, and how many of these the dispatcher has on disk."""
        self._waiting: deque[tuple[int, threading.Event]] = deque()

    def expect(self, tasks: Iterable[int]) -> None:
        """Note tasks that are about to be handed in."""
        if self.keeps:
            self._expected.update(tasks)

    def drop(self, task: int) -> None:
        """Note that a task is not handed in after all."""
        self._expected.discard(task)

    def add(self, message: Message, buffers: Payload) -> None:
        """Add a request that is about to be sent."""
        if self.keeps:
            self._kept.append((message, buffers))
            self._added += 1
            if type(message) is Want:
                self._asked.add(message.reference)

    def taken(self, requests: int) -> None:
        """Note how many the dispatcher has on disk."""
        while self.durable < requests:
            message, _ = self._kept.popleft()
            self.durable += 1
            if type(message) is Submit:
                self._expected.difference_update(one.id for one in message.tasks)
            elif type(message) is Want:
                self._asked.discard(message.reference)
                self._promised.pop(message.reference, None)
        while self._waiting and self._waiting[0][0] <= self.durable:
            self._waiting.popleft()[1].set()

    def when_taken(self, done: threading.Event) -> None:
        """Set an event once all that was added is on disk."""
        if self._added == self.durable:
            done.set()
        else:
            self._waiting.append((self._added, done))

    def asks_for(self, reference: int) -> bool:
        """Return whether one of these asks for this result."""
        return reference in self._asked

    def promised(self, wanted: Wanted) -> None:
        """Note that the dispatcher keeps a result: one that is started again knows nothing of it
        before the request is on disk.
        """
        reference = wanted[0].reference
        if reference in self._asked:
            self._promised[reference] = wanted

    def take_promises(self) -> dict[int, Wanted]:
        """Return the results that the dispatcher was to keep, and may not know of, to be asked for
        again.
        """
        promised, self._promised = self._promised, {}
        return promised

    def release(self) -> None:
        """Let go who waits: no more will be taken."""
        while self._waiting:
            self._waiting.popleft()[1].set()

    def has(self, task: int) -> bool:
        """Return whether the request that hands in a task is not on disk."""
        return task in self._expected

    def left(self, unsettled: UnsettledTasks) -> Iterator[tuple[Message, Payload]]:
        """Yield what a dispatcher that was started again does not have. Tasks that have ended are
        not among it, unless others need their results.
        """
        for message, buffers in self._kept:
            if type(message) is Submit:
                yield _without_ended(message, buffers, unsettled)
            else:
                yield message, buffers


def _without_ended(
    message: Submit, buffers: Payload, unsettled: UnsettledTasks
) -> tuple[Message, Payload]:
    first = () if message.function is None else (message.function,)
    offset = sum(one.buffers for one in (*first, *message.shared))
    tasks, its = [], list[Buffer](buffers[:offset])
    for task in message.tasks:
        stop = offset + task.buffers
        if task.kept or unsettled.listener(task.id) is not None:
            tasks.append(task)
            its += buffers[offset:stop]
        offset = stop
    return replace(message, tasks=tasks), its
