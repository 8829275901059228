"""The table of all clients in other processes: users' programs, which have a socket of their own,
and runners whose calls submit nested calls, by way of their workers.

Here a client's requests become events for the core, and the outcomes of its tasks become messages
for it. A client is trusted with its own calls only: nothing that it sends is unpickled, and it can
name only tasks whose numbers begin with its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from gridengine.dispatcher.call_selection import NamedCalls
from gridengine.dispatcher.core.events import ClientLeft, Event, StateSaved
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.serving.client_process import (
    ClientsOutput,
    Key,
    NestedClient,
    Send,
    ServedClient,
)
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.display import log
from gridengine.errors import GridEngineError, ProtocolError, safe_repr
from gridengine.requests import (
    CallsFinished,
    CallsRecalled,
    NamesForgotten,
    ResultData,
    ResultWanted,
    Submitted,
    Supplied,
    TasksCancelled,
    Told,
    WantAnswered,
)
from gridengine.resources.demand import ANY, Demand
from gridengine.serialize.payload import Buffer, Payload
from gridengine.wire.messages import (
    CheckDemand,
    Checked,
    ClientCancel,
    ClientForget,
    ClientRecall,
    ClientWelcome,
    FinishedItem,
    NestedEnded,
    NestedHello,
    Submit,
    Supply,
    TaskItem,
    Tell,
    Want,
    WantAnswer,
)

if TYPE_CHECKING:
    from gridengine.dispatcher.serving.shared_journal import Journal
    from gridengine.dispatcher.serving.task_decoder import TaskDecoder


C = TypeVar("C", bound="ServedClient")


class Clients:
    """The table of clients. For the I/O thread.

    Args:
        state: the core's, only read.
        send: sends a worker a message.
        post: has an event handled later.
        unsettled: records which tasks have no outcome yet.
        check: raises an error if no worker can hold a demand.
        slots: how many calls run at a time, at most.
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
        self.output = ClientsOutput(state, send)
        """Passes on the output of jobs to the programs that submitted them."""
        self.finished: defaultdict[ServedClient, list[CallsFinished]] = defaultdict(list)
        """Outcomes that the next `flush` sends, by client."""
        self._state = state
        self._post = post
        self._unsettled = unsettled
        self._check = check
        self._slots = slots
        self._clients: dict[Key, ServedClient] = {}
        self._wanted: dict[int, ServedClient] = {}
        self._claimed: dict[int, ServedClient] = {}
        self._new_number = count(1).__next__
        self.journal: Journal | None = None
        self.named = NamedCalls()
        """Which calls belong to which named run or client."""
        self.first_failure = 1
        """The first number for failures that no earlier process has used."""

    @cached_property
    def _decoder(self) -> TaskDecoder:
        from gridengine.dispatcher.serving.task_decoder import TaskDecoder  # a script has none

        return TaskDecoder(self._state, self._check, self._claim)

    def record_in(self, journal: Journal) -> None:
        """Have the requests of programs recorded in a journal."""
        self.journal = journal
        self._new_number = journal.new_client
        self.first_failure = (journal.epoch << 32) + 1

    def is_left(self, number: int) -> bool:
        """Return whether an earlier process may have given a client this number, and no client has
        it now. Only then may a client go on under this number: whoever has the number owns its
        calls.
        """
        first = 0 if self.journal is None else self.journal.first_client
        return 0 < number < first and all(
            client.number != number for client in self._clients.values()
        )

    def events(self, peer: bytes, message: Any, buffers: Payload) -> Iterable[Event]:
        """Return the events that follow from a client's message."""
        key = peer, message.runner
        client = self._clients.get(key)
        if client is None:
            if type(message) is not NestedHello:
                return ()
            client = self.add(NestedClient, key, self._send)
        handler: Callable[[Clients, ServedClient, Any, Payload], Iterable[Event]]
        handler = REQUESTS[type(message)]
        return handler(self, client, message, buffers)

    def add(self, kind: type[C], key: Key, send: Send, number: int = 0) -> C:
        """Add a client, with a new number if none is given, and return it."""
        client = self._clients[key] = kind(self, key, number or self._new_number(), send)
        return client

    @property
    def closing(self) -> bool:
        """Whether the dispatcher is about to end."""
        return self._state.closing

    def end(self, key: Key) -> Iterable[Event]:
        """Return the events that follow when a client is gone."""
        client = self._clients.get(key)
        return () if client is None else self._ended(client, None, ())

    def flush(self) -> None:
        """Send all outcomes that have gathered, in one message for each client."""
        finished = dict(self.finished)
        self.finished.clear()
        for client, events in finished.items():
            items, buffers = list[FinishedItem](), list[Buffer]()
            for event in events:
                items.append(client.encode_outcome(event, buffers))
            client.finish(items, buffers)
        if self.journal is not None:
            self.journal.delete_states()

    def record_state(self, effect: StateSaved) -> None:
        """Record the state that a call has saved, or that nobody needs it any more."""
        if self.journal is not None:
            self.journal.record_state(effect.task, effect.index, effect.payload)

    def answer_want(self, answer: WantAnswered) -> None:
        """Pass the core's answer to the client that wanted a result."""
        client = self._wanted.pop(answer.reference, None)
        if client is not None:
            if not answer.missing:
                client.references.add(answer.reference)
            client.send(WantAnswer(client.runner, answer.reference, answer.missing))

    def forget(self, peer: bytes) -> None:
        """Forget the runners of a worker that is lost."""
        for client in [one for one in self._clients.values() if one.peer == peer]:
            for event in self._ended(client, None, ()):
                self._post(event)

    # ---------------------------------------------------------------- requests

    def welcome(
        self, client: ServedClient, message: object = None, buffers: Payload = ()
    ) -> Iterable[Event]:
        """Send a client its number, and the facts about the dispatcher that it needs."""
        epoch = 0 if self.journal is None else self.journal.epoch
        client.send(
            ClientWelcome(
                client.runner,
                client.number,
                self._slots,
                taken=client.taken,
                epoch=epoch,
                owed=client.owed,
                ready=client.ready,
                unserved=self._state.missing_worker(ANY) is not None,
            )
        )
        return ()

    def _ended(self, client: ServedClient, message: object, buffers: Payload) -> Iterator[Event]:
        """Forget a client that is gone: its calls end, and the shared objects and results that only
        it could refer to are released.
        """
        del self._clients[client.key]
        client.gone = True
        client.coming.clear()
        self.finished.pop(client, None)
        for reference in [one for one, who in self._wanted.items() if who is client]:
            del self._wanted[reference]
        for reference in client.claims:
            del self._claimed[reference]
        yield ClientLeft(client.number)
        if client.shared or client.references:
            yield NamesForgotten(tuple(client.shared), tuple(client.references))

    def _submit(self, client: ServedClient, message: Submit, buffers: Payload) -> Iterator[Event]:
        """Return the events of a submission; refuse its tasks if it is not valid."""
        parent = client.parent(self._state, message)
        try:
            function, tasks = self._decoder.decode(client, message, iter(buffers))
        except Exception as error:
            yield from self.refuse(client, message.tasks, error)
            return
        for task in tasks:
            client.references.update(task.after)
            if task.kept:
                client.references.update(reference for _, reference in task.kept)
        self._unsettled.add(tasks, client)
        yield Submitted(function, tasks, parent=parent, detached=message.detached)

    def refuse(
        self, client: ServedClient, tasks: Iterable[TaskItem], error: Exception
    ) -> Iterator[Event]:
        """Settle tasks that cannot be submitted. Yield the events by which calls that need their
        results fail.
        """
        if not isinstance(error, GridEngineError):
            error = ProtocolError(f"the submission is not valid: {safe_repr(error)}")
        for one in tasks:
            client.settled(
                CallsFinished(one.id, 0, one.count, None, error=error, exitcode=1, last=True)
            )
            for _, reference in one.kept:
                if self._claim(client, (reference,)):
                    client.references.add(reference)
                    yield Supplied(reference, ResultData(error=error))
        self.flush()

    def _claim(self, client: ServedClient, references: Iterable[int]) -> bool:
        """Record that these references belong to a client. Return False if another client has one
        of them.
        """
        for reference in references:
            if self._claimed.setdefault(reference, client) is not client:
                log().warning("client %d refers to a result of another client's", client.number)
                return False
            client.claims.add(reference)
        return True

    def _cancel(
        self, client: ServedClient, message: ClientCancel, buffers: Payload
    ) -> Iterator[Event]:
        tasks = tuple(filter(client.owns, message.tasks))
        yield TasksCancelled(tasks, message.signal, _own_calls(client, message.calls))

    def _recall(
        self, client: ServedClient, message: ClientRecall, buffers: Payload
    ) -> Iterator[Event]:
        yield CallsRecalled(_own_calls(client, message.calls))

    def _forget(
        self, client: ServedClient, message: ClientForget, buffers: Payload
    ) -> Iterator[Event]:
        """Release the functions, shared objects and references that a client does not use any
        more.
        """
        for digest in message.functions:
            client.functions.pop(digest, None)
        shared = tuple(one for one in message.shared if client.shared.pop(one, None) is not None)
        its = client.claims.intersection(message.references)
        client.claims -= its
        client.references -= its
        for reference in its:
            del self._claimed[reference]
        if shared or its:
            yield NamesForgotten(shared, tuple(its))

    def _want(self, client: ServedClient, message: Want, buffers: Payload) -> Iterator[Event]:
        if client.owns(message.task) and message.reference not in self._wanted:
            if not self._claim(client, (message.reference,)):
                return
            self._wanted[message.reference] = client
            yield ResultWanted(message.task, message.index, message.reference)

    def _supply(self, client: ServedClient, message: Supply, buffers: Payload) -> Iterator[Event]:
        """Let a reference of the client stand for a result."""
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

    def _tell(self, client: ServedClient, message: Tell, buffers: Payload) -> Iterator[Event]:
        if client.owns(message.task):
            yield Told(message.task, buffers)

    def _answer_check(
        self, client: ServedClient, message: CheckDemand, buffers: Payload
    ) -> Iterable[Event]:
        """Answer whether a worker can hold a demand. The answer follows all earlier outcomes, so
        that it also says that earlier requests are decided.
        """
        answer: list[Buffer] = []
        command = None
        try:
            demand = self._decoder.decode_demand(message.demand)
        except Exception as error:
            answer = client.dump_error(error)[:1]
        else:
            if message.demand is not None:
                command = self._state.missing_worker(demand)
        client.answer(Checked(client.runner, message.number, bool(answer), command), answer)
        return ()


def _own_calls(
    client: ServedClient, calls: Iterable[tuple[int, int, int]]
) -> tuple[tuple[int, int, int], ...]:
    return tuple(one for one in calls if client.owns(one[0]))


REQUESTS: dict[type, Callable[..., Iterable[Event]]] = {
    NestedHello: Clients.welcome,
    Submit: Clients._submit,
    ClientCancel: Clients._cancel,
    ClientRecall: Clients._recall,
    ClientForget: Clients._forget,
    Want: Clients._want,
    Supply: Clients._supply,
    Tell: Clients._tell,
    CheckDemand: Clients._answer_check,
    NestedEnded: Clients._ended,
}
"""The handlers of clients' requests, by type of message. They return events for the core."""
