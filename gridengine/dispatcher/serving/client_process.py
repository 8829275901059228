"""One client in another process, as the dispatcher sees it. The client is the listener of its
tasks, and turns their outcomes into messages.
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
from gridengine.serialize.payload import Buffer, KeptPayload, Payload
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
"""The sender of a message: a peer, and the number of its runner, which is 0 for the peer itself."""
ENDED = -1
"""The number of no run. Calls whose parent it is are cancelled at once."""


class ClientTable(Protocol):
    """The part of `Clients` that a client uses."""

    first_failure: int
    """The first number for failures that no earlier process has used."""
    finished: defaultdict[Client, list[CallsFinished]]
    """The outcomes to be sent, by client."""

    @property
    def closing(self) -> bool:
        """Whether the dispatcher is about to end."""


class Client:
    """A client in another process, the listener of its tasks.

    Args:
        key: the client's peer and 0; for a runner, its worker and the runner's number.
        number: the high bits of all numbers that the client gives its tasks and submitters.
        send: sends the peer a message.
    """

    daemon = True
    taken = -1
    """How many of its requests are in the journal; -1 without a journal."""
    owed = ready = 0
    """`owed`: how many unsettled tasks the client inherits from earlier clients of its name.
    `ready`: how many messages with outcomes of inherited tasks are waiting.
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
        """The references of its that stand for a result and are not released."""
        self.claims: set[int] = set()
        """`references`, and the references that the client has named but that may stand for nothing
        yet. No other client may supply or use them.
        """
        self.coming: deque[CallsFinished] = deque()
        """Outcomes that are not passed on yet, oldest first."""
        self._failures = FailureNumbers(clients.first_failure)

    def parent(self, state: CoreState, message: Submit) -> int:
        """Return the run that the tasks end with, 0 for none."""
        return 0

    def encode_outcome(self, event: CallsFinished, buffers: list[Buffer]) -> FinishedItem:
        """Encode an outcome; append its buffers to `buffers`."""
        payload, error = event.payload or (), event.error
        output = bool(event.stdout or event.stderr)
        buffers += payload
        if error is not None:
            buffers += self.dump_error(error)[:1]  # an error of the package has one buffer
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
        """Return whether the client has given out this number of a task or submitter."""
        return number >> NUMBER_BITS == self.number

    def send(self, message: Message, buffers: Payload = ()) -> None:
        """Send the client a message."""
        self._send(self.peer, message, buffers)

    def answer(self, message: Message, buffers: Payload) -> None:
        """Send the client an answer, after the outcomes of calls that have ended before."""
        self.send(message, buffers)

    def settled(self, event: CallsFinished) -> None:
        """Pass on the outcome of calls, in the order of the events."""
        if not self.gone:
            self.coming.append(event)
            if len(self.coming) == 1:
                self._pass_on()

    def _pass_on(self) -> None:
        """Pass on outcomes in their order, until one whose result must first be fetched from its
        worker. The fetch calls this method again.
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
        """Send the client outcomes."""
        self.send(Finished(self.runner, items), buffers)

    def began(self, event: TaskStarted) -> None:
        """Tell the client that a task has begun."""
        self.send(TaskBegan(self.runner, event.task, event.pid, event.host, event.attempt))

    def abandoned(self) -> None:
        """Do nothing: the client knows by itself when its calls end."""

    def noted(self, event: TaskMessage) -> None:
        """Pass on a pushed value, or log records of calls."""
        self.send(TaskPushed(self.runner, event.task, len(event.payload), event.log), event.payload)


class NestedClient(Client):
    """A runner whose calls submit nested calls. Nested calls end with the call that submits them;
    detached calls end with that call's client.
    """

    def parent(self, state: CoreState, message: Submit) -> int:
        """Return the run whose call submits the tasks, if this runner's worker has that run.
        Otherwise the tasks end at once: a worker, or a process that has its key, can have no calls
        made except from a call that it runs, not even detached ones.
        """
        run = state.runs.get(message.run)
        alive = run is not None and run.worker.id == self.peer
        return message.run if alive else ENDED


def _with(event: CallsFinished, data: ResultData) -> CallsFinished:
    """Return the outcome of a call with the result that was fetched, or the reason why there is
    none.
    """
    failed = data.raised or data.payload is None
    return replace(
        event,
        payload=data.payload,
        raised=data.raised,
        error=data.error,
        exitcode=int(failed) or event.exitcode,
    )
