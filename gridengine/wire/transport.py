"""Messages over an authenticated ZeroMQ socket: `Server` (ROUTER) for a dispatcher, `Client`
(DEALER) for a worker.

ZeroMQ reconnects by itself but loses what was under way when a connection broke: a `Session` at
each end sends that again.

Every connection is CURVE with both keys checked (RFC 26, and RFC 27 for the check of the client's).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import zmq

from gridengine._version import __version__
from gridengine.errors import ConfigurationError, MessageTooLong, ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.wire.connection_file import (
    ClientConnection,
    Connection,
    ServerKeys,
    why_unreachable,
)
from gridengine.wire.framing import decode, encode, foreign_greeting, in_protocol, rest_of
from gridengine.wire.messages import (
    VERSION,
    Beat,
    ChildrenWelcome,
    Goodbye,
    Hello,
    Message,
    Refuse,
    Rejoin,
    Welcome,
)
from gridengine.wire.open_files import allow_open_files
from gridengine.wire.session import Frames, Session

if TYPE_CHECKING:
    from zmq.auth.thread import ThreadAuthenticator

log = logging.getLogger("gridengine")

_PIECE = 256 * 1024
_READABLE = int(zmq.POLLIN)
"""A plain number: pyzmq's own are members of an enumeration, which take microseconds to combine."""
_HANDSHAKE_SECONDS = 10
_BACKLOG = 4096
"""How many connections may wait to be accepted: all workers of a cluster may start at once, and one
that the kernel refuses is tried again a second later.
"""
_FILES_FOR_HANDSHAKES = 2048
_GREETING_SECONDS = 60.0
"""After how long without another piece a first message that is not complete is dropped."""
_BIND_SECONDS = 2.0
_ASK_SECONDS, _LOOK_SECONDS = 0.5, 2.0
"""How often a worker that is about to close asks how much of what it has sent is there, and after
how much silence it looks whether anybody listens.
"""
REPORTS = 6
"""After which part of the time that a worker has to connect it sees what keeps it from that, and
tells after as long again at most.
"""
_OPTIONS = (
    (zmq.SNDHWM, 0),
    (zmq.RCVHWM, 0),
    (zmq.LINGER, 0),
    (zmq.IPV6, 1),
    (zmq.HEARTBEAT_IVL, 3_000),
    (zmq.HEARTBEAT_TIMEOUT, 10_000),
    (zmq.RECONNECT_IVL, 100),
    (zmq.RECONNECT_IVL_MAX, 2_000),
    # Before a peer has proved itself ZeroMQ takes in what it sends, frame by frame: one of ours and
    # its encryption, no more.
    (zmq.MAXMSGSIZE, _PIECE + 1024),
)


class Server:
    """A dispatcher's socket. All methods are for one thread.

    Args:
        host: the one address or name that workers get; empty for every address of this
            machine.
        workers: how many will connect at a time, at most.
        keys: those it is to use, and the port (default: new ones, and any).
        greeting: what a peer sends first.
        ports: those of which it may take a new one (default: any).
        epoch: the number of this process among those that are one dispatcher, started again: peers
            that it does not know are asked to come back. 0 where there are no others: those are
            refused.

    Raises:
        ConfigurationError: no address to listen at, `host` does not resolve, or too few files may
        be open for so many workers.
    """

    def __init__(
        self,
        *,
        host: str = "",
        workers: int = 1,
        keys: ServerKeys | None = None,
        greeting: type[Message] = Hello,
        epoch: int = 0,
        ports: Sequence[int] = (),
    ) -> None:
        allow_open_files(workers, handshakes=_FILES_FOR_HANDSHAKES)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._sessions: dict[bytes, Session] = {}
        self._greetings: dict[bytes, tuple[Session, float]] = {}
        """Those whose first message is long and not complete, and when the last of it came."""
        self._authenticator: ThreadAuthenticator | None = None
        self._rest = partial(rest_of, most=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self._greeting = greeting
        self._ports = ports
        self._epoch = epoch
        self._holds = False
        self._receipts: dict[bytes, int] = {}
        self.watchers: set[bytes] = set()
        """Those that may only look, by the key that they have."""
        self.keys = keys or new_keys()
        try:
            _set_up(self._socket)
            self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
            self.addresses = self._listen_on_tcp(host)
        except BaseException:
            self.close()
            raise

    def _listen_on_tcp(self, host: str) -> tuple[str, ...]:
        names = [host] if host else own_addresses()
        if host:
            resolve(host)
        # Here, as psutil below: they take long to import, and workers need none.
        from zmq.auth.thread import ThreadAuthenticator

        # It tells of each connection with its key: a logger of its own keeps that from who wants
        # to see what a run does.
        quiet = log.getChild("authentication")
        quiet.setLevel(quiet.level or logging.WARNING)
        self._authenticator = ThreadAuthenticator(self._context, log=quiet)
        self._authenticator.start()
        self._authenticator.configure_curve_callback("*", _PeersKeys(self.keys))
        self._socket.curve_server = True
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_SECONDS * 1000)
        self._socket.setsockopt(zmq.BACKLOG, _BACKLOG)
        self._socket.curve_secretkey = self.keys.secret.encode()
        self._socket.curve_publickey = self.keys.public.encode()
        port = self._bind()
        return tuple(f"tcp://{f'[{name}]' if ':' in name else name}:{port}" for name in names)

    def _bind(self) -> int:
        port = self.keys.port
        deadline = time.monotonic() + _BIND_SECONDS
        while port:
            try:
                self._socket.bind(f"tcp://*:{port}")
                break
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE or time.monotonic() > deadline:
                    raise ConfigurationError(
                        f"port {port} cannot be listened at: {error}",
                        hint="another process has it; end that, or have the dispatcher take "
                        "another port",
                    ) from None
                time.sleep(_BIND_SECONDS / 20)  # whoever had it may just be ending
        else:
            port = self._bind_to_new_port()
            self.keys = msgspec.structs.replace(self.keys, port=port)
        return port

    def _bind_to_new_port(self) -> int:
        if not self._ports:
            return self._socket.bind_to_random_port("tcp://*")
        for port in self._ports:
            try:
                self._socket.bind(f"tcp://*:{port}")
            except zmq.ZMQError as error:
                if error.errno not in (zmq.EADDRINUSE, errno.EACCES):
                    raise
            else:
                return port
        raise ConfigurationError(
            f"no port of {self._ports[0]} to {self._ports[-1]} can be listened at",
            hint="have the setting ports name more of them, from 1024 on",
        )

    @property
    def fd(self) -> int:
        """Polls as readable when there may be something to receive: once, and not again before
        `pending` was asked.
        """
        return int(self._socket.getsockopt(zmq.FD))

    @property
    def pending(self) -> bool:
        """Whether there is something to receive now."""
        return _is_readable(self._socket)

    def poller(self) -> zmq.Poller:
        """Return what wakes when there is something to receive; more may be registered."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        return poller

    def send(self, peer: bytes, message: Message, buffers: Sequence[Buffer] = ()) -> None:
        """Send a worker a message; kept until the worker has it. A worker that is forgotten is sent
        nothing.
        """
        session = self._sessions.get(peer)
        if session is not None:
            for frames in session.number(encode(message, buffers)):
                self._send_frames(peer, frames)

    def beat(self, peer: bytes) -> None:
        """Send a worker a sign of life."""
        session = self._sessions.get(peer)
        if session is not None:
            self._send_frames(peer, session.unnumbered(encode(Beat())))

    def unacknowledged(self, peer: bytes) -> int:
        """Return how many pieces of what a peer was sent it may not have.

        Raises:
            KeyError: it was forgotten.
        """
        return self._sessions[peer].unacknowledged

    def forget(self, peer: bytes) -> None:
        """Drop what is kept for a worker; should it come back it is refused."""
        self._sessions.pop(peer, None)
        self.watchers.discard(peer)

    def hold_acknowledgements(self) -> None:
        """From here on acknowledge only what `acknowledge` is told."""
        self._holds = True

    def take_receipts(self) -> dict[bytes, int]:
        """Return what has come since this was last asked, for `acknowledge`, once that is safe."""
        receipts, self._receipts = self._receipts, {}
        return receipts

    def acknowledge(self, receipts: Mapping[bytes, int]) -> None:
        """Let workers know, with whatever they are sent next, that they need not keep this."""
        for peer, number in receipts.items():
            session = self._sessions.get(peer)
            if session is not None:
                session.acknowledge(number)

    def receive(self, most: int = 1000) -> Iterator[tuple[bytes, Message, list[Buffer]]]:
        """Yield at most `most` messages that have come, each with its sender; malformed ones are
        logged and dropped.

        What a known worker sends and is no message yet, such as a piece of one, is yielded as a
        `Beat`: it is a sign of life. One whose message is too long is forgotten, and its `Goodbye`
        is yielded. What has begun to greet and does not go on is forgotten too.
        """
        self._drop_greetings(time.monotonic() - _GREETING_SECONDS)
        for _ in range(most):
            if not self.pending:
                return
            peer, *raw = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            sender = peer.bytes
            try:
                taken = self._decode(sender, raw)
            except MessageTooLong as error:
                taken = self._disconnect(sender, error)
            except ProtocolError as error:
                log.warning(
                    "dropped a malformed message of worker %s: %s", sender.hex()[:8], error.message
                )
                continue
            if taken is not None:
                yield sender, *taken

    def _decode(self, peer: bytes, raw: Sequence[zmq.Frame]) -> tuple[Message, list[Buffer]] | None:
        session, frames = self._sessions.get(peer), _buffers(raw)
        if session is None:
            greeting = self._receive_hello(peer, frames)
            if greeting is not None and self._may_only_look(raw):
                self.watchers.add(peer)
            return greeting
        content, answers = session.receive(frames)
        message = decode(content) if content is not None else (Beat(), [])
        if self._holds and content is not None and session.received > session.told:
            self._receipts[peer] = session.received
        if isinstance(message[0], Goodbye):  # who takes leave waits to hear that all is here
            answers.append(session.unnumbered(encode(Beat())))
        for answer in answers:
            self._send_frames(peer, answer)
        return message

    def _may_only_look(self, raw: Sequence[zmq.Frame]) -> bool:
        return bool(self.keys.watcher_public) and raw[0]["User-Id"] != self.keys.peer_public

    def _disconnect(self, peer: bytes, error: MessageTooLong) -> tuple[Message, list[Buffer]]:
        """Refuse a worker from here on: the results in that message are lost, and its calls are not
        to wait for them.
        """
        log.warning("worker %s is sent away: %s", peer.hex()[:8], error.message)
        self._send_frames(peer, self._sessions.pop(peer).unnumbered(encode(Refuse(error.message))))
        return Goodbye(error.message), []

    def _receive_hello(
        self, peer: bytes, frames: Sequence[Buffer]
    ) -> tuple[Message, list[Buffer]] | None:
        """Return the first message of a worker, once it is complete. One that sends another was
        forgotten, and is refused; or its dispatcher was another process.
        """
        session, since = self._greetings.pop(peer, (None, 0.0))
        # What is acknowledged would not come again, should this have to be dropped.
        session = session or Session(_PIECE, self._rest, holds=True, succeeds=True)
        before, content = session.received, None
        try:
            content, answers = session.receive(frames)
            message, buffers = decode(content) if content is not None else (Beat(), [])
        except MessageTooLong as error:
            answer = encode(Refuse(error.message))
        except ProtocolError:
            answer = self._refusal(content or ())
        else:
            if isinstance(message, self._greeting):
                self._sessions[peer] = session
                session.holds = self._holds
                if self._holds:
                    self._receipts[peer] = session.received
                else:
                    session.acknowledge(session.received)
                return message, buffers
            if self._epoch and session.received and isinstance(message, Beat):
                since = time.monotonic() if session.received > before else since
                self._greetings[peer] = session, since
                for one in (*answers, session.unnumbered(encode(Beat()))):
                    self._send_frames(peer, one)
                return None
            answer = self._refusal(content or ())
        self._send_frames(peer, Session(_PIECE).unnumbered(answer))
        return None

    def _refusal(self, content: Sequence[Buffer]) -> Frames:
        """Return the answer to a first message that is no greeting."""
        if self._epoch and foreign_greeting(content) is None:
            return encode(Rejoin(self._epoch))
        return _refusal(content)

    def _drop_greetings(self, before: float) -> None:
        """Forget those whose first message is not complete, and was not gone on with since then."""
        for peer in [peer for peer, (_, since) in self._greetings.items() if since < before]:
            del self._greetings[peer]

    def _send_frames(self, peer: bytes, frames: Frames) -> None:
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart([peer, *frames], zmq.NOBLOCK, copy=False)

    def close(self, linger_seconds: float = 0.5) -> None:
        """Close the socket, giving what is under way a moment. May be called twice."""
        if self._authenticator is not None and self._authenticator.is_alive():
            self._authenticator.stop()
        self._socket.close(linger=int(linger_seconds * 1000))
        self._context.term()


class Client:
    """A worker's connection: each message arrives once and in order, over reconnections. All
    methods are for one thread.
    """

    def __init__(
        self, connection: Connection | ClientConnection, worker_id: bytes | None = None
    ) -> None:
        self._context = zmq.Context()
        self._session = Session(_PIECE)
        self.epoch = self.introduced_to = 0
        """The number of the process that the dispatcher is, to be set when that has taken us in,
        and of the one that we have introduced ourselves to.
        """
        self.introduce: Callable[[], object] | None = None
        """Called when the dispatcher is another process, which does not know us: is to
        `begin_again`, and to send the first message, and again what was not `acknowledged`. None
        takes that for a refusal.
        """
        self._beat_seconds = connection.beat_seconds
        self._beat_at = self._introduced_at = 0.0
        self.sign_of_life: Callable[[], Message] = Beat
        """Makes what is sent each `beat_seconds`."""
        self.received_at = time.monotonic()
        try:
            self._address = self._first_to_answer(connection)
        except BaseException:
            self._context.term()
            raise
        self.socket = self._dealer(connection)
        self.socket.setsockopt(zmq.IDENTITY, worker_id or secrets.token_bytes(16))
        self.socket.connect(self._address)

    def _dealer(self, connection: Connection | ClientConnection) -> zmq.Socket[bytes]:
        end = self._context.socket(zmq.DEALER)
        _set_up(end)
        end.curve_serverkey = connection.server_key.encode()
        end.curve_publickey, end.curve_secretkey = map(str.encode, connection.pair)
        return end

    def _first_to_answer(self, connection: Connection | ClientConnection) -> str:
        """Return the address that shakes hands first, found with a socket of its own, so that the
        real one connects only once. When none has for a while, what was tried is logged: whoever
        waits for this worker gives it up before the lease is over.

        Raises:
            ConfigurationError: none did within the lease.
        """
        patience = min(connection.start_seconds / REPORTS, connection.lease_seconds)
        probe = self._dealer(connection)
        monitor = probe.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        try:
            for address in connection.addresses:
                probe.connect(address)
            if not monitor.poll(int(patience * 1000)):
                error = _no_answer(connection, patience)
                log.warning("%s; it tries on", error.message)
                if not monitor.poll(int((connection.lease_seconds - patience) * 1000)):
                    raise error
            # zmq.utils.monitor would import asyncio, a tenth of what a worker takes to start.
            _event, endpoint = monitor.recv_multipart()
            return endpoint.decode()
        finally:
            probe.disable_monitor()
            monitor.close(linger=0)
            probe.close(linger=0)

    def send(self, message: Message, buffers: Sequence[Buffer] = ()) -> None:
        """Send the dispatcher a message; never blocks."""
        for frames in self._session.number(encode(message, buffers)):
            self._send_frames(frames)

    def receive(self) -> list[tuple[Message, list[Buffer]]]:
        """Return all messages that have come.

        Raises:
            ProtocolError: the dispatcher sent something that is no message.
        """
        messages: list[tuple[Message, list[Buffer]]] = []
        while _is_readable(self.socket):
            frames = _frames(self.socket)
            self.received_at = time.monotonic()
            content, answers = self._session.receive(frames)
            for answer in answers:
                self._send_frames(answer)
            if content is not None:
                message, buffers = decode(content)
                if not isinstance(message, Beat):
                    messages.append((message, buffers))
        return messages

    def rejoin(self, message: Rejoin) -> bool:
        """Begin again with a dispatcher that does not know us; return whether it wants us: one that
        has answered us before has forgotten us since.

        What came before this message is to have been acted on, so that the first message says it.
        """
        if self.introduce is None or message.epoch == self.epoch:
            return False
        if message.epoch != self.introduced_to:
            self.introduced_to = message.epoch
            self.introduce()
        elif self.received_at - self._introduced_at > self._beat_seconds:
            self.send_again()  # the first message got lost
        else:
            return True
        self._introduced_at = self.received_at
        return True

    def begin_again(self) -> None:
        """Begin a new session, in which nothing was sent."""
        self._session = Session(_PIECE)

    def send_again(self) -> None:
        """Send again what was sent in this session and is not acknowledged; who has it drops it."""
        for frames in self._session.again():
            self._send_frames(frames)

    @property
    def sent(self) -> int:
        """A number that grows with what is sent."""
        return self._session.sent

    @property
    def acknowledged(self) -> int:
        """Up to which number the dispatcher has all for good."""
        return self._session.acknowledged

    def tick(self, now: float) -> float:
        """Send a sign of life when it is time, and return the seconds until the next."""
        if now >= self._beat_at:
            self._send_frames(self._session.unnumbered(encode(self.sign_of_life())))
            self._beat_at = now + self._beat_seconds
        return self._beat_at - now

    def acknowledge(self) -> None:
        """Have the next `tick` send a sign of life, by which the other end knows what has come."""
        self._beat_at = 0.0

    def _send_frames(self, frames: Frames) -> None:
        with contextlib.suppress(zmq.Again):
            self.socket.send_multipart(frames, zmq.NOBLOCK, copy=False)

    def move(self, addresses: Sequence[str]) -> None:
        """Connect to the first of these addresses that takes connections, in place of where this is
        connected to; if none does, or that is among them, do nothing.
        """
        if self._address in addresses:
            return
        for address in addresses:
            if not why_unreachable(address, _LOOK_SECONDS):
                self.socket.disconnect(self._address)
                self._address = address
                self.socket.connect(address)
                return

    def close(self, patience_seconds: float = _LOOK_SECONDS) -> bool:
        """Close the connection once the dispatcher has all that was sent, wants none of it, or is
        gone; or when it has been silent for so long. Return whether it has, or wants none.

        ZeroMQ's own linger is no help: it ends when the kernel has taken all, which drops that
        when the connection breaks, or when something comes meanwhile that nobody reads (RFC 1122,
        4.2.2.13).
        """
        try:
            return self._deliver(patience_seconds)
        finally:
            self.socket.close(linger=0)
            self._context.term()

    def _deliver(self, patience: float) -> bool:
        self._beat_at, self._beat_seconds = 0.0, _ASK_SECONDS  # the answers say what is there
        begun = looked = time.monotonic()
        while self._session.unacknowledged:
            now = time.monotonic()
            silence = now - max(begun, self.received_at)
            if silence >= patience:
                return False
            if min(silence, now - looked) >= _LOOK_SECONDS:
                if self.introduce is None and why_unreachable(self._address, _LOOK_SECONDS):
                    return False
                looked = now
            self.socket.poll(math.ceil(1000 * min(self.tick(now), patience - silence)))
            for message, _ in self.receive():
                if isinstance(message, Welcome | ChildrenWelcome):
                    self.epoch = message.epoch  # else we would come back when it has forgotten us
                elif isinstance(message, Refuse) or (
                    isinstance(message, Rejoin) and not self.rejoin(message)
                ):
                    return True
        return True


def _no_answer(connection: Connection | ClientConnection, seconds: float) -> ConfigurationError:
    """Return the error of a worker, or client, that no address of its dispatcher answers: what
    became of each in so many seconds.
    """
    each = seconds / len(connection.addresses)
    other = "who listens there is not the dispatcher, or it has other keys"
    tried = [
        f"{address} ({why_unreachable(address, each) or other})" for address in connection.addresses
    ]
    return ConfigurationError(
        f"the {connection.role} on {socket.gethostname()} gets no answer of its dispatcher: "
        f"{', '.join(tried)}",
        hint=connection.hint,
    )


def _refusal(content: Sequence[Buffer]) -> Frames:
    """Return the answer to a first message that cannot be taken."""
    foreign = foreign_greeting(content)
    if foreign is None:
        return encode(Refuse("this dispatcher does not know you, or no longer"))
    protocol, version = foreign
    reason = (
        f"gridengine {version} speaks protocol {protocol}, and its dispatcher, gridengine "
        f"{__version__}, speaks {VERSION}"
    )
    return in_protocol(protocol, encode(Refuse(reason, mismatch=True)))


def new_keys(*, watchers: bool = False) -> ServerKeys:
    """Return keys that nobody else has; with `watchers` also for who may only look."""
    server, peer, watcher = ([one.decode() for one in zmq.curve_keypair()] for _ in range(3))
    keys = ServerKeys(server[0], server[1], peer[0], peer[1])
    if not watchers:
        return keys
    return msgspec.structs.replace(keys, watcher_public=watcher[0], watcher_secret=watcher[1])


class _PeersKeys:
    """The credentials provider of a server: the public keys of those who may connect, no others."""

    def __init__(self, keys: ServerKeys) -> None:
        self._keys = [one.encode() for one in (keys.peer_public, keys.watcher_public) if one]

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether this client's key (in Z85) is one of them."""
        return any(secrets.compare_digest(key, one) for one in self._keys)


def _set_up(end: zmq.Socket[bytes]) -> None:
    for option, value in _OPTIONS:
        end.setsockopt(option, value)


def _is_readable(end: zmq.Socket[bytes]) -> bool:
    """Return whether there is something to receive: to be told so by an exception takes longer."""
    return bool(int(end.getsockopt(zmq.EVENTS)) & _READABLE)


def _frames(end: zmq.Socket[bytes]) -> list[Buffer]:
    """Receive one message without waiting."""
    return _buffers(end.recv_multipart(zmq.NOBLOCK, copy=False))


def _buffers(raw: Sequence[zmq.Frame]) -> list[Buffer]:
    """Return frames as buffers; large ones are views of ZeroMQ's memory, not copies."""
    return [frame.buffer if len(frame) > 16_384 else frame.bytes for frame in raw]


def own_addresses() -> list[str]:
    """Return the addresses of this machine that another may reach it at, the host name's first;
    loopback only when there is no other.
    """
    import psutil

    found = [
        entry.address.split("%")[0]
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
        and not entry.address.lower().startswith("fe80")
    ]
    outer = [
        address
        for address in dict.fromkeys(found)
        if not (address.startswith("127.") or address == "::1")
    ]
    return [*sorted(outer, key=lambda address: ":" in address), "127.0.0.1"]


def resolve(host: str) -> None:
    """Check that a host's name or address resolves here.

    Raises:
        ConfigurationError: it does not.
    """
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:  # the latter of what can be no name, as "a..b"
        from gridengine.settings.values import said_by  # here, since workers read no settings

        raise ConfigurationError(
            f"host {host!r} (said by {said_by('host')}) does not resolve: {error}",
            hint="set GRIDENGINE_HOST to an address of this machine",
        ) from None
