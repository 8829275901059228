"""`Pulls`: the results that this worker gets from other workers, the batches that wait for them,
and the server by which other workers get results from here.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gridengine.display import log
from gridengine.errors import GridEngineError, ProtocolError
from gridengine.serialize.payload import Payload
from gridengine.system.polling import Poller
from gridengine.wire.clock import Clock
from gridengine.wire.messages import (
    ABSENT,
    NOT_PULLED,
    UNREACHED,
    Assignment,
    Message,
    Pull,
    Pulled,
    Returned,
    Serves,
    large_inputs,
)
from gridengine.worker.definition_store import DefinitionStore
from gridengine.worker.runner_handle import Batch, take_out

if TYPE_CHECKING:
    from gridengine.wire.peer_results import ResultClient, ResultServer


CONNECT_SECONDS, SILENT_SECONDS = 5.0, 15.0
"""A pull fails if the other worker does not answer at all within the first, or if nothing arrives
of it for the second.
"""
IDLE_SECONDS = 60.0
"""A connection is closed when nothing was pulled for so long."""
CONTEXT_DESCRIPTORS = 10
"""The threads of a ZeroMQ context and its first socket take fewer descriptors than this."""
MOST_IDLE = 64
"""At most so many idle connections stay open, since each takes descriptors."""


class PeerKeys(msgspec.Struct, frozen=True):
    """The key pair (in Z85) of all workers of a run, and the ports at which they may listen."""

    public: str
    secret: str
    ports: Sequence[int] = ()


class _Connection(msgspec.Struct):
    """A connection to another worker; `heard_at`: when something was asked or came last."""

    client: ResultClient
    heard_at: float
    pulls: dict[bytes, int]
    """The numbers of the pulls, by the results' names."""


class Pulls:
    """What goes between this worker and others. All methods are for one thread.

    Args:
        keys: the keys of the run's workers.
        poller: calls when a socket can be read.
        definitions: has the results of this worker; those that come are added.
        take_in: stores a payload that has come, and returns it.
        send: sends a message to the dispatcher.
        enqueue: queues a batch, in this allocation, whose inputs are all here.
        clock: the agent's.
    """

    def __init__(
        self,
        keys: PeerKeys,
        *,
        poller: Poller,
        definitions: DefinitionStore,
        take_in: Callable[[Payload], Payload],
        send: Callable[[Message, Payload], None],
        enqueue: Callable[[Batch, int], object],
        clock: Clock,
    ) -> None:
        self._keys = keys
        self._poller = poller
        self._definitions = definitions
        self._take_in = take_in
        self._send = send
        self._enqueue = enqueue
        self._clock = clock
        self._context: Any = None
        self._server: ResultServer | None = None
        self._serves = False
        self._connections: dict[str, _Connection] = {}
        """The connections, by the other workers' keys; those that were used last come last."""
        self._coming: dict[bytes, str] = {}
        """The results that are pulled, each with the key of the worker that sends it."""
        self._failed: set[bytes] = set()
        """The results that did not come. Until the dispatcher knows, it assigns runs that need
        them.
        """
        self._held_back: list[tuple[Batch, int]] = []
        """The batches, each with its allocation, that wait for such results."""

    def serve(self) -> None:
        """Listen for other workers, and tell the dispatcher where. Called with each result that
        stays here.
        """
        if self._serves:
            return
        self._serves = True
        import zmq  # here: few workers hold results

        payload_of = self._definitions.results.get
        try:
            from gridengine.wire.peer_results import ResultServer
            from gridengine.wire.server import own_addresses
            from gridengine.wire.sockets import new_keys

            keys = msgspec.structs.replace(new_keys(), peer_public=self._keys.public)
            self._server = ResultServer(
                self._the_context(), self._poller, keys, self._keys.ports, payload_of
            )
            *outer, loopback = own_addresses()
        except (GridEngineError, zmq.ZMQError, OSError, RuntimeError) as error:
            # no port, descriptor or thread is left
            log().warning("other workers get no results from this one: %s", error)
            return
        hosts = [f"[{one}]" if ":" in one else one for one in outer or [loopback]]
        addresses = [f"tcp://{host}:{self._server.port}" for host in hosts]
        self._send(Serves(addresses, keys.public), ())

    def _the_context(self) -> Any:
        """Return the context, whose threads encrypt and decrypt.

        Raises:
            OSError, zmq.ZMQError: too few descriptors are left.
        """
        import zmq

        if self._context is None:
            with contextlib.ExitStack() as free:  # else ZeroMQ may abort this process
                for _ in range(CONTEXT_DESCRIPTORS):
                    free.callback(os.close, os.dup(self._poller.fileno()))
            context = zmq.Context(io_threads=2)
            context.socket(zmq.PAIR).close()  # begins the threads
            self._context = context
        return self._context

    # Results that are pulled

    def pull(self, message: Pull) -> None:
        """Get a result from another worker, or give up to."""
        name, key = message.name, self._coming.get(message.name)
        if not message.addresses:
            if key is not None and self._connections[key].pulls[name] == message.number:
                self._end(name, ABSENT)
            return
        try:
            connection = self._connections.pop(message.key, None) or self._connect(message)
        except OSError as error:  # no descriptor is left, or the address is none
            log().warning("no connection to another worker: %s", error)
            self._failed.add(name)
            is_full = error.errno in (errno.EMFILE, errno.ENFILE)  # no fault of that host
            self._send(Pulled(name, message.number, ABSENT if is_full else UNREACHED), ())
            return
        self._connections[message.key] = connection
        if not connection.pulls:
            connection.heard_at = self._clock.monotonic()
        self._failed.discard(name)
        self._coming[name] = message.key
        connection.pulls[name] = message.number
        connection.client.fetch(name)

    def _connect(self, message: Pull) -> _Connection:
        import zmq

        from gridengine.wire.peer_results import ResultClient

        pair = self._keys.public, self._keys.secret
        try:
            client = ResultClient(
                self._the_context(), self._poller, message.addresses, message.key, pair
            )
        except zmq.ZMQError as error:
            raise OSError(error.errno, str(error)) from error
        return _Connection(client, self._clock.monotonic(), {})

    def forget(self, names: Iterable[bytes]) -> None:
        """Give up results that nobody needs any more; the dispatcher expects no answer."""
        for name in names:
            if name in self._coming:
                self._drop(name)
                self._give_back(name)

    def tick(self, now: float) -> float:
        """Take in what has come, and give up what does not come. Return after how many seconds to
        call this again.
        """
        if self._server is not None:
            self._server.answer()
        wait = math.inf
        for key, connection in list(self._connections.items()):
            self._receive(key, connection, now)
            if key not in self._connections:
                continue
            if connection.pulls:
                patience = SILENT_SECONDS if connection.client.is_connected else CONNECT_SECONDS
            else:
                patience = IDLE_SECONDS
            left = connection.heard_at + patience - now
            if left <= 0:
                self._disconnect(key)
            wait = min(wait, max(left, 0.0))
        idle = [key for key, one in self._connections.items() if not one.pulls]
        for key in idle[:-MOST_IDLE]:
            self._disconnect(key)
        return wait

    def _receive(self, key: str, connection: _Connection, now: float) -> None:
        try:
            for name, payload in connection.client.receive():
                connection.heard_at = now
                if payload is not None:
                    self._arrived(name, payload)
                elif name:
                    self._end(name, ABSENT)
        except ProtocolError as error:
            log().warning("another worker sends what is no result: %s", error.message)
            self._disconnect(key)

    def _disconnect(self, key: str) -> None:
        connection = self._connections[key]
        for name in list(connection.pulls):
            self._end(name, ABSENT if connection.client.is_connected else UNREACHED)
        connection.client.close()
        del self._connections[key]

    def _arrived(self, name: bytes, payload: Payload) -> None:
        number = self._drop(name)
        self._definitions.hold(name, self._take_in(payload))
        self._send(Pulled(name, number), ())
        waiting, self._held_back = self._held_back, []
        for batch, allocation in waiting:
            self.hold_back(batch, allocation)

    def _end(self, name: bytes, failure: str) -> None:
        self._send(Pulled(name, self._drop(name), failure), ())
        self._failed.add(name)
        self._give_back(name)

    def _drop(self, name: bytes) -> int:
        """Forget a pull; return its number."""
        connection = self._connections[self._coming.pop(name)]
        connection.client.give_up(name)
        return connection.pulls.pop(name)

    # Batches that wait

    def is_pulled(self, name: bytes) -> bool:
        """Return whether a result is or was on its way here."""
        return name in self._coming or name in self._failed

    def hold_back(self, batch: Batch, allocation: int) -> None:
        """Queue a batch, unless results that it needs are on their way. Give back the runs whose
        results do not come.
        """
        if self._failed and (lacking := self._failed - self._definitions.messages.keys()):
            needy = {assignment.run for assignment, _ in batch if _needs(assignment, lacking)}
            if taken := take_out(batch, needy):
                self._send(Returned(taken, NOT_PULLED), ())
        if self._coming and any(_needs(assignment, self._coming) for assignment, _ in batch):
            self._held_back.append((batch, allocation))
        elif batch:
            self._enqueue(batch, allocation)

    def take_out(self, runs: set[int]) -> list[int]:
        """Take these runs out of the batches that wait; return those that were in one."""
        taken = [run for batch, _ in self._held_back for run in take_out(batch, runs)]
        waiting, self._held_back = self._held_back, []
        for batch, allocation in waiting:
            if batch:
                self.hold_back(batch, allocation)
        return taken

    def take_all(self) -> list[int]:
        """Take out all batches that wait; return their runs."""
        waiting, self._held_back = self._held_back, []
        return [assignment.run for batch, _ in waiting for assignment, _ in batch]

    def _give_back(self, name: bytes) -> None:
        """Give back the runs that need a result which does not come."""
        needy = {
            assignment.run
            for batch, _ in self._held_back
            for assignment, _ in batch
            if _needs(assignment, (name,))
        }
        if taken := self.take_out(needy):
            self._send(Returned(taken, NOT_PULLED), ())

    def close(self) -> None:
        """Close all sockets. May be called twice."""
        for connection in self._connections.values():
            connection.client.close()
        if self._server is not None:
            self._server.close()
        if self._context is not None:
            self._context.term()
        self._connections.clear()
        self._context = self._server = None


def _needs(assignment: Assignment, names: Container[bytes]) -> bool:
    return any(name in names for name in large_inputs(assignment))
