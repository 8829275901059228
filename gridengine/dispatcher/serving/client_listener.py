"""`ClientListener`: the socket that clients in other processes connect to, for the I/O thread; and
the actions, besides submitting calls, that a client can ask of the dispatcher.

A client that ends says goodbye. When a client is silent, the listener checks whether its process
still exists, where this machine can tell. A client is gone when its process has ended, or when it
has been silent for the whole lease. After the grace time its calls are cancelled. A broken
connection alone means nothing: the network may be at fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from gridengine.dispatcher.core.events import ClientJoined, Event, Launched, Restored
from gridengine.dispatcher.serving.client_process import dump_error_by
from gridengine.dispatcher.serving.clients import REQUESTS, Clients
from gridengine.dispatcher.serving.journaled_client import ClientRecord
from gridengine.dispatcher.serving.journaled_workers import read_runs, read_workers
from gridengine.dispatcher.serving.remote_client import (
    AbsentClients,
    RemoteClient,
    record_of,
    why_refused,
)
from gridengine.display import log, plural
from gridengine.errors import ConfigurationError, GridEngineError, ProtocolError, safe_repr
from gridengine.serialize.payload import Payload
from gridengine.settings.values import Settings
from gridengine.wire.messages import (
    DETACHED,
    JOURNALED,
    WATCHER,
    Beat,
    ClientCancel,
    ClientHello,
    ClientRecall,
    Control,
    Controlled,
    Goodbye,
    Message,
    NestedEnded,
    NestedHello,
    OutcomesTaken,
    OutputTaken,
    Refuse,
)
from gridengine.wire.server import Server

if TYPE_CHECKING:
    from gridengine.dispatcher.watch_server import FollowerAnswer


MOST_WATCHERS = 32
OF_AGENTS = NestedHello, NestedEnded
"""Messages that only workers' agents send, about their runners; clients must not."""
ENDINGS = ClientCancel, ClientRecall
"""The messages that end calls."""
WATCHER_SECONDS, WATCHER_BEATS = 10.0, 3
"""A watcher is dropped after this many seconds of silence, or this many missed beats if that is
longer. It loses nothing by that.
"""
LOOK_SECONDS = 2.0
"""How often the listener checks whether clients are still there."""
MOST_UNREAD = 8
"""A follower gets nothing more while it has more than this many unacknowledged pieces of messages.
"""


class Action(msgspec.Struct, frozen=True):
    """An action that a client can ask for. `act` is called with the client's arguments, by name,
    and returns a value that JSON can encode. With `looks`, watchers may ask for it too. With
    `follows`, `act` also gets a `follower`, to which further answers can be sent.
    """

    act: Callable[..., Any]
    looks: bool = False
    follows: bool = False


@dataclass(frozen=True)
class RemoteFollower:
    """A client that follows the status: the question with this number is answered again and again,
    except while the client has many unacknowledged pieces.
    """

    peer: bytes
    number: int
    server: Server = field(compare=False)

    def tell(self, told: FollowerAnswer) -> bool:
        """See `Follower`. Raises an error if the client was forgotten."""
        if self.server.unacknowledged(self.peer) > MOST_UNREAD:
            return False
        self.server.send(self.peer, Controlled(self.number, told.line))
        return True

    def drop(self) -> None:
        self.server.send(
            self.peer, Controlled(self.number, b"the answers were not read in time", failed=True)
        )

    def end(self) -> None:
        """Do nothing, see `Follower`: the client is told of the end, or follows the dispatcher's
        next process.
        """


def answered(
    actions: Mapping[str, Action], peer: bytes, message: Control, server: Server
) -> Controlled:
    """Perform the action that a client asks for, and return the answer."""
    failed, answer = False, b""
    try:
        action = actions[message.action]
        if peer in server.watchers and not action.looks:
            raise PermissionError(f"a watcher may not {message.action}")
        arguments = msgspec.json.decode(message.arguments)
        if action.follows:
            arguments["follower"] = RemoteFollower(peer, message.number, server)
        answer = msgspec.json.encode(action.act(**arguments))
    except Exception as error:  # the client may have asked for anything
        text = str(error) if isinstance(error, GridEngineError) else safe_repr(error)
        failed, answer = True, text.encode()
    return Controlled(message.number, answer, failed)


class ClientListener:
    """Receives the messages of clients, and answers. All methods are for one thread.

    Args:
        server: the clients' socket; closed with this.
        clients: the table that clients are added to. If it has a journal, the journal is closed
            with this.
        actions: the actions that clients may ask for by `Control`, by name.
        launched: the workers that the dispatcher's previous process has launched.
    """

    def __init__(
        self,
        server: Server,
        clients: Clients,
        actions: Mapping[str, Action],
        settings: Settings,
        launched: Sequence[Launched] = (),
    ) -> None:
        self._server = server
        self._table = clients
        self._actions = actions
        self._launched = launched
        self._lease, self._grace = settings.client_lease, settings.client_grace
        self._watcher_lease = max(WATCHER_SECONDS, WATCHER_BEATS * settings.beat_seconds)
        self._clients: dict[bytes, RemoteClient] = {}
        self._absent = AbsentClients(settings.retention)
        self.fd = server.fd
        self.ends = clients.journal is None
        """Whether the dispatcher ends for good when this is closed. Then clients are told that
        nobody will continue their calls.
        """
        self._look_at = math.inf
        self._looked_at = 0.0
        self._awake = 0.0
        """How many seconds, in total, this dispatcher was awake to hear its clients. The monotonic
        clock would also count the time for which the machine was suspended.
        """

    @property
    def deadline(self) -> float:
        """The monotonic time at which `look` must be called."""
        journal = self._table.journal
        return self._look_at if journal is None else min(self._look_at, journal.file.deadline)

    @property
    def pending(self) -> bool:
        """Whether a message has arrived, or writes have become durable."""
        journal = self._table.journal
        return self._server.pending or (journal is not None and journal.file.pending)

    def restore(self) -> Iterator[Event]:
        """Yield the events that the core handles first: the state that an earlier
        process left in the journal.
        """
        journal = self._table.journal
        if journal is None:
            return
        yield Restored(workers=read_workers(journal.file), launched=self._launched)
        found, absent = list(journal.clients()), journal.absent()
        settled: dict[int, list[tuple[int, int]]] = {}
        endings: list[tuple[bytes, Message]] = []
        for number, peer, hello, seen in found:
            client = self._table.add(RemoteClient, (peer, 0), self._server.send, number)
            client.connected = False
            client.record = ClientRecord(journal, number, hello, client.send, seen)
            yield self._join(client, hello)
            try:
                requests = list(client.record.replay(settled))
            except ProtocolError as error:
                yield from self._give_up(client, error)
                continue
            for message, buffers in requests:
                if type(message) in ENDINGS:
                    endings.append((peer, message))
                else:
                    yield from self._table.events(peer, message, buffers)
            if number in absent:
                self._absent.add(self._clients.pop(peer), absent[number])
                self._table.output.remove(client)
        yield Restored(settled=settled, runs=read_runs(journal.file), saved=journal.states())
        # The core learns which calls are settled, and which runs workers hold, before it sees
        # cancellations; it would otherwise cancel calls that have ended, or that workers still run.
        for peer, message in endings:
            yield from self._table.events(peer, message, ())
        if found:
            self._look_at = 0.0  # perhaps none of them comes back
            who = plural(len(found), "client")
            log().info("the calls of %s are taken up again from %s", who, journal.file.path)

    def _give_up(self, client: RemoteClient, error: ProtocolError) -> Iterable[Event]:
        """End a client whose part of the journal is damaged: it cannot be told which of its calls
        are missing. When it comes back, it is refused, and its calls get an error.
        """
        assert self._table.journal is not None
        log().error(
            "the dispatcher's journal %s: %s; all calls of %s, script %s, are given up: run it "
            "again; the calls of other clients are kept",
            self._table.journal.file.path,
            error,
            client,
            client.hello.script,
        )
        del self._clients[client.peer]
        return self._forget(client)

    def events(self, now: float, most: int) -> Iterator[Event]:
        """Receive at most `most` messages; yield the events that follow from them for the core."""
        journal = self._table.journal
        if journal is not None and journal.file.pending:
            journal.settle()
        for peer, message, buffers in self._server.receive(most):
            kind, client = type(message), self._clients.get(peer)
            if client is not None:
                client.heard_at = self._awake
            if kind in REQUESTS:
                if client is not None and client.number != WATCHER:
                    yield from self._request(client, message, buffers)
            elif kind in HANDLERS:
                yield from HANDLERS[kind](self, peer, message, buffers)
            if self._look_at == math.inf and self._clients:
                self._look_at, self._looked_at = now + LOOK_SECONDS, now

    def _request(self, client: RemoteClient, message: Any, buffers: Payload) -> Iterator[Event]:
        """Yield the events that follow from a client's request. A client that breaks the protocol
        is ended.
        """
        try:
            if message.runner or type(message) in OF_AGENTS:
                raise ProtocolError(f"a client sends no {type(message).__name__}")
            if client.record is not None and type(message) in JOURNALED:
                try:
                    client.record.take(message, buffers)
                except ConfigurationError as error:
                    yield from self._table.refuse(client, message.tasks, error)
                    return
            yield from self._table.events(client.peer, message, buffers)
        except Exception as error:
            log().warning("%s broke the protocol: %s", client, safe_repr(error))
            self._server.send(client.peer, Refuse(f"this client broke the protocol: {error}"))
            yield from self._end(client.peer)

    def look(self, now: float) -> Iterator[Event]:
        """Yield the events for clients whose grace time is over. Drop silent watchers, and absent
        clients whose retention is over. Write deferred results that can wait no longer.
        """
        if self._table.journal is not None:
            self._table.journal.file.write_due(now)
        # If much more time has passed than between two looks, this machine was suspended.
        self._awake += min(now - self._looked_at, 2 * LOOK_SECONDS)
        self._looked_at = now
        self._look_at = now + LOOK_SECONDS if self._clients or self._absent else math.inf
        for client in self._absent.take_old(self._is_present):
            log().warning(
                "the calls that %s has left are deleted, their retention is over: %s",
                client,
                client.hello.keep,
            )
            yield from self._forget(client)
        for client in list(self._clients.values()):
            if client.record is not None and client.record.is_stuck:
                client.record.send_waiting()
            silent = self._awake - client.heard_at
            if client.number == WATCHER and silent > self._watcher_lease:
                log().info("the watcher %s has been silent for %.0f s: dropped", client, silent)
                yield from self._end(client.peer)
            elif self._is_heard(client):
                client.gone_at = None
            elif client.gone_at is None:
                if silent > self._lease or client.is_dead():
                    log().info("%s is gone", client)
                    client.gone_at = self._awake
            elif client.leaves_calls:
                yield from self._leave(client)
            elif self._awake - client.gone_at >= self._grace:
                log().warning("%s has not come back; its calls are ended", client)
                yield from self._end(client.peer)

    def _is_heard(self, client: RemoteClient) -> bool:
        return self._awake - client.heard_at < 2 * LOOK_SECONDS

    def _is_present(self, name: str) -> bool:
        """Return whether a client of this named run is connected."""
        return any(one.leaves_calls and one.hello.keep == name for one in self._clients.values())

    def _end(self, peer: bytes) -> Iterator[Event]:
        """End a client, and the absent clients whose calls it has inherited."""
        self._server.forget(peer)
        client = self._clients.pop(peer, None)
        if client is not None:
            yield from self._forget(client)
            # A watcher inherits nothing, whatever name it gives.
            for one in self._absent.take(client.hello.keep) if client.leaves_calls else ():
                yield from self._forget(one)

    def _forget(self, client: RemoteClient) -> Iterable[Event]:
        client.connected = False
        self._table.output.remove(client)
        if client.record is not None:
            client.record.delete()
        return self._table.end(client.key)

    def _leave(self, client: RemoteClient) -> Iterator[Event]:
        """Let the calls of a client that is gone go on, until the next client of the same name
        inherits them.
        """
        self._server.forget(client.peer)
        del self._clients[client.peer]
        for one in self._absent.of(client.hello.keep):
            one.connected = False
        client.connected = False
        self._table.output.remove(client)
        log().info("%s has left its calls: %s", client, client.hello.keep)
        self._absent.add(client)
        yield from self._clear(client.hello.keep)

    def _clear(self, name: str) -> Iterator[Event]:
        """Forget the absent clients of a name that have no calls and no outcomes left."""
        for client in self._absent.take_over(name):
            yield from self._forget(client)

    def _inherit(self, client: RemoteClient) -> Iterator[Event]:
        """Let a client inherit the calls of all other clients of its name. Called before the client
        is welcomed, because the welcome says how much it inherits.
        """
        name = client.hello.keep
        for one in [one for one in self._clients.values() if one.hello.keep == name]:
            if one is not client and one.leaves_calls:
                self._server.send(one.peer, Refuse("another process has the run now"))
                yield from self._leave(one)
        yield from self._clear(name)
        before = self._absent.of(name)
        client.owed = sum(record_of(one).owed for one in before)
        client.ready = sum(record_of(one).ready for one in before)

    def _hand_over(self, client: RemoteClient) -> None:
        """Send a client, which has just been welcomed, the outcomes that it has inherited."""
        for one in self._absent.of(client.hello.keep):
            one.peer, one.connected = client.peer, True
            record_of(one).resume()

    def _beat(self, peer: bytes, message: Beat, buffers: Payload) -> Iterable[Event]:
        self._server.beat(peer)
        return ()

    def _hello(self, peer: bytes, message: ClientHello, buffers: Payload) -> Iterable[Event]:
        """Accept a client or watcher, welcome again one that is known, or refuse it."""
        if reason := why_refused(message):
            return self._refuse(peer, Refuse(reason, mismatch=True))
        known = self._clients.get(peer)
        if known is not None:
            return self._welcome_again(known)
        journal = self._table.journal
        # A resuming client that is not known may go on only if none of its requests was durable and
        # nobody has its number.
        if message.resumes and (message.durable or not self._table.is_left(message.resumes)):
            return self._refuse(
                peer, Refuse("the dispatcher has no journal of this client's calls")
            )
        if peer in self._server.watchers:
            if sum(one.number == WATCHER for one in self._clients.values()) >= MOST_WATCHERS:
                return self._refuse(peer, Refuse("too many watch this dispatcher already"))
            client = RemoteClient(self._table, (peer, 0), WATCHER, self._server.send)
        else:
            client = self._table.add(RemoteClient, (peer, 0), self._server.send, message.resumes)
            if journal is not None and message.keeps:
                journal.add(client.number, peer, message)
                client.record = ClientRecord(journal, client.number, message, client.send)
        joined = self._join(client, message)
        log().info("%s is here: %s", client, message.script)
        return self._welcome(client, () if client.number == WATCHER else (joined,))

    def _welcome(self, client: RemoteClient, events: Iterable[Event]) -> Iterator[Event]:
        yield from events
        if client.leaves_calls:
            yield from self._inherit(client)
        self._table.welcome(client)
        if client.leaves_calls:
            self._hand_over(client)

    def _join(self, client: RemoteClient, hello: ClientHello) -> ClientJoined:
        """Take over the data of a client's greeting."""
        client.dump_error = dump_error_by(hello.codec)
        client.hello, client.heard_at = hello, self._awake
        self._clients[client.peer] = client
        self._table.output.add(client)
        if client.number != WATCHER:
            self._table.named.note_client(client.number, hello)
        return ClientJoined(client.number, hello.weight)

    def _refuse(self, peer: bytes, refusal: Refuse) -> Iterable[Event]:
        self._server.send(peer, refusal)
        self._server.forget(peer)  # a peer that is no client is never checked for its end
        return ()

    def _welcome_again(self, client: RemoteClient) -> Iterator[Event]:
        """Welcome a client that an earlier process knew, or that sends its greeting twice."""
        log().info("%s is back", client)
        client.connected = True
        yield from self._welcome(client, ())
        self._table.output.resume(client)  # a job's output arrives before its outcome
        if client.record is not None:
            client.record.resume()

    def _taken(self, peer: bytes, message: OutcomesTaken, buffers: Payload) -> Iterable[Event]:
        client = self._clients.get(peer)
        if client is not None and client.record is not None:
            client.record.taken(message.numbers)
            name = client.hello.keep
            for one in self._absent.of(name):
                record_of(one).taken(message.numbers)
            return self._clear(name)
        return ()

    def _output_taken(self, peer: bytes, message: OutputTaken, buffers: Payload) -> Iterable[Event]:
        client = self._clients.get(peer)
        if client is not None:
            self._table.output.taken(client, message)
        return ()

    def _goodbye(self, peer: bytes, message: Goodbye, buffers: Payload) -> Iterable[Event]:
        client = self._clients.get(peer)
        if client is not None and client.leaves_calls and message.reason == DETACHED:
            return self._leave(client)
        if client is not None:
            log().info("%s has left", client)
        return self._end(peer)

    def _control(self, peer: bytes, message: Control, buffers: Payload) -> Iterable[Event]:
        self._server.send(peer, answered(self._actions, peer, message, self._server))
        return ()

    def seen(self) -> list[dict[str, Any]]:
        """Return a description of each client, for people. For any thread."""
        return [
            {
                "number": client.number,
                "host": client.hello.host,
                "pid": client.hello.pid,
                "script": client.hello.script,
                "weight": client.hello.weight,
                "gone": client.gone_at is not None,
            }
            for client in list(self._clients.values())
        ]

    def note_fault(self, peer: bytes, path: str, error: str) -> None:
        """Note which file a client cannot write, and why. An empty path means that it can write
        again.
        """
        self._clients[peer].fault = path, error

    def faults(self) -> Iterator[tuple[str, str, str]]:
        """Yield the files that clients cannot write: the path, the reason, and the client."""
        for client in self._clients.values():
            path, error = client.fault
            if path:
                yield path, error, str(client)

    def left(self) -> list[dict[str, Any]]:
        """Describe the named runs whose client has left and whose calls go on, for people: see
        `AbsentClients.seen`.
        """
        return self._absent.seen()

    def close(self) -> None:
        """Close the socket. If the dispatcher ends for good, tell clients that nothing more will
        come.
        """
        for peer, client in self._clients.items() if self.ends else ():
            self._server.send(peer, Goodbye("the dispatcher has ended"))
            if client.record is not None and not client.leaves_calls and self._is_heard(client):
                client.record.delete()  # nobody would receive the outcomes
        self._server.close()
        if self._table.journal is not None:
            self._table.journal.file.close()


HANDLERS: dict[type, Callable[[ClientListener, bytes, Any, Payload], Iterable[Event]]] = {
    Beat: ClientListener._beat,
    ClientHello: ClientListener._hello,
    OutcomesTaken: ClientListener._taken,
    OutputTaken: ClientListener._output_taken,
    Goodbye: ClientListener._goodbye,
    Control: ClientListener._control,
}
"""The handlers of messages that are not in `REQUESTS`, by type."""
