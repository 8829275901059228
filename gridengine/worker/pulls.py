"""`Pulls`: the results that this worker gets from other workers, the batches that wait for them,
and the server by which other workers get results from here.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from gridengine.display import log
from gridengine.errors import GridEngineError, ProtocolError
from gridengine.serialize.payload import Payload
from gridengine.system.polling import Poller
from gridengine.wire.clock import Clock
from gridengine.wire.messages import (
    ABSENT,
    NOT_PULLED,
    UNREACHED,
    Message,
    Pull,
    Pulled,
    Returned,
    Serves,
    large_inputs,
)
from gridengine.wire.sockets import new_keys, tcp_addresses
from gridengine.worker.definition_store import DefinitionStore
from gridengine.worker.runner_handle import Batch, BatchQueue, take_out
from gridengine.worker.runner_pool import RunnerPool

if TYPE_CHECKING:
    from gridengine.wire.peer_results import ResultClient, ResultServer

CONTEXT_DESCRIPTORS = 10
"""The threads of a ZeroMQ context and its first socket take fewer descriptors than this."""
MOST_AT_ONCE = 32
"""This many results are asked for at a time, since each may take memory and descriptors."""
MOST_IDLE = 64
"""This many idle connections stay open, since each takes descriptors."""


class PeerKeys(msgspec.Struct, frozen=True):
    """The key pair (in Z85) of all workers of a run, and the ports at which they may listen."""

    public: str
    secret: str
    ports: Sequence[int] = ()


class Pulls:
    """The results that go between this worker and others. All methods are for one thread.

    Args:
        keys: the keys of the run's workers.
        poller: calls when a socket can be read.
        definitions: has the results of this worker; those that come are added.
        take_in: stores a payload that has come, and returns it.
        send: sends a message to the dispatcher.
        pool: holds batches back until their results have come.
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
        pool: RunnerPool,
        clock: Clock,
    ) -> None:
        self._keys = keys
        self._poller = poller
        self._definitions = definitions
        self._take_in = take_in
        self._send = send
        self._pool = pool
        self._clock = clock
        self._context: Any = None
        self._server: ResultServer | None = None
        self._serves = False
        self._connections: dict[str, ResultClient] = {}
        """The connections, by the other workers' keys; the last used one is the last."""
        self._coming: dict[bytes, Pull] = {}
        """The pulls, by the results' names."""
        self._waiting: deque[Pull] = deque()
        """Pulls that have not begun, and some that were given up before they began."""
        self._failed: set[bytes] = set()
        """The results that did not come, until the dispatcher acknowledges that: it may still
        assign runs that need them.
        """

    def serve(self) -> None:
        """Listen for other workers, and tell the dispatcher where. Called before the dispatcher is
        told of a result that stays here: else it would have the first ones come to itself.
        """
        if self._serves:
            return
        self._serves = True
        try:
            from gridengine.wire.peer_results import ResultServer  # few workers hold results

            keys = msgspec.structs.replace(new_keys(), peer_public=self._keys.public)
            self._server = ResultServer(
                self._the_context(),
                self._poller,
                keys,
                self._keys.ports,
                self._definitions.results.get,
            )
            *outer, loopback = tcp_addresses(self._server.port)
        except (GridEngineError, zmq.ZMQError, OSError, RuntimeError) as error:
            # no port, descriptor or thread is left
            log().warning("other workers get no results from this one: %s", error)
            return
        self._send(Serves(outer or [loopback], keys.public), ())

    def _the_context(self) -> Any:
        """Return the context, whose threads encrypt and decrypt.

        Raises:
            OSError, zmq.ZMQError: too few descriptors are left.
        """
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
        """Begin to pull a result. Without addresses, give up the pull of that number."""
        if message.addresses:
            self._failed.discard(message.name)
            self._coming[message.name] = message
            self._waiting.append(message)
            self._ask()
        elif (pull := self._coming.get(message.name)) and pull.number == message.number:
            self._end(pull, ABSENT)

    def _ask(self) -> bool:
        """Begin pulls that wait, the oldest first, while few results come at a time. Return whether
        any has begun.
        """
        before = busy = sum(len(one.incoming) for one in self._connections.values())
        while self._waiting and busy < MOST_AT_ONCE:
            pull = self._waiting.popleft()
            if self._coming.get(pull.name) is not pull:
                continue
            try:
                connection = self._connections.pop(pull.key, None) or self._connect(pull)
            except (OSError, zmq.ZMQError) as error:  # no descriptor, or an invalid address
                log().warning("no connection to another worker: %s", error)
                is_full = error.errno in (errno.EMFILE, errno.ENFILE)  # no fault of that host
                self._end(pull, ABSENT if is_full else UNREACHED)
                continue
            self._connections[pull.key] = connection
            connection.fetch(pull, self._clock.monotonic())
            busy += 1
        return busy > before

    def _connect(self, pull: Pull) -> ResultClient:
        from gridengine.wire.peer_results import ResultClient  # few workers get results

        pair = self._keys.public, self._keys.secret
        return ResultClient(self._the_context(), self._poller, pull.addresses, pull.key, pair)

    def forget(self, names: Iterable[bytes]) -> None:
        """Give up results that nobody needs any more; the dispatcher expects no answer."""
        names = set(names)
        for name in names & self._coming.keys():
            self._drop(self._coming[name])
            self._failed.add(name)
        if not self._failed.isdisjoint(names):
            self._go_on()
            self._failed -= names

    def tick(self, now: float) -> float:
        """Answer other workers, receive results, and end pulls and connections whose time is over.
        Return after how many seconds to call this again.
        """
        if self._server is not None:
            self._server.answer()
        for key, connection in list(self._connections.items()):
            self._receive(key, connection, now)
        if self._ask():
            return 0.0  # a socket may have received something as it sent
        idle = [key for key, one in self._connections.items() if not one.incoming]
        for key in idle[:-MOST_IDLE]:
            self._disconnect(key)
        left = min((one.seconds_left(now) for one in self._connections.values()), default=math.inf)
        return max(left, 0.0)

    def _receive(self, key: str, connection: ResultClient, now: float) -> None:
        try:
            for pull, payload in connection.receive(now):
                if payload is not None:
                    self._definitions.hold(pull.name, self._take_in(payload))
                self._end(pull, ABSENT if payload is None else "")
        except ProtocolError as error:
            log().warning("another worker sends what is no result: %s", error.message)
            self._disconnect(key)
        else:
            if connection.seconds_left(now) <= 0:
                self._disconnect(key)

    def _disconnect(self, key: str) -> None:
        """Close a connection. The pulls from that worker have failed; so have all that wait, if no
        worker can be reached.
        """
        connection = self._connections.pop(key)
        connection.close()
        if not connection.incoming:
            return
        failure = ABSENT if connection.is_connected else UNREACHED
        ways = [one for one in (connection, *self._connections.values()) if one.is_connected]
        waiting = [one for one in self._waiting if one.key == key or not ways]
        for pull in [*(one.pull for one in connection.incoming.values()), *waiting]:
            if self._coming.get(pull.name) is pull:
                self._end(pull, failure if pull.key == key else ABSENT)

    def _end(self, pull: Pull, failure: str = "") -> None:
        self._drop(pull)
        if failure:
            self._failed.add(pull.name)
        self._send(Pulled(pull.name, pull.number, failure), ())
        self._go_on()

    def _drop(self, pull: Pull) -> None:
        del self._coming[pull.name]
        if pull.key in self._connections:
            self._connections[pull.key].give_up(pull)

    # Batches that wait

    def is_pulled(self, name: bytes) -> bool:
        """Return whether a result is coming, or has failed to come."""
        return name in self._coming or name in self._failed

    def hold_back(self, batch: Batch, allocation: int) -> None:
        """Queue a batch once all results that it needs are here."""
        if self._coming or self._failed:
            self._wait(batch, allocation)
            self._go_on()
        else:
            self._pool.enqueue(batch, allocation)

    def _wait(self, batch: Batch, allocation: int) -> None:
        self._pool.held_back.setdefault(allocation, BatchQueue()).append(batch)

    def _go_on(self) -> None:
        """Give back the runs that need results that have failed to come. Queue the batches that
        need no more results.
        """
        waiting, self._pool.held_back = self._pool.held_back, {}
        returned: list[int] = []
        for allocation, batch in ((one, batch) for one in waiting for batch in waiting[one]):
            if self._failed:
                returned += take_out(batch, _needy(batch, self._failed))
            if self._coming and _needy(batch, self._coming.keys()):
                self._wait(batch, allocation)
            elif batch:
                self._pool.enqueue(batch, allocation)
        if returned:
            self._send(Returned(returned, NOT_PULLED), ())

    def close(self) -> None:
        """Close all sockets. May be called twice."""
        for connection in self._connections.values():
            connection.close()
        if self._server is not None:
            self._server.close()
        if self._context is not None:
            self._context.term()
        self._connections.clear()
        self._context = self._server = None


def _needy(batch: Batch, names: Set[bytes]) -> set[int]:
    """Return the runs of a batch that need one of these results."""
    return {one.run for one, _ in batch if not names.isdisjoint(large_inputs(one))}
