"""Send a client's requests to a dispatcher, within the client's limits. If the dispatcher has a
journal, each request stays here until it is durable there.

Tasks that are submitted one by one travel in one message, so that the journal writes them together.
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
from gridengine.display import plural
from gridengine.errors import ConfigurationError
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.messages import JOURNALED, Message, Submit, Want


class ClientLimits:
    """Counts the calls that have not ended, and the bytes of their tasks. False if there is no
    limit.

    Args:
        calls, bytes: the limits; None is any number.
    """

    def __init__(self, calls: int | None, bytes: int | None) -> None:
        self._most_calls, self._most_bytes = calls, bytes
        self._lock = threading.Lock()
        self._calls = self._bytes = 0
        self._sizes: dict[int, int] = {}

    def __bool__(self) -> bool:
        return self._most_calls is not None or self._most_bytes is not None

    def check(self, calls: int, bytes: int = 0) -> None:
        """Check that this many more calls and bytes may be open.

        Raises:
            ConfigurationError: they would exceed a limit; the text has the numbers.
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
            ConfigurationError: they would exceed a limit; none is counted.
        """
        sizes = {task.id: size_of(task.payload) for task in tasks}
        calls, size = sum(task.count for task in tasks), sum(sizes.values())
        with self._lock:
            self.check(calls, size)
            self._calls += calls
            self._bytes += size
            self._sizes.update(sizes)

    def leave(self, event: CallsFinished) -> None:
        """Stop counting calls that have ended."""
        with self._lock:
            self._calls -= event.stop - event.start
            if event.last:
                self._bytes -= self._sizes.pop(event.task, 0)


Wanted: TypeAlias = tuple[Want, Callable[[], object]]
"""A question whether the dispatcher will keep a result, and the function to call if it will not."""


class PendingRequests:
    """Requests that are not durable at the dispatcher, oldest first. One thread adds and removes
    them; any thread may call `expect` and `has`.

    journaled: whether the dispatcher has a journal. Without one, no request is stored here.
    """

    def __init__(self) -> None:
        self.journaled = False
        self._pending: deque[tuple[Message, Payload]] = deque()
        self._expected: set[int] = set()
        """The tasks that are not durable, whether or not they have been sent."""
        self._asked: set[int] = set()
        """The references that `Want` messages among these requests ask for."""
        self._promised: dict[int, Wanted] = {}
        """The wanted results that the dispatcher has promised to keep. A restarted dispatcher does
        not know of a promise whose request was not durable.
        """
        self._added = self.durable = 0
        """`_added`: how many requests were added. `durable`: how many of them are durable."""
        self._waiting: deque[tuple[int, threading.Event]] = deque()

    def expect(self, tasks: Iterable[int]) -> None:
        """Note tasks that are about to be submitted."""
        if self.journaled:
            self._expected.update(tasks)

    def drop(self, task: int) -> None:
        """Note that a task is not submitted after all."""
        self._expected.discard(task)

    def add(self, message: Message, buffers: Payload) -> None:
        """Add a request that is about to be sent."""
        if self.journaled:
            self._pending.append((message, buffers))
            self._added += 1
            if type(message) is Want:
                self._asked.add(message.reference)

    def taken(self, requests: int) -> None:
        """Remove the requests that are durable: the oldest `requests`, counted from the first
        ever.
        """
        while self.durable < requests:
            message, _ = self._pending.popleft()
            self.durable += 1
            if type(message) is Submit:
                self._expected.difference_update(one.id for one in message.tasks)
            elif type(message) is Want:
                self._asked.discard(message.reference)
                self._promised.pop(message.reference, None)
        while self._waiting and self._waiting[0][0] <= self.durable:
            self._waiting.popleft()[1].set()

    def when_taken(self, done: threading.Event) -> None:
        """Set an event once all requests added so far are durable."""
        if self._added == self.durable:
            done.set()
        else:
            self._waiting.append((self._added, done))

    def asks_for(self, reference: int) -> bool:
        """Return whether one of these requests asks for this result."""
        return reference in self._asked

    def promised(self, wanted: Wanted) -> None:
        """Note that the dispatcher has promised to keep a result, if the question is not durable
        yet.
        """
        reference = wanted[0].reference
        if reference in self._asked:
            self._promised[reference] = wanted

    def take_promises(self) -> dict[int, Wanted]:
        """Return the promises that a restarted dispatcher may not know of, to ask for them again,
        and forget them.
        """
        promised, self._promised = self._promised, {}
        return promised

    def release(self) -> None:
        """Set all events that wait: no more requests will become durable."""
        while self._waiting:
            self._waiting.popleft()[1].set()

    def has(self, task: int) -> bool:
        """Return whether a task is not durable yet."""
        return task in self._expected

    def left(self, unsettled: UnsettledTasks) -> Iterator[tuple[Message, Payload]]:
        """Yield the requests that a restarted dispatcher does not have. Tasks that have ended are
        left out, unless others need their results.
        """
        for message, buffers in self._pending:
            if type(message) is Submit:
                yield _without_ended(message, buffers, unsettled)
            else:
                yield message, buffers


def _without_ended(
    message: Submit, buffers: Payload, unsettled: UnsettledTasks
) -> tuple[Message, Payload]:
    """Return a submission without the tasks that have outcomes, unless other calls need their
    results.
    """
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
"""A message is joined with no more others once these have this many bytes."""


class RequestSender:
    """Sends requests. For one thread.

    Args:
        connection: to the dispatcher.
        requests: takes the requests that are sent.
        refuse: called with a message that cannot be sent, and the reason.
    """

    def __init__(
        self,
        connection: DispatcherConnection,
        requests: PendingRequests,
        refuse: Callable[[Message, Exception], None],
    ) -> None:
        self._connection = connection
        self._requests = requests
        self._refuse = refuse

    def send_tasks(self, messages: list[Outgoing]) -> None:
        """Send tasks in one message. If it cannot be encoded, send each message by itself, so that
        only the faulty ones are refused.
        """
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
        """Send a message. If its tasks cannot be encoded, refuse them, and send its definitions
        alone, because later tasks need them.
        """
        try:
            self._connection.send(message, buffers)
        # A name may have characters that UTF-8 cannot encode.
        except (TypeError, ValueError) as error:
            self._refuse(message, error)
            if isinstance(message, Submit) and message.tasks:
                for own in definitions_of(message, buffers):
                    self.send(*own)
            return
        if type(message) in JOURNALED:
            self._requests.add(message, buffers)


def take_joinable(first: Submit, coming: deque[Any]) -> list[Outgoing]:
    """Remove from the front of the queue the messages that can travel with this one, and return
    them.
    """
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
    """Join messages that `take_joinable` has chosen."""
    [first, _] = messages[0]
    tasks = [task for message, _ in messages for task in message.tasks]
    return replace(first, tasks=tasks), [buffer for _, buffers in messages for buffer in buffers]
