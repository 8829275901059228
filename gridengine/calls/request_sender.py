"""Sends a client's requests to a dispatcher that keeps a journal, within the client's limits. Each
request is kept here until the dispatcher has it on disk.

Tasks that were submitted one by one travel in one message, so the journal writes them together.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from gridengine.calls.requesting import MOST_TASKS, definitions_of
from gridengine.dispatcher.core.tasks import CallsFinished, Task
from gridengine.dispatcher.interface import UnsettledTasks
from gridengine.errors import ConfigurationError
from gridengine.resources.units import plural
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.messages import JOURNALED, Message, Submit, Want


class ClientLimits:
    """Counts the calls that have not ended, and the bytes of the tasks with them. False when there
    is no limit.

    Args:
        calls, bytes: the most; None is any number.
    """

    def __init__(self, calls: int | None, bytes: int | None) -> None:
        self._most_calls, self._most_bytes = calls, bytes
        self._lock = threading.Lock()
        self._calls = self._bytes = 0
        self._sizes: dict[int, int] = {}

    def __bool__(self) -> bool:
        return self._most_calls is not None or self._most_bytes is not None

    def check(self, calls: int, bytes: int = 0) -> None:
        """Check that so many more calls and bytes may be open.

        Raises:
            ConfigurationError: they may not; the text has the numbers.
        """
        for more, count, most, unit in (
            (calls, self._calls, self._most_calls, "call"),
            (bytes, self._bytes, self._most_bytes, "byte"),
        ):
            if most is not None and count + more > most:
                raise ConfigurationError(
                    f"this client has {plural(count, unit)} open, and may have {most} "
                    f"(max_{unit}s): {more} more cannot be submitted",
                    hint="wait for some of them to end, or allow for more",
                )

    def enter(self, tasks: Sequence[Task]) -> None:
        """Count tasks that are about to be submitted.

        Raises:
            ConfigurationError: they are too many; none is counted.
        """
        sizes = {task.id: size_of(task.payload) for task in tasks}
        calls, size = sum(task.count for task in tasks), sum(sizes.values())
        with self._lock:
            self.check(calls, size)
            self._calls += calls
            self._bytes += size
            self._sizes.update(sizes)

    def leave(self, event: CallsFinished) -> None:
        """Count no more what has ended."""
        with self._lock:
            self._calls -= event.stop - event.start
            if event.last:
                self._bytes -= self._sizes.pop(event.task, 0)


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


log = logging.getLogger("gridengine")

Outgoing: TypeAlias = tuple[Submit, Payload]

MOST_BYTES = 256 * 1024
"""A message is not joined with others once these have so many bytes."""


class RequestSender:
    """Sends requests. For one thread.

    Args:
        refuse: tells who asks for something that cannot be sent, and why.
    """

    def __init__(
        self,
        connection: DispatcherConnection,
        requests: KeptRequests,
        refuse: Callable[[Message, Exception], None],
    ) -> None:
        self._connection = connection
        self._requests = requests
        self._refuse = refuse

    def send_tasks(self, messages: list[Outgoing]) -> None:
        """Send tasks in one message; where it cannot be encoded, those that can, in one each."""
        if len(messages) > 1:
            message, buffers = joined(messages)
            try:
                self._connection.send(message, buffers)
            except (TypeError, ValueError):
                log.debug("tasks that cannot be sent together are sent one by one", exc_info=True)
            else:
                self._requests.add(message, buffers)
                return
        for message, buffers in messages:
            self.send(message, buffers)

    def send(self, message: Message, buffers: Payload) -> None:
        """Send a message; where tasks cannot be encoded, at least what comes with them."""
        try:
            self._connection.send(message, buffers)
        except (TypeError, ValueError) as error:  # a name may be none that can be encoded
            self._refuse(message, error)
            if isinstance(message, Submit) and message.tasks:
                for own in definitions_of(message, buffers):
                    self.send(*own)
            return
        if type(message) in JOURNALED:
            self._requests.add(message, buffers)


def take_joinable(first: Submit, coming: deque[Any]) -> list[Outgoing]:
    """Take of what comes next that which may travel with a message, and return it."""
    taken: list[Outgoing] = []
    tasks, size = len(first.tasks), 0
    while coming and size < MOST_BYTES and isinstance(coming[0], tuple):
        message, buffers = coming[0]
        if not (
            type(message) is Submit
            and message.digest == first.digest
            and message.function is None
            and not message.shared
            and message.detached == first.detached
        ):
            break
        tasks += len(message.tasks)
        if tasks > MOST_TASKS:
            break
        size += size_of(buffers)
        taken.append(coming.popleft())
    return taken


def joined(messages: Sequence[Outgoing]) -> Outgoing:
    """Return such messages as one."""
    [first, _] = messages[0]
    tasks = [task for message, _ in messages for task in message.tasks]
    return replace(first, tasks=tasks), [buffer for _, buffers in messages for buffer in buffers]
