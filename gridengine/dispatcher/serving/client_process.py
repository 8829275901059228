"""One client in another process, as the dispatcher sees it (`ServedClient`). The client is the
listener of its tasks, and turns their outcomes into messages. Everything here is for the I/O
thread.

The output of a client's jobs comes from their workers by way of `ClientsOutput`. A worker sends at
most a window of a job's output before somebody has taken it (`worker/runner_output`). The client
reports how much its streams have taken, so only a slow client makes a job wait. The output of a
client that is gone counts as taken; it is then in the worker's log only.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from itertools import count
from typing import Protocol, TypeAlias

from msgspec.structs import asdict, replace

from gridengine.dispatcher.core.state import CoreState
from gridengine.errors import Cancelled
from gridengine.requests import CallsFinished, Function, ResultData, TaskBegan, TaskMessage
from gridengine.serialize import pickling
from gridengine.serialize.codecs import CODECS, PICKLE
from gridengine.serialize.payload import Buffer, Payload, PayloadAtWorker, size_of
from gridengine.serialize.shared_objects import SharedObject
from gridengine.wire.messages import (
    MOST_FAILURES,
    NUMBER_BITS,
    Finished,
    FinishedItem,
    Message,
    Output,
    OutputTaken,
    Submit,
    TaskPushed,
    TaskStarted,
)

Send = Callable[[bytes, Message, Payload], None]
Key: TypeAlias = tuple[bytes, int]
"""The sender of a message: a peer, and the number of its runner, which is 0 for the peer itself."""
ENDED = -1
"""The number of no run. Calls whose parent it is are cancelled at once."""


DumpError: TypeAlias = Callable[[BaseException], list[Buffer]]
"""Returns the payload of an error."""


def dump_error_by(codec: str) -> DumpError:
    """Return the function that makes payloads of errors for a client with this codec."""
    return pickling.dump_exception if codec == PICKLE else CODECS[codec].dump_exception


class FailureNumbers:
    """Numbers failures, from `first` on, so that the other end recognises calls that failed for the
    same reason.
    """

    def __init__(self, first: int = 1) -> None:
        self._known: dict[int, tuple[object, int]] = {}
        self._numbers = count(first)

    def number_of(self, event: CallsFinished) -> int:
        """Return the number of the failure of a call."""
        # A worker may have sent an exception without any buffer.
        failure = event.payload[0] if event.payload else event.error or event
        # By identity: the core gives all calls that failed for one reason the same object. It is
        # stored too, so that its `id` is not used again.
        known = self._known.get(id(failure))
        if known is None:
            known = self._known[id(failure)] = failure, next(self._numbers)
            if len(self._known) > MOST_FAILURES:
                del self._known[next(iter(self._known))]
        return known[1]


class ClientTable(Protocol):
    """The part of `Clients` that a client uses."""

    first_failure: int
    """The first number for failures that no earlier process has used."""
    finished: defaultdict[ServedClient, list[CallsFinished]]
    """The outcomes to be sent, by client."""

    @property
    def closing(self) -> bool:
        """Whether the dispatcher is about to end."""


class ServedClient:
    """A client in another process, the listener of its tasks.

    Args:
        key: the client's peer and 0; for a runner, its worker and the runner's number.
        number: the high bits of all numbers that the client gives its tasks and submitters.
        send: sends the peer a message.
    """

    daemon = connected = True
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
        """The references of this client that stand for a result and are not released."""
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
            task=event.task,
            start=event.start,
            stop=event.stop,
            buffers=len(payload),
            raised=event.raised,
            failed=error is not None,
            exitcode=event.exitcode,
            output=output,
            attempts=event.attempts,
            last=event.last,
            recalled=event.recalled,
            seconds=event.seconds,
            path=event.path,
            failure=self._failures.number_of(event) if error is not None or event.raised else 0,
            ended=isinstance(error, Cancelled),
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
            if type(payload) is PayloadAtWorker and payload.when_here and payload.outcome:
                if payload.when_here(self._pass_on):
                    return
                event = _with(event, payload.outcome())
            self.coming.popleft()
            self._clients.finished[self].append(event)

    def finish(self, items: list[FinishedItem], buffers: list[Buffer]) -> None:
        """Send the client outcomes."""
        self.send(Finished(self.runner, items), buffers)

    def began(self, event: TaskBegan) -> None:
        """Tell the client that a task has begun."""
        self.send(TaskStarted(runner=self.runner, **asdict(event)))

    def abandoned(self) -> None:
        """Do nothing: the client knows by itself when its calls end."""

    def restarted(self) -> None:
        """Do nothing: the client notices by itself."""

    def noted(self, event: TaskMessage) -> None:
        """Pass on a pushed value, or log records of calls."""
        self.send(TaskPushed(self.runner, event.task, len(event.payload), event.log), event.payload)


class NestedClient(ServedClient):
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


class ClientsOutput:
    """Passes the output of jobs to their clients, and tells the workers how much was taken.

    Args:
        state: the core's, only read.
        send: sends a worker a message.
    """

    def __init__(self, state: CoreState, send: Send) -> None:
        self._state = state
        self._send = send
        self._clients: dict[int, ServedClient] = {}
        self._under_way: dict[ServedClient, dict[int, tuple[bytes, int]]] = {}
        """For each client and run: the run's worker, and how many bytes the client has not taken.
        """
        self._waiting: dict[ServedClient, list[tuple[Output, Payload]]] = {}
        """Output for clients that were connected to the previous process and have not come back
        yet.
        """

    def add(self, client: ServedClient) -> None:
        """Add a client that is connected, or that was connected to the previous process and may
        come back.
        """
        self._clients[client.number] = client

    def resume(self, client: ServedClient) -> None:
        """Send a client that has come back the output that waits for it."""
        for message, buffers in self._waiting.pop(client, ()):
            client.send(message, buffers)

    def remove(self, client: ServedClient) -> None:
        """Forget a client. Its output counts as taken."""
        if self._clients.get(client.number) is client:
            del self._clients[client.number]
        self._waiting.pop(client, None)
        for run, (worker, size) in self._under_way.pop(client, {}).items():
            self._send(worker, OutputTaken(size, run), ())

    def pass_on(self, worker: bytes, message: Output, buffers: Payload) -> None:
        """Send output of a run to its client. If a call submitted the job, this is the client of
        that call.
        """
        run = self._state.runs.get(message.run)
        client = None
        if run is not None:
            client = self._clients.get(run.span.open_task.submitter.client.number)
        count = size_of(buffers)
        if client is None:
            self._send(worker, OutputTaken(count, message.run), ())
            return
        under_way = self._under_way.setdefault(client, {})
        under_way[message.run] = worker, under_way.get(message.run, (worker, 0))[1] + count
        if client.connected:
            client.send(message, buffers)
        else:
            self._waiting.setdefault(client, []).append((message, buffers))

    def taken(self, client: ServedClient, message: OutputTaken) -> None:
        """Tell a worker how much of a run's output a client has taken. Ignore runs that this
        process has sent no output of: the client answers the previous process.
        """
        under_way = self._under_way.get(client, {})
        if message.run in under_way:
            worker, left = under_way.pop(message.run)
            if left > message.size:
                under_way[message.run] = worker, left - message.size
            self._send(worker, OutputTaken(min(left, message.size), message.run), ())
