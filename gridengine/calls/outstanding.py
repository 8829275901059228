"""The outstanding work of a client of a stand-alone dispatcher: calls, within the client's limits;
requests that are not durable in the dispatcher's journal; and outcomes that are not acknowledged,
including those inherited from earlier clients of the same named run.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gridengine.calls.translation import tasks_apart
from gridengine.dispatcher.unsettled import UnsettledTasks, Wanted
from gridengine.display import plural
from gridengine.errors import ConfigurationError
from gridengine.requests import CallsFinished, Task
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.wire.messages import JOURNALED, Message, Submit, Want

MOST_UNTOLD, TELL_SECONDS = 16, 0.05
"""Acknowledge messages with outcomes when this many have arrived, or after this time. Acknowledging
each at once would keep the dispatcher and its journal busy while the next call is on its way.
"""


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
        if self.journaled and type(message) in JOURNALED:
            self._pending.append((message, buffers))
            self._added += 1
            if type(message) is Want:
                self._asked.add(message.reference)

    def taken(self, requests: int) -> None:
        """Remove the requests that are durable at the dispatcher: the first `requests` of all."""
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
        """Note that the dispatcher has promised to keep a result, if the `Want` that asked for it
        is not durable yet.
        """
        reference = wanted[0].reference
        if reference in self._asked:
            self._promised[reference] = wanted

    def take_promises(self) -> dict[int, Wanted]:
        """Return and forget the promises that a restarted dispatcher may not know of."""
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
    """Return a submission without the tasks that have outcomes, unless other calls need them."""
    tasks, its = [], list[Buffer]()
    for part, payload in tasks_apart(message, buffers):
        [*task] = part.tasks
        if not task or task[0].kept or unsettled.listener(task[0].id) is not None:
            tasks += task
            its += payload
    return replace(message, tasks=tasks), its


class Left(Struct, frozen=True):
    """Outcomes of calls that earlier clients have left. `number` is the message's, to be passed to
    `took`; `life` is the dispatcher's epoch in which the message came.
    """

    number: int
    life: int
    outcomes: list[CallsFinished]


class Took(Struct, frozen=True):
    """A note that the messages with these numbers, which came in this epoch of the dispatcher, are
    stored.
    """

    numbers: list[int]
    life: int


class TakenOutcomes:
    """Numbers of messages to acknowledge: `MOST_UNTOLD` together, or after `TELL_SECONDS`. For one
    thread.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._tell_at = math.inf

    def add(self, *numbers: int) -> None:
        """Add numbers of messages."""
        self._numbers += numbers

    @property
    def are_many(self) -> bool:
        """Whether there are so many that they must be acknowledged now."""
        return len(self._numbers) >= MOST_UNTOLD

    def seconds_left(self, now: float) -> float:
        """Return after how many seconds to acknowledge the numbers; infinite if there are none."""
        if not self._numbers:
            return math.inf
        self._tell_at = min(self._tell_at, now + TELL_SECONDS)
        return max(self._tell_at - now, 0.0)

    def take(self) -> list[int]:
        """Return the numbers, and forget them."""
        numbers, self._numbers, self._tell_at = self._numbers, [], math.inf
        return numbers
