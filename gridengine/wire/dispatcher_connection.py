"""The end of a worker's or client's connection to its dispatcher over TCP: a DEALER socket of
ZeroMQ.

ZeroMQ reconnects by itself but loses the messages that were under way when a connection broke. A
`Session` at each end sends them again.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Sequence

import zmq

from gridengine.errors import ConfigurationError
from gridengine.system.polling import READABLE, Polling
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ClientConnection, Connection, why_unreachable
from gridengine.wire.local_connection import IDENTITY_BYTES, connect
from gridengine.wire.session import Frames
from gridengine.wire.session_client import LOOK_SECONDS, SessionClient
from gridengine.wire.sockets import PolledSocket, buffers_of

log = logging.getLogger("gridengine")

REPORTS = 6
"""A worker that cannot connect logs the reason after this fraction (one sixth) of `start_seconds`,
and finding the reason takes at most as long again. The dispatcher gives the worker up only after
that.
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
        try:
            self._address = self._first_to_answer(connection)
        except BaseException:
            self._context.term()
            raise
        self._polled = self._dealer(connection)
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
        self._connect_locally()
        self.socket.setsockopt(zmq.IDENTITY, self._identity)
        self.socket.connect(self._address)

    def _dealer(self, connection: Connection | ClientConnection) -> PolledSocket:
        polled = PolledSocket(self._context.socket(zmq.DEALER))
        polled.socket.curve_serverkey = connection.server_key.encode()
        keys = map(str.encode, connection.pair)
        polled.socket.curve_publickey, polled.socket.curve_secretkey = keys
        return polled

    def _connect_locally(self) -> None:
        if self._watched is not None:
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
