"""A worker's, or client's, end of its connection to a dispatcher: a DEALER socket of ZeroMQ.

ZeroMQ reconnects by itself but loses what was under way when a connection broke: a `Session` at
each end sends that again.
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
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ClientConnection, Connection, why_unreachable
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import Beat, ChildrenWelcome, Message, Refuse, Rejoin, Welcome
from gridengine.wire.session import Session
from gridengine.wire.sockets import PIECE, PolledSocket, buffers_of

log = logging.getLogger("gridengine")

_ASK_SECONDS, _LOOK_SECONDS = 0.5, 2.0
"""How often a worker that is about to close asks how much of what it has sent is there, and after
how much silence it looks whether anybody listens.
"""
REPORTS = 6
"""After which part of the time that a worker has to connect it sees what keeps it from that, and
tells after as long again at most.
"""


class Client:
    """A worker's connection: each message arrives once and in order, over reconnections. All
    methods are for one thread.
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
        self.received_at = self._clock.monotonic()
        try:
            self._address = self._first_to_answer(connection)
        except BaseException:
            self._context.term()
            raise
        self._polled = self._dealer(connection)
        self._send_frames = self._polled.send
        self.fd = self._polled.fd
        """What to wait for, see `PolledSocket`; `pending` is to be asked before each wait."""
        self.socket.setsockopt(zmq.IDENTITY, worker_id or secrets.token_bytes(16))
        self.socket.connect(self._address)

    def _dealer(self, connection: Connection | ClientConnection) -> PolledSocket:
        polled = PolledSocket(self._context.socket(zmq.DEALER))
        polled.socket.curve_serverkey = connection.server_key.encode()
        keys = map(str.encode, connection.pair)
        polled.socket.curve_publickey, polled.socket.curve_secretkey = keys
        return polled

    @property
    def socket(self) -> zmq.Socket[bytes]:
        """ZeroMQ's own."""
        return self._polled.socket

    @property
    def pending(self) -> bool:
        """Whether there is something to receive now."""
        return self._polled.pending

    def _first_to_answer(self, connection: Connection | ClientConnection) -> str:
        """Return the address that shakes hands first, found with a socket of its own, so that the
        real one connects only once. When none has for a while, what was tried is logged: whoever
        waits for this worker gives it up before the lease is over.

        Raises:
            ConfigurationError: none did within the lease.
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
        """Send the dispatcher a message; never blocks."""
        for frames in self._session.number(encode(message, buffers)):
            self._send_frames(frames)

    def receive(self) -> list[tuple[Message, list[Buffer]]]:
        """Return all messages that have come.

        Raises:
            ProtocolError: the dispatcher sent something that is no message.
        """
        messages: list[tuple[Message, list[Buffer]]] = []
        while frames := self._polled.receive():
            self.received_at = self._clock.monotonic()
            content, answers = self._session.receive(buffers_of(frames))
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
        self._session = Session(PIECE)

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
