"""Processes that run calls which make calls: the dispatcher's end of their way to it.

What a process sends is made into events for the core here, and what comes of its tasks into
messages for it. It is trusted with no more than calls of its own: nothing that it sends is
unpickled, and it names tasks by numbers that are its own.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from msgspec.structs import astuple, replace

from gridengine.dispatcher.core.events import (
    CancelRequested,
    Event,
    RecallRequested,
    ReferencesReleased,
    Released,
    ResultWanted,
    Submitted,
    Supplied,
)
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import (
    CallsFinished,
    Function,
    ResultData,
    Task,
    TaskMessage,
    TaskStarted,
)
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import GridEngineError, ProtocolError, safe_repr
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.encoding import decode_demand
from gridengine.serialize import pickling, shared_objects
from gridengine.serialize.kept_payload import KeptPayload
from gridengine.serialize.payload import Buffer, Payload
from gridengine.serialize.shared_objects import PayloadWithObjects, SharedObject
from gridengine.wire.messages import (
    NUMBER_BITS,
    AttemptItem,
    Checked,
    ChildCancel,
    ChildCheck,
    ChildForget,
    ChildMessage,
    ChildRecall,
    ChildrenEnded,
    ChildrenFinished,
    ChildrenHello,
    ChildrenWelcome,
    ChildResult,
    ChildStarted,
    ChildSupply,
    ChildTasks,
    ChildWant,
    EncodedDemand,
    FinishedItem,
    Message,
    TaskItem,
)

log = logging.getLogger("gridengine")

Send = Callable[[bytes, Message, Payload], None]
ENDED = -1
"""The number of no run: whose calls end at once."""


class NestedClient:
    """One such process, the listener of its tasks: at the worker `peer` the process `runner`."""

    daemon = True

    def __init__(self, clients: NestedClients, peer: bytes, runner: int, number: int) -> None:
        self._clients = clients
        self.peer = peer
        self.runner = runner
        self.number = number
        self.gone = False
        self.functions: dict[bytes, Function] = {}
        self.shared: dict[bytes, SharedObject] = {}
        self.references: set[int] = set()
        """Those that it has not released."""
        self.coming: deque[CallsFinished] = deque()
        """The outcomes that are still to be passed on."""

    def owns(self, number: int) -> bool:
        """Return whether a task's or submitter's number is one of its own."""
        return number >> NUMBER_BITS == self.number

    def send(self, message: Message, buffers: Payload = ()) -> None:
        """Send the process a message."""
        self._clients.send(self.peer, message, buffers)

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

    def began(self, event: TaskStarted) -> None:
        """Pass on that a task has begun."""
        self.send(ChildStarted(self.runner, event.task, event.pid, event.host, event.attempt))

    def abandoned(self) -> None:
        """Ignore it: the process knows when its calls end."""

    def noted(self, event: TaskMessage) -> None:
        """Pass on a pushed value."""
        self.send(ChildMessage(self.runner, event.task, len(event.payload)), event.payload)


class NestedClients:
    """All such processes. For the I/O thread.

    Args:
        state: the core's, to be looked at.
        send: sends a worker a message.
        post: has an event handled later.
        check: raises if no worker can hold what calls ask for.
        slots: how many calls run at a time at the most.
    """

    def __init__(
        self,
        state: CoreState,
        send: Send,
        post: Callable[[Event], None],
        unsettled: UnsettledTasks,
        check: Callable[[Demand], None],
        *,
        slots: int,
    ) -> None:
        self.send = send
        self.finished: defaultdict[NestedClient, list[CallsFinished]] = defaultdict(list)
        """What is to be passed on by `flush`."""
        self._state = state
        self._post = post
        self._unsettled = unsettled
        self._check = check
        self._slots = slots
        self._clients: dict[tuple[bytes, int], NestedClient] = {}
        self._wanted: dict[int, NestedClient] = {}
        self._numbers = count(1)

    def events(self, peer: bytes, message: Any, buffers: Payload) -> Iterable[Event]:
        """Return what the core is to handle of a process's message."""
        key = peer, message.runner
        client = self._clients.get(key)
        if client is None:
            if type(message) is not ChildrenHello:
                return ()
            client = self._clients[key] = NestedClient(self, *key, next(self._numbers))
        handler: Callable[[NestedClients, NestedClient, Any, Payload], Iterable[Event]]
        handler = REQUESTS[type(message)]
        return handler(self, client, message, buffers)

    def flush(self) -> None:
        """Pass on what has come of calls."""
        finished = dict(self.finished)
        self.finished.clear()
        for client, events in finished.items():
            items, buffers = list[FinishedItem](), list[Buffer]()
            for event in events:
                items.append(_encode_outcome(event, buffers))
            client.send(ChildrenFinished(client.runner, items), buffers)

    def tell(self, reference: int, *, missing: bool) -> None:
        """Say whether a result that was wanted will be kept, or has to be supplied."""
        client = self._wanted.pop(reference, None)
        if client is not None:
            if not missing:
                client.references.add(reference)
            client.send(ChildResult(client.runner, reference, missing))

    def forget(self, peer: bytes) -> None:
        """Forget the processes of a worker that is lost."""
        for client in [one for one in self._clients.values() if one.peer == peer]:
            for event in self._ended(client, None, ()):
                self._post(event)

    # ---------------------------------------------------------------- requests

    def _welcome(self, client: NestedClient, message: object, buffers: Payload) -> Iterable[Event]:
        client.send(ChildrenWelcome(client.runner, client.number, self._slots))
        return ()

    def _ended(self, client: NestedClient, message: object, buffers: Payload) -> Iterator[Event]:
        """A process has ended, and its calls with their parents; release what only it could refer
        to.
        """
        del self._clients[client.peer, client.runner]
        client.gone = True
        client.coming.clear()
        self.finished.pop(client, None)
        for reference in [one for one, who in self._wanted.items() if who is client]:
            del self._wanted[reference]
        for name in client.shared:
            yield Released(name)
        if client.references:
            yield ReferencesReleased(tuple(client.references))

    def _submit(
        self, client: NestedClient, message: ChildTasks, buffers: Payload
    ) -> Iterator[Event]:
        try:
            function, tasks = self._decode_tasks(client, message, iter(buffers))
        except Exception as error:
            self._refuse(client, message.tasks, error)
            return
        for task in tasks:
            client.references.update(task.after, (reference for _, reference in task.kept))
        run = self._state.runs.get(message.run)
        alive = run is not None and run.worker.id == client.peer
        parent = 0 if message.detached else message.run if alive else ENDED
        self._unsettled.add(tasks, client)
        yield Submitted(function, tasks, parent=parent)

    def _decode_tasks(
        self, client: NestedClient, message: ChildTasks, buffers: Iterator[Buffer]
    ) -> tuple[Function, list[Task]]:
        def take(item: Any) -> list[Buffer]:
            return [next(buffers) for _ in range(item.buffers)]

        item, payload = message.function, take(message.function) if message.function else []
        for one in message.shared:
            self._add_shared(client, one.name, one.needs, take(one))
        if item is not None:
            client.functions[message.digest] = Function(
                message.digest,
                payload,
                tuple(item.path),
                item.directory,
                item.name,
                self._find_shared(client, item.needs),
                item.caller,
                tuple(item.after),
            )
        tasks = [self._decode_task(client, one, take(one)) for one in message.tasks]
        if len({task.id for task in tasks}) < len(tasks):
            raise ProtocolError("a task is submitted twice")
        return client.functions[message.digest], tasks

    def _add_shared(
        self, client: NestedClient, name: bytes, needs: Sequence[bytes], buffers: list[Buffer]
    ) -> None:
        payload = PayloadWithObjects(buffers)
        payload.needs = self._find_shared(client, needs)
        client.shared[name] = SharedObject(name, payload)

    def _find_shared(
        self, client: NestedClient, names: Iterable[bytes]
    ) -> tuple[SharedObject, ...]:
        found = [client.shared.get(name) or shared_objects.owned(name) for name in names]
        if None in found:
            raise ProtocolError("a call refers to a shared object that is not, or no longer, known")
        return tuple(one for one in found if one is not None)

    def _decode_task(self, client: NestedClient, item: TaskItem, payload: list[Buffer]) -> Task:
        demand = self._decode_demand(item.demand)
        if not (client.owns(item.id) and client.owns(item.submitter)) or (
            item.id in self._state.open_tasks or (item.after and item.count > 1)
        ):
            raise ProtocolError(f"task {item.id} cannot be of this process, or is here already")
        return Task(
            item.id,
            payload,
            item.count,
            item.form,
            item.retries,
            item.timeout,
            item.watched,
            item.controlled,
            item.name,
            item.first,
            demand,
            item.escalate_memory,
            self._find_shared(client, item.needs),
            item.submitter,
            tuple(item.after),
            tuple(item.kept),
        )

    def _decode_demand(self, encoded: EncodedDemand | None) -> Demand:
        if encoded is None:
            return ANY
        demand = decode_demand(*encoded)
        self._check(demand)
        return demand

    def _refuse(self, client: NestedClient, tasks: Iterable[TaskItem], error: Exception) -> None:
        """Settle tasks that cannot be submitted."""
        if not isinstance(error, GridEngineError):
            error = ProtocolError(f"calls cannot be submitted so: {safe_repr(error)}")
        for one in tasks:
            client.settled(
                CallsFinished(one.id, 0, one.count, None, error=error, exitcode=1, last=True)
            )
        self.flush()

    def _cancel(
        self, client: NestedClient, message: ChildCancel, buffers: Payload
    ) -> Iterator[Event]:
        tasks = tuple(filter(client.owns, message.tasks))
        yield CancelRequested(tasks, message.signal, _own_calls(client, message.calls))

    def _recall(
        self, client: NestedClient, message: ChildRecall, buffers: Payload
    ) -> Iterator[Event]:
        yield RecallRequested(_own_calls(client, message.calls))

    def _forget(
        self, client: NestedClient, message: ChildForget, buffers: Payload
    ) -> Iterator[Event]:
        for digest in message.functions:
            client.functions.pop(digest, None)
        for name in message.shared:
            if client.shared.pop(name, None) is not None:
                yield Released(name)
        if message.references:
            client.references.difference_update(message.references)
            yield ReferencesReleased(message.references)

    def _want(self, client: NestedClient, message: ChildWant, buffers: Payload) -> Iterator[Event]:
        if client.owns(message.task) and message.reference not in self._wanted:
            self._wanted[message.reference] = client
            yield ResultWanted(((message.task, message.index, message.reference),))

    def _supply(
        self, client: NestedClient, message: ChildSupply, buffers: Payload
    ) -> Iterator[Event]:
        client.references.add(message.reference)
        data = ResultData(
            buffers if message.buffers else None,
            message.item,
            message.raised,
            cancelled=message.cancelled,
            path=tuple(message.path),
        )
        yield Supplied(message.reference, data)

    def _answer_check(
        self, client: NestedClient, message: ChildCheck, buffers: Payload
    ) -> Iterable[Event]:
        answer: list[Buffer] = []
        try:
            self._decode_demand(message.demand)
        except Exception as error:
            answer = pickling.dump_exception(error)[:1]
        client.send(Checked(client.runner, message.number, bool(answer)), answer)
        return ()


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


def _own_calls(
    client: NestedClient, calls: Iterable[tuple[int, int, int]]
) -> tuple[tuple[int, int, int], ...]:
    return tuple(one for one in calls if client.owns(one[0]))


def _encode_outcome(event: CallsFinished, buffers: list[Buffer]) -> FinishedItem:
    """Return an outcome as it travels; add its buffers to these."""
    payload, error = event.payload or (), event.error
    output = bool(event.stdout or event.stderr)
    buffers += payload
    if error is not None:
        buffers += pickling.dump_exception(error)[:1]  # one of ours has no more
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
    )


REQUESTS: dict[type, Callable[..., Iterable[Event]]] = {
    ChildrenHello: NestedClients._welcome,
    ChildTasks: NestedClients._submit,
    ChildCancel: NestedClients._cancel,
    ChildRecall: NestedClients._recall,
    ChildForget: NestedClients._forget,
    ChildWant: NestedClients._want,
    ChildSupply: NestedClients._supply,
    ChildCheck: NestedClients._answer_check,
    ChildrenEnded: NestedClients._ended,
}
"""By the type of a message: what makes events of it."""
