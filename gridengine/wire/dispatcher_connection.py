"""The end of a connection that a worker or client has to its dispatcher: a DEALER socket of ZeroMQ.

ZeroMQ reconnects by itself but loses the messages that were under way when a connection broke. A
`Session` at each end sends them again.
"""

from __future__ import annotations

import logging
import math
import secrets
import socket
from collections.abc import Callable, Sequence

import zmq

from gridengine.errors import ConfigurationError
from gridengine.serialize.payload import Buffer
from gridengine.wire.block_socket import BlockSocket, connect
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ClientConnection, Connection, why_unreachable
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import Beat, ClientWelcome, Message, Refuse, Rejoin, Welcome
from gridengine.wire.session import Session
from gridengine.wire.sockets import PIECE, PolledSocket, buffers_of

log = logging.getLogger("gridengine")

_ASK_SECONDS, _LOOK_SECONDS = 0.5, 2.0
"""Two intervals while a worker closes. It sends a beat every `_ASK_SECONDS`, and the answers
acknowledge what has arrived. After `_LOOK_SECONDS` of silence it checks whether the dispatcher's
port still accepts connections.
"""
REPORTS = 6
"""A worker that cannot connect logs the reason after this fraction (one sixth) of `start_seconds`,
and finding the reason takes at most as long again. The dispatcher gives the worker up only after
that.
"""


class DispatcherConnection:
    """A worker's or client's connection to its dispatcher. Each message arrives once and in order,
    even over reconnections. All methods are for one thread.
    """

    def __init__(
        self,
        connection: Connection | ClientConnection,
        worker_id: bytes | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._context = zmq.Context()
        self._session = Session(PIECE)
        self.epoch = self.introduced_to = 0
        """`epoch` is the epoch of the dispatcher that accepted this end; the owner sets it.
        `introduced_to` is the epoch that was last sent a first message.
        """
        self.introduce: Callable[[], object] | None = None
        """Called when the dispatcher was started again and does not know this end. It must call
        `begin_again`, send the first message, and send again all messages that were not
        `acknowledged`. With None, an unknown dispatcher counts as a refusal.
        """
        self._beat_seconds = connection.beat_seconds
        self._beat_at = self._introduced_at = 0.0
        self.sign_of_life: Callable[[], Message] = Beat
        """Makes the message that is sent every `beat_seconds`."""
        self.received_at = self._clock.monotonic()
        try:
            self._address = self._first_to_answer(connection)
        except BaseException:
            self._context.term()
            raise
        self._polled = self._dealer(connection)
        self._send_frames = self._polled.send
        self.fd = self._polled.fd
        """The descriptor to wait for, see `PolledSocket`. Ask `pending` before each wait."""
        self._server_key = connection.server_key
        self._identity = worker_id or secrets.token_bytes(16)
        self._has_blocks = connection.role == "client"
        self._blocks: BlockSocket | None = None
        self._connect_blocks()
        self.socket.setsockopt(zmq.IDENTITY, self._identity)
        self.socket.connect(self._address)

    def _dealer(self, connection: Connection | ClientConnection) -> PolledSocket:
        polled = PolledSocket(self._context.socket(zmq.DEALER))
        polled.socket.curve_serverkey = connection.server_key.encode()
        keys = map(str.encode, connection.pair)
        polled.socket.curve_publickey, polled.socket.curve_secretkey = keys
        return polled

    def _connect_blocks(self) -> None:
        """Connect for large buffers, if the dispatcher is here. Before each first message, by which
        the dispatcher notices it.
        """
        if self._blocks is not None:
            self._blocks.close()
        if self._has_blocks:
            self._blocks = connect(self._server_key, self._identity)

    @property
    def socket(self) -> zmq.Socket[bytes]:
        """The underlying ZeroMQ socket."""
        return self._polled.socket

    @property
    def pending(self) -> bool:
        """Whether a message can be received now."""
        return self._polled.pending

    def _first_to_answer(self, connection: Connection | ClientConnection) -> str:
        """Return the first address that completes the CURVE handshake. A socket of its own probes
        all addresses, so that the real socket connects only once; a single address is probed too,
        so that there is one way to connect. When no address has answered after `patience`, the
        attempts are logged: the dispatcher gives this worker up before its lease is over.

        Raises:
            ConfigurationError: no address answered within the lease.
        """
        patience = min(connection.start_seconds / REPORTS, connection.lease_seconds)
        probe = self._dealer(connection).socket
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
        """Send the dispatcher a message. Never blocks."""
        put = None if self._blocks is None else self._blocks.put
        for frames in self._session.number(encode(message, buffers, put)):
            self._send_frames(frames)

    def receive(self) -> list[tuple[Message, list[Buffer]]]:
        """Return all messages that have arrived.

        Raises:
            ProtocolError: the dispatcher sent frames that are not a message.
        """
        messages: list[tuple[Message, list[Buffer]]] = []
        while frames := self._polled.receive():
            self.received_at = self._clock.monotonic()
            content, answers = self._session.receive(buffers_of(frames))
            for answer in answers:
                self._send_frames(answer)
            if content is not None:
                take = None if self._blocks is None else self._blocks.take
                message, buffers = decode(content, take)
                if not isinstance(message, Beat):
                    messages.append((message, buffers))
        return messages

    def rejoin(self, message: Rejoin) -> bool:
        """Introduce this end to a dispatcher of another epoch. Return False when that dispatcher
        does not want it: it had accepted this end and has forgotten it since.

        All messages that were received before this one must have been handled, because the first
        message reports the state that they led to.
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
        """Begin a new, empty session."""
        self._session = Session(PIECE)
        self._connect_blocks()

    def send_again(self) -> None:
        """Send all unacknowledged messages of this session again; the receiver drops duplicates."""
        for frames in self._session.again():
            self._send_frames(frames)

    @property
    def sent(self) -> int:
        """The number of the last message sent in this session."""
        return self._session.sent

    @property
    def acknowledged(self) -> int:
        """The number up to which the dispatcher has acknowledged all messages."""
        return self._session.acknowledged

    def tick(self, now: float) -> float:
        """Send a sign of life when it is due, and return the seconds until the next one."""
        if now >= self._beat_at:
            self._send_frames(self._session.unnumbered(encode(self.sign_of_life())))
            self._beat_at = now + self._beat_seconds
        return self._beat_at - now

    def acknowledge(self) -> None:
        """Make the next `tick` send a sign of life, which acknowledges all received messages."""
        self._beat_at = 0.0

    def move(self, addresses: Sequence[str]) -> None:
        """Connect to the first of these addresses that accepts connections, in place of the current
        address. Do nothing when none accepts, or when the current address is among them.
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
        """Close the connection when the dispatcher has acknowledged all messages, refuses them, or
        is gone; or after this much silence. Return whether it acknowledged or refused them.

        ZeroMQ's linger does not serve: it ends when the kernel has taken the data. The data is lost
        when the connection breaks after that, or when a message arrives meanwhile that nobody reads
        (RFC 1122, 4.2.2.13).
        """
        try:
            return self._deliver(patience_seconds)
        finally:
            if self._blocks is not None:
                self._blocks.close()
            self.socket.close(linger=0)
            self._context.term()

    def _deliver(self, patience: float) -> bool:
        self._beat_at, self._beat_seconds = 0.0, _ASK_SECONDS  # answers acknowledge what arrived
        begun = looked = self._clock.monotonic()
        while self._session.unacknowledged:
            now = self._clock.monotonic()
            silence = now - max(begun, self.received_at)
            if silence >= patience:
                return False
            if min(silence, now - looked) >= _LOOK_SECONDS:
                if self.introduce is None and why_unreachable(self._address, _LOOK_SECONDS):
                    return False
                looked = now
            self.socket.poll(math.ceil(1000 * min(self.tick(now), patience - silence)))
            for message, _ in self.receive():
                if isinstance(message, Welcome | ClientWelcome):
                    # A worker that waits here may be accepted by a new process meanwhile, which
                    # forgets it as it leaves. Without this it would introduce itself for ever.
                    self.epoch = message.epoch
                elif isinstance(message, Refuse) or (
                    isinstance(message, Rejoin) and not self.rejoin(message)
                ):
                    return True
        return True


def _no_answer(connection: Connection | ClientConnection, seconds: float) -> ConfigurationError:
    """Return the error of a worker or client whose dispatcher answers at no address. It says for
    each address why; the checks together take at most this many seconds.
    """
    each = seconds / len(connection.addresses)
    other = "the program that listens there is not the dispatcher, or has other keys"
    tried = [
        f"{address} ({why_unreachable(address, each) or other})" for address in connection.addresses
    ]
    return ConfigurationError(
        f"the {connection.role} on {socket.gethostname()} gets no answer of its dispatcher: "
        f"{', '.join(tried)}",
        hint=connection.hint,
    )
