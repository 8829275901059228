"""A client in another process, as the dispatcher has it: the listener of its tasks, which makes
messages of what comes of them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec.structs import astuple, replace

from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import (
    CallsFinished,
    Function,
    ResultData,
    TaskMessage,
    TaskStarted,
)
from gridengine.dispatcher.nested_encoding import DumpError, FailureNumbers
from gridengine.errors import Cancelled
from gridengine.serialize import pickling
from gridengine.serialize.kept_payload import KeptPayload
from gridengine.serialize.payload import Buffer, Payload
from gridengine.serialize.shared_objects import SharedObject
from gridengine.wire.messages import (
    NUMBER_BITS,
    AttemptItem,
    Finished,
    FinishedItem,
    Message,
    Submit,
    TaskBegan,
    TaskPushed,
)

Send = Callable[[bytes, Message, Payload], None]
Key: TypeAlias = tuple[bytes, int]
"""Whom a message comes from: a peer, and which process of it, 0 for the peer itself."""
ENDED = -1
"""The number of no run: whose calls end at once."""


class ClientTable(Protocol):
    """What a client is in."""

    first_failure: int
    """The first number of what calls fail for that no process before had for it."""
    finished: defaultdict[Client, list[CallsFinished]]
    """What is to be passed on."""

    @property
    def closing(self) -> bool:
        """Whether the dispatcher is about to end."""


class Client:
    """A client in another process, the listener of its tasks.

    Args:
        key: the peer that it is or, of a process that runs calls, its worker, and that process.
        number: with which the numbers of all that is its own begin.
        send: sends the peer a message.
    """

    daemon = True
    taken = -1
    """How many of its requests a journal has, if there is one."""
    owed = ready = 0
    """How many tasks clients before it have left to it, and how many messages of what has come of
    these there are.
    """

    def __init__(self, clients: ClientTable, key: Key, number: int, send: Send) -> None:
        self._clients = clients
        self.key = key
        self.peer, self.runner = key
        self.number = number
        self._send = send
        self.dump_error: DumpError = pickling.dump_exception
        self.gone = False
        self.functions: dict[bytes, Function] = {}
        self.shared: dict[bytes, SharedObject] = {}
        self.references: set[int] = set()
        """Those that it has not released."""
        self.claims: set[int] = set()
        """The same, with those that are not known to stand for anything: nobody else may say what
        they stand for, or refer to them.
        """
        self.coming: deque[CallsFinished] = deque()
        """The outcomes that are still to be passed on."""
        self._failures = FailureNumbers(clients.first_failure)

    def parent(self, state: CoreState, message: Submit) -> int:
        """Return the run with which tasks end, 0 for none."""
        return 0

    def encode_outcome(self, event: CallsFinished, buffers: list[Buffer]) -> FinishedItem:
        """Return an outcome as it travels; add its buffers to these."""
        payload, error = event.payload or (), event.error
        output = bool(event.stdout or event.stderr)
        buffers += payload
        if error is not None:
            buffers += self.dump_error(error)[:1]  # one of ours has no more
        if output:
            buffers += event.stdout, event.stderr
        return FinishedItem(
            event.task,
            event.start,
            event.stop,
            len(payload),
            event.raised,
            error is not None,
            event.exitcode,
            output,
            [AttemptItem(*astuple(one)) for one in event.attempts],
            event.last,
            event.recalled,
            event.seconds,
            event.path,
            self._failures.number_of(event) if error is not None or event.raised else 0,
            isinstance(error, Cancelled),
        )

    def owns(self, number: int) -> bool:
        """Return whether a task's or submitter's number is one of its own."""
        return number >> NUMBER_BITS == self.number

    def send(self, message: Message, buffers: Payload = ()) -> None:
        """Send the process a message."""
        self._send(self.peer, message, buffers)

    def answer(self, message: Message, buffers: Payload) -> None:
        """Send the process an answer, behind what has come of calls before."""
        self.send(message, buffers)

    def settled(self, event: CallsFinished) -> None:
        """Pass on the outcome of calls, with all that this event brings."""
        if not self.gone:
            self.coming.append(event)
            if len(self.coming) == 1:
                self._pass_on()

    def _pass_on(self) -> None:
        """Pass on in their order the outcomes that are here: what has stayed at a worker comes
        first.
        """
        while self.coming:
            event = self.coming[0]
            payload = event.payload
            if type(payload) is KeptPayload and payload.when_here and payload.outcome:
                if payload.when_here(self._pass_on):
                    return
                event = _with(event, payload.outcome())
            self.coming.popleft()
            self._clients.finished[self].append(event)

    def finish(self, items: list[FinishedItem], buffers: list[Buffer]) -> None:
        """Send the outcomes of calls."""
        self.send(Finished(self.runner, items), buffers)

    def began(self, event: TaskStarted) -> None:
        """Pass on that a task has begun."""
        self.send(TaskBegan(self.runner, event.task, event.pid, event.host, event.attempt))

    def abandoned(self) -> None:
        """Ignore it: the process knows when its calls end."""

    def noted(self, event: TaskMessage) -> None:
        """Pass on a pushed value, or what calls have logged."""
        self.send(TaskPushed(self.runner, event.task, len(event.payload), event.log), event.payload)


class NestedClient(Client):
    """A process that runs calls which make calls: its tasks end with these, and detached ones with
    the client of these.
    """

    def parent(self, state: CoreState, message: Submit) -> int:
        """Return the run whose call submits, if this process is at it: with nothing else can a
        worker, or who has its key, have calls made, detached ones neither.
        """
        run = state.runs.get(message.run)
        alive = run is not None and run.worker.id == self.peer
        return message.run if alive else ENDED


def _with(event: CallsFinished, data: ResultData) -> CallsFinished:
    """Return the outcome of a call with what has come of its result."""
    failed = data.raised or data.payload is None
    return replace(
        event,
        payload=data.payload,
        raised=data.raised,
        error=data.error,
        exitcode=int(failed) or event.exitcode,
    )
