"""A dispatcher's end of its connections over TCP, a ROUTER socket of ZeroMQ, and the addresses and
ports at which it listens.

Every connection is CURVE with both keys checked (RFC 26, and RFC 27 for the check of the client's
key). CURVE without the check of the client's key would encrypt for anybody.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence

import msgspec
import zmq

from gridengine.errors import ConfigurationError
from gridengine.serialize.payload import Buffer
from gridengine.settings.values import said_by
from gridengine.system.machine import first_own_port
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.local_connection import LocalClients
from gridengine.wire.messages import ClientHello, Hello, Message
from gridengine.wire.processes import allow_open_files
from gridengine.wire.session import Frames
from gridengine.wire.session_server import SessionServer
from gridengine.wire.sockets import (
    KeyCheck,
    PolledSocket,
    bind_to_any,
    buffers_of,
    new_keys,
    secure,
    tcp_addresses,
)

_BACKLOG = 4096
"""How many connections may wait to be accepted. All workers of a cluster may start at once, and a
connection that the kernel refuses is tried again only a second later.
"""
_FILES_FOR_HANDSHAKES = 2048
_ZERO_COPY_RECV = 10
"""An option of contexts that pyzmq has no name for (libzmq's zmq_draft.h)."""
_BIND_SECONDS, _BIND_PAUSE_SECONDS = 2.0, 0.1


class Server(SessionServer):
    """A dispatcher's socket. All methods are for one thread.

    Args:
        host: the one address or name that workers get; empty for every address of this machine.
        workers: how many workers will be connected at a time, at most.
        keys: the keys and port to use (default: new keys, and any port).
        greeting: the type of a peer's first message.
        ports: the ports to choose from when `keys` names none (default: any).
        epoch: the epoch of this dispatcher. Unknown peers are asked to rejoin, and a new port is
            one of `lasting_ports`. With 0 the dispatcher has no predecessor, and unknown peers are
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
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(keys or new_keys(), greeting, epoch, clock)
        allow_open_files(workers, handshakes=_FILES_FOR_HANDSHAKES)
        self._context = zmq.Context()
        # Each message is copied out of ZeroMQ's reading buffer of 18 KB, which would otherwise stay
        # until all messages in it have been read: 0.8 MB a peer for a hundred unread beats.
        with contextlib.suppress(zmq.ZMQError):  # some libzmq has no such option
            self._context.set(_ZERO_COPY_RECV, 0)
        self._polled = PolledSocket(self._context.socket(zmq.ROUTER))
        self._socket = self._polled.socket
        self.fd = self._polled.fd
        """The descriptor to wait for, see `PolledSocket`. Ask `pending` before each wait."""
        self._ports = ports
        try:
            # Who connects again takes the place of the old connection, which may seem alive.
            self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
            self.addresses = self._listen_on_tcp(host)
            if greeting is ClientHello:  # after the port: an earlier process had both
                self._local = LocalClients(self.keys.public, self.fd)
                self.fd = self._local.fd
        except BaseException:
            self.close()
            raise

    def _listen_on_tcp(self, host: str) -> tuple[str, ...]:
        if host:
            resolve(host)
        KeyCheck(self._context, self.keys)
        secure(self._socket, self.keys)
        self._socket.setsockopt(zmq.BACKLOG, _BACKLOG)
        return tuple(tcp_addresses(self._bind(), host))

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
                time.sleep(_BIND_PAUSE_SECONDS)  # the process that had the port may be ending
        else:
            port = bind_to_any(
                self._socket, self._ports or (lasting_ports() if self._epoch else ())
            )
            self.keys = msgspec.structs.replace(self.keys, port=port)
        return port

    def open(self) -> None:
        """Do nothing: it listens from the beginning, because its port is written to a file."""

    @property
    def pending(self) -> bool:
        return not self._polled.is_quiet and self._polled.pending

    def _may_only_look(self, raw: Sequence[zmq.Frame]) -> bool:
        return bool(self.keys.watcher_public) and raw[0]["User-Id"] != self.keys.peer_public

    def _arrived(self, most: int) -> Iterator[tuple[bytes, Sequence[Buffer], Sequence[zmq.Frame]]]:
        if self._local is not None:
            ready = self._local.poll()
            for peer, frames in self._local.receive(ready, most):
                yield peer, frames, ()
            if self._polled.fd not in ready and not self.pending:
                return
        for _ in range(most):
            raw = self._polled.receive()
            if not raw:
                return
            yield raw[0].bytes, buffers_of(raw[1:]), raw[1:]

    def _send_frames(self, peer: bytes, frames: Frames) -> None:
        local = self._local_to(peer)
        if local is None:
            self._polled.send([peer, *frames])
        else:
            local.send(frames)

    def close(self, linger_seconds: float = 0.5) -> None:
        """Close the socket, and give messages that are under way a moment. May be called twice."""
        if self._local is not None:
            self._local.close()
        self._socket.close(linger=int(linger_seconds * 1000))
        self._context.term()


def lasting_ports(count: int = 100) -> list[int]:
    """Return random ports below the range that the kernel assigns by itself. Such a port is most
    likely free again when a dispatcher is started again. Empty when the kernel's range begins at
    1024.
    """
    import random  # here: only stand-alone dispatchers need it, and everybody would wait for it

    first = first_own_port()
    ports = range(max(1024, first // 2), first)
    return random.sample(ports, min(count, len(ports)))


def resolve(host: str) -> None:
    """Check that a host's name or address resolves here.

    Raises:
        ConfigurationError: it does not.
    """
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:  # UnicodeError: it can be no name, such as "a..b"
        raise ConfigurationError(
            f"host {host!r} (set by {said_by('host')}) does not resolve: {error}",
            hint="set GRIDENGINE_HOST to an address of this machine",
        ) from None
