"""Decode a client's submission: from a message and its buffers to a function and tasks for the
core.
"""

from __future__ import annotations

from _blake2 import blake2b  # not `hashlib`, which loads OpenSSL
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.serving.client_process import ServedClient
from gridengine.errors import ProtocolError
from gridengine.requests import Function, Task, TaskOptions
from gridengine.resources.demand import ANY, Demand, decode_demand
from gridengine.serialize import shared_objects
from gridengine.serialize.codecs import PICKLE, is_importable
from gridengine.serialize.payload import Buffer, Payload
from gridengine.serialize.references import RESULT_NAME_BYTES
from gridengine.serialize.shared_objects import PayloadWithObjects, SharedObject
from gridengine.wire.messages import EncodedDemand, FunctionItem, Submit, TaskItem

COPIED = 1024
"""Buffers of at most this many bytes are copied: a view takes 184 bytes, and keeps the message with
all its other tasks.
"""


class TaskDecoder:
    """Decodes submissions and checks them. Nothing is unpickled.

    Args:
        state: the core's, only read.
        check: raises an error if no worker can hold a demand.
        claim: records that references belong to a client; returns False if another client has one
            of them.
    """

    def __init__(
        self,
        state: CoreState,
        check: Callable[[Demand], None],
        claim: Callable[[ServedClient, Iterable[int]], bool],
    ) -> None:
        self._state = state
        self._check = check
        self._claim = claim
        self._options = TaskOptions()
        """The options of the latest task."""

    def decode(
        self, client: ServedClient, message: Submit, buffers: Iterator[Buffer]
    ) -> tuple[Function, list[Task]]:
        """Return the function and the tasks of a submission.

        Raises:
            ProtocolError, ConfigurationError: the submission is not valid, or no worker can hold a
                demand.
        """

        def take(item: Any) -> tuple[Buffer, ...]:
            return tuple(map(_kept, islice(buffers, item.buffers)))

        item, payload = message.function, take(message.function) if message.function else ()
        for one in message.shared:
            self._add_shared(client, one.name, one.needs, take(one))
        if item is not None:
            client.functions[message.digest] = self._decode_function(
                client, message.digest, item, payload
            )
        function = client.functions[message.digest]
        tasks = [self._decode_task(client, one, take(one)) for one in message.tasks]
        if len({one.id for one in message.tasks}) < len(message.tasks):
            raise ProtocolError("a task is submitted twice")
        return function, placed(function, tasks)

    def _decode_function(
        self, client: ServedClient, digest: bytes, item: FunctionItem, payload: Payload
    ) -> Function:
        """Return a function that the client defines."""
        if item.codec != PICKLE:
            return named_function(item)
        _check_name(digest)
        return Function(
            digest=digest,
            payload=payload,
            path=tuple(item.path),
            directory=item.directory,
            name=item.name,
            needs=self._find_shared(client, item.needs),
            caller=item.caller,
            after=tuple(item.after),
            parameters=tuple(item.parameters),
        )

    def _add_shared(
        self, client: ServedClient, name: bytes, needs: Sequence[bytes], buffers: Payload
    ) -> None:
        _check_name(name)
        payload = PayloadWithObjects(buffers)
        payload.needs = self._find_shared(client, needs)
        client.shared[name] = SharedObject(name, payload)

    def _find_shared(
        self, client: ServedClient, names: Sequence[bytes]
    ) -> tuple[SharedObject, ...]:
        if not names:
            return ()
        found = [client.shared.get(name) or shared_objects.owned(name) for name in names]
        if None in found:
            raise ProtocolError("a call refers to a shared object that is not, or no longer, known")
        return tuple(one for one in found if one is not None)

    def _decode_task(self, client: ServedClient, item: TaskItem, payload: Payload) -> Task:
        """Check and return one task."""
        demand = self.decode_demand(item.demand)
        if not (client.owns(item.id) and client.owns(item.submitter)) or (
            item.id in self._state.open_tasks or (item.after and item.count > 1)
        ):
            raise ProtocolError(
                f"task {item.id} has another client's numbers, is here already, or has several "
                "calls that wait for results"
            )
        if item.after or item.kept:
            numbers = (*item.after, *(number for _, number in item.kept))
            if not self._claim(client, numbers):
                raise ProtocolError("a task refers to a result of another client's")
        options = TaskOptions(
            form=item.form,
            retries=item.retries,
            timeout=item.timeout,
            watched=item.watched,
            controlled=item.controlled,
            name=item.name,
            demand=demand,
            escalate_memory=item.escalate_memory,
            submitter=item.submitter,
            priority=item.priority,
        )
        if options != self._options:  # else they share one record
            self._options = options
        return Task(
            id=item.id,
            payload=payload,
            count=item.count,
            options=self._options,
            first=item.first,
            needs=self._find_shared(client, item.needs),
            after=tuple(item.after),
            kept=tuple(item.kept),
        )

    def decode_demand(self, encoded: EncodedDemand | None) -> Demand:
        if encoded is None:
            return ANY
        demand = decode_demand(*encoded)
        self._check(demand)
        return demand


def named_function(item: FunctionItem) -> Function:
    """Return a function that its client names instead of sending it. The digest is made here from
    the name, so that all clients that name the same function share it.
    """
    name = item.name.encode()
    directory = item.directory or b"/"
    known = blake2b(digest_size=16)
    for part in (item.codec.encode(), name, directory, *item.path):
        known.update(len(part).to_bytes(8, "big") + part)
    return Function(
        known.digest(), [name], tuple(item.path), directory, name=item.name, codec=item.codec
    )


def placed(function: Function, tasks: Iterable[Task]) -> list[Task]:
    """Return these tasks. If the function is known by name and cannot be imported, give them a
    demand that only workers which announce the function can satisfy.

    Raises:
        ProtocolError: the tasks use features that only pickled calls have.
    """
    tasks = list(tasks)
    if function.codec == PICKLE:
        return tasks
    for task in tasks:
        options = task.options
        if options.watched or options.controlled or task.needs or task.after or task.kept:
            raise ProtocolError(
                f"calls of {function.name} are in {function.codec}, and have no futures or shared "
                "objects among their arguments, no controller, and are no jobs"
            )
    if is_importable(function.name):
        return tasks
    demand = Demand(function=function.name)
    return [replace(task, options=replace(task.options, demand=demand)) for task in tasks]


def _check_name(name: bytes) -> None:
    """Check that the name of a function or a shared object cannot be the name of a result.

    Raises:
        ProtocolError: it is as long as one.
    """
    if len(name) == RESULT_NAME_BYTES:
        raise ProtocolError("a function or shared object has a name that only results have")


def _kept(buffer: Buffer) -> Buffer:
    """Return a buffer that lives as long as its task."""
    return bytes(buffer) if len(buffer) <= COPIED else buffer
