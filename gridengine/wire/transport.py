"""Messages over an authenticated ZeroMQ socket: `Server` (ROUTER) for a dispatcher, `Client`
(DEALER) for a worker.

ZeroMQ reconnects by itself but loses what was under way when a connection broke: a `Session` at
each end sends that again.

Every connection is CURVE with both keys checked (RFC 26, and RFC 27 for the check of the client's).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import zmq

from gridengine.errors import UNREACHABLE, ConfigurationError, MessageTooLong, ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.wire.connection_file import Connection, why_unreachable
from gridengine.wire.framing import decode, encode, rest_of
from gridengine.wire.messages import Beat, Goodbye, Hello, Message, Refuse
from gridengine.wire.open_files import allow_open_files
from gridengine.wire.session import Frames, Session

if TYPE_CHECKING:
    from zmq.auth.thread import ThreadAuthenticator

log = logging.getLogger("gridengine")

_PIECE = 256 * 1024
_HANDSHAKE_SECONDS = 10
_BACKLOG = 4096
"""How many connections may wait to be accepted: all workers of a cluster may start at once, and one
that the kernel refuses is tried again a second later.
"""
_FILES_FOR_HANDSHAKES = 2048
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

    Raises:
        ConfigurationError: no address to listen at, `host` does not resolve, or too few files may
        be open for so many workers.
    """

    def __init__(self, *, host: str = "", workers: int = 1) -> None:
        allow_open_files(workers, handshakes=_FILES_FOR_HANDSHAKES)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._sessions: dict[bytes, Session] = {}
        self._authenticator: ThreadAuthenticator | None = None
        self._rest = partial(rest_of, most=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self.server_key = self.worker_public = self.worker_secret = ""
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
        public, secret = zmq.curve_keypair()
        worker_public, worker_secret = zmq.curve_keypair()
        # Here, as psutil below: they take long to import, and workers need none.
        from zmq.auth.thread import ThreadAuthenticator

        # It tells of each connection with its key: a logger of its own keeps that from who wants
        # to see what a run does.
        quiet = log.getChild("authentication")
        quiet.setLevel(quiet.level or logging.WARNING)
        self._authenticator = ThreadAuthenticator(self._context, log=quiet)
        self._authenticator.start()
        self._authenticator.configure_curve_callback("*", _WorkersKey(worker_public))
        self._socket.curve_server = True
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_SECONDS * 1000)
        self._socket.setsockopt(zmq.BACKLOG, _BACKLOG)
        self._socket.curve_secretkey, self._socket.curve_publickey = secret, public
        port = self._socket.bind_to_random_port("tcp://*")
        self.server_key, self.worker_public, self.worker_secret = (
            public.decode(),
            worker_public.decode(),
            worker_secret.decode(),
        )
        return tuple(f"tcp://{f'[{name}]' if ':' in name else name}:{port}" for name in names)

    def poller(self) -> zmq.Poller:
        """Return what wakes when there is something to receive; more may be registered."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        return poller

    def patience(self, now: float) -> float:
        """Return after how many seconds to call `receive` even if the poller does not wake."""
        return 3600.0

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

    def forget(self, peer: bytes) -> None:
        """Drop what is kept for a worker; should it come back it is refused."""
        self._sessions.pop(peer, None)

    def receive(self, most: int = 1000) -> Iterator[tuple[bytes, Message, list[Buffer]]]:
        """Yield at most `most` messages that have come, each with its sender; malformed ones are
        logged and dropped.

        What a known worker sends and is no message yet, such as a piece of one, is yielded as a
        `Beat`: it is a sign of life. One whose message is too long is forgotten, and its `Goodbye`
        is yielded.
        """
        for _ in range(most):
            try:
                peer, *frames = _frames(self._socket)
            except zmq.Again:
                return
            sender = bytes(peer)
            try:
                taken = self._decode(sender, frames)
            except MessageTooLong as error:
                taken = self._disconnect(sender, error)
            except ProtocolError as error:
                log.warning(
                    "dropped a malformed message of worker %s: %s", sender.hex()[:8], error.message
                )
                continue
            if taken is not None:
                yield sender, *taken

    def _decode(self, peer: bytes, frames: Sequence[Buffer]) -> tuple[Message, list[Buffer]] | None:
        session = self._sessions.get(peer)
        if session is None:
            return self._receive_hello(peer, frames)
        content, answers = session.receive(frames)
        message = decode(content) if content is not None else (Beat(), [])
        if isinstance(message[0], Goodbye):  # who takes leave waits to hear that all is here
            answers.append(session.unnumbered(encode(Beat())))
        for answer in answers:
            self._send_frames(peer, answer)
        return message

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
        """Return the first message of a worker. One that sends another was forgotten, and is
        refused.
        """
        session = Session(_PIECE, self._rest)
        with contextlib.suppress(ProtocolError):
            content, _ = session.receive(frames)
            message = decode(content) if content is not None else None
            if message is not None and isinstance(message[0], Hello):
                self._sessions[peer] = session
                return message
        refusal = Refuse("this dispatcher does not know you, or no longer")
        self._send_frames(peer, Session(_PIECE).unnumbered(encode(refusal)))
        return None

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

    def __init__(self, connection: Connection, worker_id: bytes | None = None) -> None:
        self._context = zmq.Context()
        self._session = Session(_PIECE)
        self._beat_seconds = connection.beat_seconds
        self._beat_at = 0.0
        self.received_at = time.monotonic()
        try:
            self._address = self._first_to_answer(connection)
        except BaseException:
            self._context.term()
            raise
        self.socket = self._dealer(connection)
        self.socket.setsockopt(zmq.IDENTITY, worker_id or secrets.token_bytes(16))
        self.socket.connect(self._address)

    def _dealer(self, connection: Connection) -> zmq.Socket[bytes]:
        end = self._context.socket(zmq.DEALER)
        _set_up(end)
        end.curve_serverkey = connection.server_key.encode()
        end.curve_publickey = connection.worker_public.encode()
        end.curve_secretkey = connection.worker_secret.encode()
        return end

    def _first_to_answer(self, connection: Connection) -> str:
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
        while True:
            try:
                frames = _frames(self.socket)
            except zmq.Again:
                return messages
            self.received_at = time.monotonic()
            content, answers = self._session.receive(frames)
            for answer in answers:
                self._send_frames(answer)
            if content is not None:
                message, buffers = decode(content)
                if not isinstance(message, Beat):
                    messages.append((message, buffers))

    def tick(self, now: float) -> float:
        """Send a sign of life when it is time, and return the seconds until the next."""
        if now >= self._beat_at:
            self._send_frames(self._session.unnumbered(encode(Beat())))
            self._beat_at = now + self._beat_seconds
        return self._beat_at - now

    def _send_frames(self, frames: Frames) -> None:
        with contextlib.suppress(zmq.Again):
            self.socket.send_multipart(frames, zmq.NOBLOCK, copy=False)

    def close(self, patience_seconds: float = _LOOK_SECONDS) -> None:
        """Close the connection once the dispatcher has all that was sent, wants none of it, or is
        gone; or when it has been silent for so long.

        ZeroMQ's own linger is no help: it ends when the kernel has taken all, which drops that
        when the connection breaks, or when something comes meanwhile that nobody reads (RFC 1122,
        4.2.2.13).
        """
        try:
            self._deliver(patience_seconds)
        finally:
            self.socket.close(linger=0)
            self._context.term()

    def _deliver(self, patience: float) -> None:
        self._beat_at, self._beat_seconds = 0.0, _ASK_SECONDS  # the answers say what is there
        begun = looked = time.monotonic()
        while self._session.unacknowledged:
            now = time.monotonic()
            silence = now - max(begun, self.received_at)
            if silence >= patience:
                return
            if min(silence, now - looked) >= _LOOK_SECONDS:
                if why_unreachable(self._address, _LOOK_SECONDS):
                    return
                looked = now
            self.socket.poll(math.ceil(1000 * min(self.tick(now), patience - silence)))
            if any(isinstance(message, Refuse) for message, _ in self.receive()):
                return


def _no_answer(connection: Connection, seconds: float) -> ConfigurationError:
    """Return the error of a worker that no address of its dispatcher answers: what became of each
    in so many seconds.
    """
    each = seconds / len(connection.addresses)
    tried = [
        f"{address} ({why_unreachable(address, each) or 'who listens there is not the dispatcher'})"
        for address in connection.addresses
    ]
    return ConfigurationError(
        f"the worker on {socket.gethostname()} gets no answer of its dispatcher: "
        f"{', '.join(tried)}",
        hint=UNREACHABLE,
    )


class _WorkersKey:
    """The credentials provider of a run: its workers' one public key and no other."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether this client's key (in Z85) is the workers'."""
        return secrets.compare_digest(key, self._key)


def _set_up(end: zmq.Socket[bytes]) -> None:
    for option, value in _OPTIONS:
        end.setsockopt(option, value)


def _frames(end: zmq.Socket[bytes]) -> list[Buffer]:
    """Receive one message without waiting; large frames are views of ZeroMQ's memory, not
    copies.
    """
    return [
        frame.buffer if len(frame) > 16_384 else frame.bytes
        for frame in end.recv_multipart(zmq.NOBLOCK, copy=False)
    ]


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
