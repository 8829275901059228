"""Clients in other processes: the dispatcher's end of their way to it. They are the processes of
calls that make calls, by their workers, and users' programs, by a socket of theirs.

What a client sends is made into events for the core here, and what comes of its tasks into messages
for it. It is trusted with no more than calls of its own: nothing that it sends is unpickled, and it
names tasks by numbers that are its own.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec.structs import astuple, replace

from gridengine.dispatcher.alike_tasks import compact, groups_of
from gridengine.dispatcher.core.events import (
    CancelRequested,
    ClientLeft,
    Event,
    RecallRequested,
    ReferencesReleased,
    Released,
    ResultWanted,
    Submitted,
    SubmittedAlike,
    Supplied,
)
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import (
    AlikeTasks,
    CallsFinished,
    Function,
    ResultData,
    Task,
    TaskMessage,
    TaskStarted,
)
from gridengine.dispatcher.nested_encoding import DumpError, FailureNumbers
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import Cancelled, GridEngineError, ProtocolError, safe_repr
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.encoding import decode_demand
from gridengine.serialize import pickling, shared_objects
from gridengine.serialize.codecs import PICKLE, is_importable
from gridengine.serialize.kept_payload import KeptPayload
from gridengine.serialize.payload import Buffer, Payload
from gridengine.serialize.references import RESULT_NAME_BYTES
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
    FunctionItem,
    Message,
    TaskItem,
)

if TYPE_CHECKING:
    from gridengine.dispatcher.client_journal import Journal

log = logging.getLogger("gridengine")

Send = Callable[[bytes, Message, Payload], None]
C = TypeVar("C", bound="Client")
Key: TypeAlias = tuple[bytes, int]
"""Whom a message comes from: a peer, and which process of it, 0 for the peer itself."""
ENDED = -1
"""The number of no run: whose calls end at once."""


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

    def __init__(self, clients: Clients, key: Key, number: int, send: Send) -> None:
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

    @property
    def closing(self) -> bool:
        """Whether the dispatcher is about to end."""
        return self._clients.closing

    def parent(self, state: CoreState, message: ChildTasks) -> int:
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
        self.send(ChildrenFinished(self.runner, items), buffers)

    def began(self, event: TaskStarted) -> None:
        """Pass on that a task has begun."""
        self.send(ChildStarted(self.runner, event.task, event.pid, event.host, event.attempt))

    def abandoned(self) -> None:
        """Ignore it: the process knows when its calls end."""

    def noted(self, event: TaskMessage) -> None:
        """Pass on a pushed value, or what calls have logged."""
        self.send(
            ChildMessage(self.runner, event.task, len(event.payload), event.log), event.payload
        )


class NestedClient(Client):
    """A process that runs calls which make calls: its tasks end with these, and detached ones with
    the client of these.
    """

    def parent(self, state: CoreState, message: ChildTasks) -> int:
        """Return the run whose call submits, if this process is at it: with nothing else can a
        worker, or who has its key, have calls made, detached ones neither.
        """
        run = state.runs.get(message.run)
        alive = run is not None and run.worker.id == self.peer
        return message.run if alive else ENDED


class Clients:
    """All of them. For the I/O thread.

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
        self._send = send
        self.finished: defaultdict[Client, list[CallsFinished]] = defaultdict(list)
        """What is to be passed on by `flush`."""
        self._state = state
        self._post = post
        self._unsettled = unsettled
        self._check = check
        self._slots = slots
        self._clients: dict[Key, Client] = {}
        self._wanted: dict[int, Client] = {}
        self._claimed: dict[int, Client] = {}
        self._new_number = count(1).__next__
        self.journal: Journal | None = None
        self.first_failure = 1
        """The first number of what calls fail for that no process before had for it."""

    def keep_in(self, journal: Journal) -> None:
        """Have what clients of their own sockets hand in kept by a journal."""
        self.journal = journal
        self._new_number = journal.new_client
        self.first_failure = (journal.epoch << 32) + 1

    def is_left(self, number: int) -> bool:
        """Return whether a process before this one may have given a client this number, and nobody
        has it now: by its number a client's calls are its own.
        """
        first = 0 if self.journal is None else self.journal.first_client
        return 0 < number < first and all(
            client.number != number for client in self._clients.values()
        )

    def events(self, peer: bytes, message: Any, buffers: Payload) -> Iterable[Event]:
        """Return what the core is to handle of a client's message."""
        key = peer, message.runner
        client = self._clients.get(key)
        if client is None:
            if type(message) is not ChildrenHello:
                return ()
            client = self.add(NestedClient, key, self._send)
        handler: Callable[[Clients, Client, Any, Payload], Iterable[Event]]
        handler = REQUESTS[type(message)]
        return handler(self, client, message, buffers)

    def add(self, kind: type[C], key: Key, send: Send, number: int = 0) -> C:
        """Add a client, with a number if it has one, and return it."""
        client = self._clients[key] = kind(self, key, number or self._new_number(), send)
        return client

    @property
    def closing(self) -> bool:
        """Whether the dispatcher is about to end."""
        return self._state.closing

    def end(self, key: Key) -> Iterable[Event]:
        """Return what the core is to handle when a client is gone."""
        client = self._clients.get(key)
        return () if client is None else self._ended(client, None, ())

    def flush(self) -> None:
        """Pass on what has come of calls."""
        finished = dict(self.finished)
        self.finished.clear()
        for client, events in finished.items():
            items, buffers = list[FinishedItem](), list[Buffer]()
            for event in events:
                items.append(client.encode_outcome(event, buffers))
            client.finish(items, buffers)

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

    def welcome(
        self, client: Client, message: object = None, buffers: Payload = ()
    ) -> Iterable[Event]:
        """Tell a client its number."""
        epoch = 0 if self.journal is None else self.journal.epoch
        client.send(
            ChildrenWelcome(
                client.runner,
                client.number,
                self._slots,
                taken=client.taken,
                epoch=epoch,
                owed=client.owed,
                ready=client.ready,
            )
        )
        return ()

    def _ended(self, client: Client, message: object, buffers: Payload) -> Iterator[Event]:
        """A client is gone: end its calls, release what only it could refer to."""
        del self._clients[client.key]
        client.gone = True
        client.coming.clear()
        self.finished.pop(client, None)
        for reference in [one for one, who in self._wanted.items() if who is client]:
            del self._wanted[reference]
        for reference in client.claims:
            del self._claimed[reference]
        yield ClientLeft(client.number)
        for name in client.shared:
            yield Released(name)
        if client.references:
            yield ReferencesReleased(tuple(client.references))

    def _submit(self, client: Client, message: ChildTasks, buffers: Payload) -> Iterator[Event]:
        parent = client.parent(self._state, message)
        try:
            function, parts = self._decode_tasks(client, message, iter(buffers), parent)
        except Exception as error:
            yield from self.refuse(client, message.tasks, error)
            return
        for one in parts:
            if isinstance(one, AlikeTasks):
                self._unsettled.add_single(one.numbers, client)
                yield SubmittedAlike(function, one)
            else:
                client.references.update(*(task.after for task in one))
                client.references.update(reference for task in one for _, reference in task.kept)
                self._unsettled.add(one, client)
                yield Submitted(function, one, parent=parent, detached=message.detached)

    def _decode_tasks(
        self, client: Client, message: ChildTasks, buffers: Iterator[Buffer], parent: int
    ) -> tuple[Function, list[list[Task] | AlikeTasks]]:
        def take(item: Any) -> list[Buffer]:
            return [next(buffers) for _ in range(item.buffers)]

        item, payload = message.function, take(message.function) if message.function else []
        for one in message.shared:
            self._add_shared(client, one.name, one.needs, take(one))
        if item is not None:
            client.functions[message.digest] = self._decode_function(
                client, message.digest, item, payload
            )
        function = client.functions[message.digest]
        alone = parent or function.needs or function.after
        parts: list[list[Task] | AlikeTasks] = []
        for items in [[one] for one in message.tasks] if alone else groups_of(message.tasks):
            payload = take(items[0])
            [task] = placed(function, [self._decode_task(client, items[0], payload)])
            if len(items) > 1:
                parts.append(
                    self._alike(client, task, [*payload, *islice(buffers, len(items) - 1)])
                )
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(task)
            else:
                parts.append([task])
        if len({one.id for one in message.tasks}) < len(message.tasks):
            raise ProtocolError("a task is submitted twice")
        return function, parts

    def _alike(self, client: Client, first: Task, payloads: list[Buffer]) -> AlikeTasks:
        alike = AlikeTasks(replace(first, payload=()), list(map(compact, payloads)))
        if not client.owns(alike.numbers[-1]) or self._state.has_any(alike.numbers):
            raise ProtocolError(
                f"tasks from {first.id} on are not of this process, or here already"
            )
        return alike

    def _decode_function(
        self, client: Client, digest: bytes, item: FunctionItem, payload: list[Buffer]
    ) -> Function:
        if item.codec != PICKLE:
            return named_function(item)
        _check_name(digest)
        return Function(
            digest,
            payload,
            tuple(item.path),
            item.directory,
            item.name,
            self._find_shared(client, item.needs),
            item.caller,
            tuple(item.after),
        )

    def _add_shared(
        self, client: Client, name: bytes, needs: Sequence[bytes], buffers: list[Buffer]
    ) -> None:
        _check_name(name)
        payload = PayloadWithObjects(buffers)
        payload.needs = self._find_shared(client, needs)
        client.shared[name] = SharedObject(name, payload)

    def _find_shared(self, client: Client, names: Iterable[bytes]) -> tuple[SharedObject, ...]:
        found = [client.shared.get(name) or shared_objects.owned(name) for name in names]
        if None in found:
            raise ProtocolError("a call refers to a shared object that is not, or no longer, known")
        return tuple(one for one in found if one is not None)

    def _decode_task(self, client: Client, item: TaskItem, payload: list[Buffer]) -> Task:
        demand = self._decode_demand(item.demand)
        if not (client.owns(item.id) and client.owns(item.submitter)) or (
            self._state.has_task(item.id) or (item.after and item.count > 1)
        ):
            raise ProtocolError(f"task {item.id} cannot be of this process, or is here already")
        if item.after or item.kept:
            numbers = (*item.after, *(number for _, number in item.kept))
            if not self._claim(client, numbers):
                raise ProtocolError("a task refers to a result of another client's")
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
            item.priority,
        )

    def _decode_demand(self, encoded: EncodedDemand | None) -> Demand:
        if encoded is None:
            return ANY
        demand = decode_demand(*encoded)
        self._check(demand)
        return demand

    def refuse(
        self, client: Client, tasks: Iterable[TaskItem], error: Exception
    ) -> Iterator[Event]:
        """Settle tasks that cannot be submitted, and yield what tells those that need their
        results.
        """
        if not isinstance(error, GridEngineError):
            error = ProtocolError(f"calls cannot be submitted so: {safe_repr(error)}")
        for one in tasks:
            client.settled(
                CallsFinished(one.id, 0, one.count, None, error=error, exitcode=1, last=True)
            )
            for _, reference in one.kept:
                if self._claim(client, (reference,)):
                    client.references.add(reference)
                    yield Supplied(reference, ResultData(error=error))
        self.flush()

    def _claim(self, client: Client, references: Iterable[int]) -> bool:
        """Note whose references these are; return False if one is another's."""
        for reference in references:
            if self._claimed.setdefault(reference, client) is not client:
                log.warning("client %d refers to a result of another client's", client.number)
                return False
            client.claims.add(reference)
        return True

    def _cancel(self, client: Client, message: ChildCancel, buffers: Payload) -> Iterator[Event]:
        tasks = tuple(filter(client.owns, message.tasks))
        yield CancelRequested(tasks, message.signal, _own_calls(client, message.calls))

    def _recall(self, client: Client, message: ChildRecall, buffers: Payload) -> Iterator[Event]:
        yield RecallRequested(_own_calls(client, message.calls))

    def _forget(self, client: Client, message: ChildForget, buffers: Payload) -> Iterator[Event]:
        for digest in message.functions:
            client.functions.pop(digest, None)
        for name in message.shared:
            if client.shared.pop(name, None) is not None:
                yield Released(name)
        if its := client.claims.intersection(message.references):
            client.claims -= its
            client.references -= its
            for reference in its:
                del self._claimed[reference]
            yield ReferencesReleased(tuple(its))

    def _want(self, client: Client, message: ChildWant, buffers: Payload) -> Iterator[Event]:
        if client.owns(message.task) and message.reference not in self._wanted:
            if not self._claim(client, (message.reference,)):
                return
            self._wanted[message.reference] = client
            yield ResultWanted(((message.task, message.index, message.reference),))

    def _supply(self, client: Client, message: ChildSupply, buffers: Payload) -> Iterator[Event]:
        if not self._claim(client, (message.reference,)):
            return
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
        self, client: Client, message: ChildCheck, buffers: Payload
    ) -> Iterable[Event]:
        answer: list[Buffer] = []
        try:
            self._decode_demand(message.demand)
        except Exception as error:
            answer = client.dump_error(error)[:1]
        client.answer(Checked(client.runner, message.number, bool(answer)), answer)
        return ()


def named_function(item: FunctionItem) -> Function:
    """Return a function that is known by its name. What it is called by here is of our making:
    clients that name the same have the same.
    """
    name = item.name.encode()
    directory = item.directory or b"/"
    known = hashlib.blake2b(digest_size=16)
    for part in (item.codec.encode(), name, directory, *item.path):
        known.update(len(part).to_bytes(8, "big") + part)
    return Function(
        known.digest(), [name], tuple(item.path), directory, item.name, codec=item.codec
    )


def placed(function: Function, tasks: Iterable[Task]) -> list[Task]:
    """Return tasks, those of a function that is known by its name and is none to import for the
    workers that announce it.

    Raises:
        ProtocolError: they are such as only pickled ones can be.
    """
    tasks = list(tasks)
    if function.codec == PICKLE:
        return tasks
    for task in tasks:
        if task.watched or task.controlled or task.needs or task.after or task.kept:
            raise ProtocolError(
                f"calls of {function.name} are in {function.codec}, and have no futures or shared "
                "objects among their arguments, no controller, and are no jobs"
            )
    if is_importable(function.name):
        return tasks
    demand = Demand(function=function.name)
    return [replace(task, demand=demand) for task in tasks]


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


def _check_name(name: bytes) -> None:
    """Check that a function or a shared object does not go by the name of a result.

    Raises:
        ProtocolError: it does.
    """
    if len(name) == RESULT_NAME_BYTES:
        raise ProtocolError("that is the name of a result")


def _own_calls(
    client: Client, calls: Iterable[tuple[int, int, int]]
) -> tuple[tuple[int, int, int], ...]:
    return tuple(one for one in calls if client.owns(one[0]))


REQUESTS: dict[type, Callable[..., Iterable[Event]]] = {
    ChildrenHello: Clients.welcome,
    ChildTasks: Clients._submit,
    ChildCancel: Clients._cancel,
    ChildRecall: Clients._recall,
    ChildForget: Clients._forget,
    ChildWant: Clients._want,
    ChildSupply: Clients._supply,
    ChildCheck: Clients._answer_check,
    ChildrenEnded: Clients._ended,
}
"""By the type of a message: what makes events of it."""
