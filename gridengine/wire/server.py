"""A dispatcher's end of its connections, a ROUTER socket of ZeroMQ, and the addresses and ports at
which it listens.

Every connection is CURVE with both keys checked (RFC 26, and RFC 27 for the check of the client's
key). CURVE without the check of the client's key would encrypt for anybody.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import zmq

from gridengine._version import __version__
from gridengine.errors import ConfigurationError, MessageTooLong, ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.wire.block_socket import BlockListener, BlockSocket
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.framing import decode, encode, foreign_greeting, in_protocol, rest_of
from gridengine.wire.messages import (
    VERSION,
    Beat,
    ClientHello,
    Goodbye,
    Hello,
    Message,
    Refuse,
    Rejoin,
)
from gridengine.wire.processes import allow_open_files
from gridengine.wire.session import Frames, Session
from gridengine.wire.sockets import PIECE, PeersKeys, PolledSocket, buffers_of, new_keys

if TYPE_CHECKING:
    from zmq.auth.thread import ThreadAuthenticator

log = logging.getLogger("gridengine")

_HANDSHAKE_SECONDS = 10
_BACKLOG = 4096
"""How many connections may wait to be accepted. All workers of a cluster may start at once, and a
connection that the kernel refuses is tried again only a second later.
"""
_FILES_FOR_HANDSHAKES = 2048
_GREETING_SECONDS = 60.0
"""An incomplete first message is dropped after this many seconds without another piece."""
_BIND_SECONDS, _BIND_PAUSE_SECONDS = 2.0, 0.1


class Server:
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
        self._clock = clock
        allow_open_files(workers, handshakes=_FILES_FOR_HANDSHAKES)
        self._context = zmq.Context()
        self._polled = PolledSocket(self._context.socket(zmq.ROUTER))
        self._socket = self._polled.socket
        self.fd = self._polled.fd
        """The descriptor to wait for, see `PolledSocket`. Ask `pending` before each wait."""
        self._sessions: dict[bytes, Session] = {}
        self._greetings: dict[bytes, tuple[Session, float]] = {}
        """Peers whose first message is long and not complete yet, with the time of its last piece.
        """
        self._authenticator: ThreadAuthenticator | None = None
        self._rest = partial(rest_of, most=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self._greeting = greeting
        self._ports = ports
        self._epoch = epoch
        self._holds = False
        self._receipts: dict[bytes, int] = {}
        self.watchers: set[bytes] = set()
        """The peers that connected with the watchers' key and may only look."""
        self.keys = keys or new_keys()
        self._listener: BlockListener | None = None
        self._blocks: dict[bytes, BlockSocket] = {}
        """Where large buffers of clients on this machine go, by peer."""
        try:
            self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
            self.addresses = self._listen_on_tcp(host)
            if greeting is ClientHello:  # after the port: an earlier process had both
                self._listener = BlockListener(self.keys.public)
        except BaseException:
            self.close()
            raise

    def _listen_on_tcp(self, host: str) -> tuple[str, ...]:
        names = [host] if host else own_addresses()
        if host:
            resolve(host)
        # Here, as psutil below: they take long to import, and workers need none.
        from zmq.auth.thread import ThreadAuthenticator

        # The authenticator logs each connection with its key. A logger of its own hides these lines
        # from users who only set the level of "gridengine".
        quiet = log.getChild("authentication")
        quiet.setLevel(quiet.level or logging.WARNING)
        self._authenticator = ThreadAuthenticator(self._context, log=quiet)
        self._authenticator.start()
        self._authenticator.configure_curve_callback("*", PeersKeys(self.keys))
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
                time.sleep(_BIND_PAUSE_SECONDS)  # the process that had the port may be ending
        else:
            port = self._bind_to_new_port()
            self.keys = msgspec.structs.replace(self.keys, port=port)
        return port

    def _bind_to_new_port(self) -> int:
        for port in self._ports or (lasting_ports() if self._epoch else ()):
            try:
                self._socket.bind(f"tcp://*:{port}")
            except zmq.ZMQError as error:
                if error.errno not in (zmq.EADDRINUSE, errno.EACCES):
                    raise
            else:
                return port
        if not self._ports:
            return self._socket.bind_to_random_port("tcp://*")
        raise ConfigurationError(
            f"no port of {self._ports[0]} to {self._ports[-1]} can be listened at",
            hint="have the setting ports name more of them, from 1024 on",
        )

    @property
    def pending(self) -> bool:
        """Whether a message can be received now."""
        return self._polled.pending

    def send(self, peer: bytes, message: Message, buffers: Sequence[Buffer] = ()) -> None:
        """Send a peer a message, and keep it until the peer acknowledges it. Nothing is sent to a
        peer that is forgotten.
        """
        session = self._sessions.get(peer)
        if session is not None:
            blocks = self._blocks.get(peer)
            put = None if blocks is None else blocks.put
            for frames in session.number(encode(message, buffers, put)):
                self._send_frames(peer, frames)

    def beat(self, peer: bytes) -> None:
        """Send a peer a sign of life."""
        session = self._sessions.get(peer)
        if session is not None:
            self._send_frames(peer, session.unnumbered(encode(Beat())))

    def unacknowledged(self, peer: bytes) -> int:
        """Return how many pieces sent to a peer are not acknowledged.

        Raises:
            KeyError: the peer was forgotten.
        """
        return self._sessions[peer].unacknowledged

    def forget(self, peer: bytes) -> None:
        """Drop a peer's session; if the peer comes back it is refused."""
        self._sessions.pop(peer, None)
        self.watchers.discard(peer)
        self._close_blocks(peer)

    def hold_acknowledgements(self) -> None:
        """From now on acknowledge only the messages whose numbers are passed to `acknowledge`."""
        self._holds = True

    def take_receipts(self) -> dict[bytes, int]:
        """Return, per peer, the number of the last message received since the previous call. Pass
        it to `acknowledge` when the messages' effects are durable.
        """
        receipts, self._receipts = self._receipts, {}
        return receipts

    def acknowledge(self, receipts: Mapping[bytes, int]) -> None:
        """Acknowledge these messages, with the next envelope that each peer is sent."""
        for peer, number in receipts.items():
            session = self._sessions.get(peer)
            if session is not None:
                session.acknowledge(number)

    def receive(self, most: int = 1000) -> Iterator[tuple[bytes, Message, list[Buffer]]]:
        """Yield at most `most` messages that have arrived, each with its sender. Malformed ones are
        logged and dropped.

        An envelope of a known peer that completes no message, such as a piece, is yielded as a
        `Beat`: it is a sign of life. A peer whose message is too long is forgotten, and a `Goodbye`
        of it is yielded. An incomplete first message that does not go on is forgotten too.
        """
        self._drop_greetings(self._clock.monotonic() - _GREETING_SECONDS)
        for _ in range(most):
            frames = self._polled.receive()
            if not frames:
                return
            sender, raw = frames[0].bytes, frames[1:]
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
        session, frames = self._sessions.get(peer), buffers_of(raw)
        if session is None:
            greeting = self._receive_hello(peer, frames)
            if greeting is not None and self._may_only_look(raw):
                self.watchers.add(peer)
            return greeting
        content, answers = session.receive(frames)
        blocks = self._blocks.get(peer)
        take = None if blocks is None else blocks.take
        message = decode(content, take) if content is not None else (Beat(), [])
        if self._holds and content is not None and session.received > session.told:
            self._receipts[peer] = session.received
        if isinstance(message[0], Goodbye):  # a leaving peer waits for the acknowledgement
            answers.append(session.unnumbered(encode(Beat())))
        for answer in answers:
            self._send_frames(peer, answer)
        return message

    def _may_only_look(self, raw: Sequence[zmq.Frame]) -> bool:
        return bool(self.keys.watcher_public) and raw[0]["User-Id"] != self.keys.peer_public

    def _disconnect(self, peer: bytes, error: MessageTooLong) -> tuple[Message, list[Buffer]]:
        """Refuse a worker from here on. The results in its message are lost, and its calls must not
        wait for them.
        """
        log.warning("worker %s is sent away: %s", peer.hex()[:8], error.message)
        self._close_blocks(peer)
        self._send_frames(peer, self._sessions.pop(peer).unnumbered(encode(Refuse(error.message))))
        return Goodbye(error.message), []

    def _receive_hello(
        self, peer: bytes, frames: Sequence[Buffer]
    ) -> tuple[Message, list[Buffer]] | None:
        """Return the first message of a peer once it is complete. An unknown peer that sends
        another message was forgotten and is refused; or it knew an earlier epoch and is asked to
        rejoin.
        """
        session, since = self._greetings.pop(peer, (None, 0.0))
        # Hold the acknowledgements: acknowledged pieces would not be sent again if this incomplete
        # message had to be dropped.
        session = session or Session(PIECE, self._rest, holds=True, succeeds=True)
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
                self._accept_blocks()
                self._sessions[peer] = session
                session.holds = self._holds
                if self._holds:
                    self._receipts[peer] = session.received
                else:
                    session.acknowledge(session.received)
                return message, buffers
            if self._epoch and session.received and isinstance(message, Beat):
                since = self._clock.monotonic() if session.received > before else since
                self._greetings[peer] = session, since
                for one in (*answers, session.unnumbered(encode(Beat()))):
                    self._send_frames(peer, one)
                return None
            answer = self._refusal(content or ())
        self._send_frames(peer, Session(PIECE).unnumbered(answer))
        return None

    def _accept_blocks(self) -> None:
        """Take in the sockets for large buffers of clients, which connect before they greet."""
        for peer, blocks in self._listener.accept() if self._listener is not None else ():
            self._close_blocks(peer)
            self._blocks[peer] = blocks

    def _close_blocks(self, peer: bytes) -> None:
        if (blocks := self._blocks.pop(peer, None)) is not None:
            blocks.close()

    def _refusal(self, content: Sequence[Buffer]) -> Frames:
        """Return the answer to a first message that is not a greeting."""
        if self._epoch and foreign_greeting(content) is None:
            return encode(Rejoin(self._epoch))
        return _refusal(content)

    def _drop_greetings(self, before: float) -> None:
        """Forget peers whose first message is incomplete and got no piece since `before`."""
        if not self._greetings:
            return
        for peer in [peer for peer, (_, since) in self._greetings.items() if since < before]:
            del self._greetings[peer]

    def _send_frames(self, peer: bytes, frames: Frames) -> None:
        self._polled.send([peer, *frames])

    def close(self, linger_seconds: float = 0.5) -> None:
        """Close the socket, and give messages that are under way a moment. May be called twice."""
        if self._authenticator is not None and self._authenticator.is_alive():
            self._authenticator.stop()
        if self._listener is not None:
            self._listener.close()
        for peer in list(self._blocks):
            self._close_blocks(peer)
        self._socket.close(linger=int(linger_seconds * 1000))
        self._context.term()


def _refusal(content: Sequence[Buffer]) -> Frames:
    """Return the refusal of a first message that cannot be accepted, in the peer's own protocol
    version.
    """
    foreign = foreign_greeting(content)
    if foreign is None:
        return encode(Refuse("this dispatcher does not know you, or no longer"))
    protocol, version = foreign
    reason = (
        f"gridengine {version} speaks protocol {protocol}, and its dispatcher, gridengine "
        f"{__version__}, speaks {VERSION}"
    )
    return in_protocol(protocol, encode(Refuse(reason, mismatch=True)))


def own_addresses() -> list[str]:
    """Return the addresses at which other machines can reach this one, IPv4 first, and the loopback
    address at the end.
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


def lasting_ports(count: int = 100) -> list[int]:
    """Return random ports below the range that the kernel assigns by itself (ip(7),
    ip_local_port_range). Such a port is most likely free again when a dispatcher is started again.
    Empty when the kernel's range begins at 1024.
    """
    import random  # here: only stand-alone dispatchers need it, and everybody would wait for it

    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
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
        from gridengine.settings.values import said_by  # here, since workers read no settings

        raise ConfigurationError(
            f"host {host!r} (set by {said_by('host')}) does not resolve: {error}",
            hint="set GRIDENGINE_HOST to an address of this machine",
        ) from None
