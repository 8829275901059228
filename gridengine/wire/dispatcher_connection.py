"""The end of a worker's or client's connection to its dispatcher over TCP: a DEALER socket of
ZeroMQ.

ZeroMQ reconnects by itself but loses the messages that were under way when a connection broke. A
`Session` at each end sends them again.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence

import zmq

from gridengine.display import log
from gridengine.errors import ConfigurationError
from gridengine.system.polling import READABLE, Polling
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ClientConnection, Connection, why_unreachable
from gridengine.wire.session import IDENTITY_BYTES, Frames
from gridengine.wire.session_client import LOOK_SECONDS, SessionClient
from gridengine.wire.sockets import PolledSocket, buffers_of

REPORTS = 6
"""A worker that cannot connect logs the reason after this fraction (one sixth) of `start_seconds`,
and finding the reason takes at most as long again. The dispatcher gives the worker up only after
that.
"""

_OPTIONS = ((zmq.HEARTBEAT_IVL, 5_000), (zmq.HEARTBEAT_TIMEOUT, 10_000))
"""ZeroMQ asks the dispatcher's end each five seconds whether it is there, and connects again when
nothing comes for ten.
"""
_ACCEPTED, _PROVED = int(zmq.EVENT_CONNECTED), int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_REJECTED = int(
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
)
_FIRST_HANDSHAKE_SECONDS = 2.0
"""How long an address has for the first handshake; twice as long for the next, and so on, since the
dispatcher may be busy.
"""


class DispatcherConnection(SessionClient):
    """A worker's or client's connection to its dispatcher over TCP, which ZeroMQ makes again when
    it breaks. All methods are for one thread.
    """

    def __init__(
        self,
        connection: Connection | ClientConnection,
        worker_id: bytes | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(connection.beat_seconds, clock)
        self._context = zmq.Context()
        self._polled = PolledSocket(self._context.socket(zmq.DEALER))
        self.fd = self._polled.fd
        self._server_key = connection.server_key
        self._identity = worker_id or os.urandom(IDENTITY_BYTES)
        self._watched: Polling | None = None
        """Polls for the sockets of a client; None for a worker."""
        self._came: deque[Frames] = deque()
        """Envelopes that were read from the local connection together."""
        if connection.role == "client":
            self._watched = Polling()
            self._watched.register(self.fd, READABLE)
            self.fd = self._watched.fileno()
        self.socket.curve_serverkey = connection.server_key.encode()
        keys = map(str.encode, connection.pair)
        self.socket.curve_publickey, self.socket.curve_secretkey = keys
        for option, value in _OPTIONS:
            self.socket.setsockopt(option, value)
        self.socket.setsockopt(zmq.IDENTITY, self._identity)
        try:
            self._address = self._connect(connection)
        except BaseException:
            self._close()
            raise
        self._connect_locally()

    def _connect_locally(self) -> None:
        if self._watched is not None:
            from gridengine.wire.local_connection import connect  # workers have none

            if self._local is not None:
                self._local.close()
            self._local = connect(self._server_key, self._identity, self._watched)

    @property
    def socket(self) -> zmq.Socket[bytes]:
        """The underlying ZeroMQ socket."""
        return self._polled.socket

    @property
    def pending(self) -> bool:
        return not self._polled.is_quiet and self._polled.pending

    def _next(self) -> Frames:
        local = self._local
        if not self._came and local is not None and not local.has_ended():
            self._came += local.receive()
            if local.has_ended():
                self.acknowledge()  # the dispatcher sees by that what it must send again, by TCP
        return self._came.popleft() if self._came else buffers_of(self._polled.receive())

    def _send_frames(self, frames: Frames) -> None:
        if self._local is not None and self._local.is_open:
            self._local.send(frames)
        else:
            self._polled.send(frames)

    def _is_away(self) -> bool:
        return bool(why_unreachable(self._address, LOOK_SECONDS))

    def _close(self) -> None:
        """Close the socket at once.

        ZeroMQ's linger does not serve: it ends when the kernel has taken the data. The data is lost
        when the connection breaks after that, or when a message arrives meanwhile that nobody reads
        (RFC 1122, 4.2.2.13).
        """
        if self._watched is not None:
            self._watched.close()
        self.socket.close(linger=0)
        self._context.term()

    def _connect(self, connection: Connection | ClientConnection) -> str:
        """Connect to the first address that completes the CURVE handshake, and return it. When no
        address has answered after `patience`, the attempts are logged: the dispatcher gives this
        worker up before its lease is over.

        Raises:
            ConfigurationError: no address answered within the lease.
        """
        patience = min(connection.start_seconds / REPORTS, connection.lease_seconds)
        addresses, rest = connection.addresses, connection.lease_seconds - patience
        with _watching(self.socket, _PROVED | _REJECTED) as events:
            address = self._first_to_answer(addresses, patience, events)
            if not address:
                error = _no_answer(connection, patience)
                log().warning("%s; it tries on", error.message)
                address = self._first_to_answer(addresses, rest, events)
                if not address:
                    raise error
        return address

    def _first_to_answer(
        self, addresses: Sequence[str], seconds: float, events: zmq.Socket[bytes]
    ) -> str:
        """Try the addresses one after the other in the order in which they accept connections, and
        return the one that the socket is connected to; empty when none answers in time.

        The socket is connected to one address at a time, since the dispatcher would send to the
        last connection alone. A probe of all addresses goes without handshakes, which take the
        dispatcher a third of a millisecond each: ten thousand workers may come at once.
        """
        deadline, each = time.monotonic() + seconds, _FIRST_HANDSHAKE_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            for address in self._accepting(addresses, min(each, left)):
                if self._answers(address, min(each, left), events):
                    return address
            each *= 2
        return ""

    def _accepting(self, addresses: Sequence[str], seconds: float) -> Iterator[str]:
        """Yield addresses as they accept a connection that goes no further."""
        deadline = time.monotonic() + seconds
        with self._context.socket(zmq.DEALER) as probe, _watching(probe, _ACCEPTED) as events:
            probe.linger = 0
            probe.setsockopt(zmq.IPV6, 1)
            for address in addresses:
                probe.connect(address)
            while events.poll(max(0, math.ceil(1000 * (deadline - time.monotonic())))):
                yield events.recv_multipart()[1].decode()

    def _answers(self, address: str, seconds: float, events: zmq.Socket[bytes]) -> bool:
        """Connect to an address, and return whether the dispatcher there proves its key in time; if
        not, disconnect.
        """
        while events.poll(0):
            events.recv_multipart()  # of another address
        self.socket.connect(address)
        if events.poll(math.ceil(1000 * seconds)):
            # zmq.utils.monitor would import asyncio, a tenth of what a worker takes to start.
            about, endpoint = events.recv_multipart()
            if struct.unpack("=H", about[:2]) == (_PROVED,) and endpoint.decode() == address:
                return True
        self.socket.disconnect(address)
        return False

    def move(self, addresses: Sequence[str]) -> None:
        """Connect to the first of these addresses that accepts connections, in place of the current
        address. Do nothing when none accepts, or when the current address is among them.
        """
        if self._address in addresses:
            return
        for address in addresses:
            if not why_unreachable(address, LOOK_SECONDS):
                if self._local is not None:
                    self._local.end()
                self.socket.disconnect(self._address)
                self._address = address
                self.socket.connect(address)
                return


@contextlib.contextmanager
def _watching(socket: zmq.Socket[bytes], events: int) -> Iterator[zmq.Socket[bytes]]:
    """Return a socket that tells of these events of a socket."""
    monitor = socket.get_monitor_socket(events)
    try:
        yield monitor
    finally:
        socket.disable_monitor()
        monitor.close(linger=0)


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
