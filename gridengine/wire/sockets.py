"""ZeroMQ sockets of both ends: their options, the frames that come in, the keys of CURVE, and how
fast this installation encrypts. Some builds of ZeroMQ take ten times as long, and nothing else
reveals it.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Sequence

import msgspec
import zmq
from zmq.utils import z85

from gridengine.display import log
from gridengine.errors import ConfigurationError
from gridengine.serialize.payload import Buffer
from gridengine.system.machine import addresses
from gridengine.threads import in_pieces
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.session import PIECE


def new_keys(*, watchers: bool = False) -> ServerKeys:
    """Return new keys; with `watchers` also a pair for watchers."""
    server, peer, watcher = ([one.decode() for one in zmq.curve_keypair()] for _ in range(3))
    keys = ServerKeys(server[0], server[1], peer[0], peer[1])
    if not watchers:
        return keys
    return msgspec.structs.replace(keys, watcher_public=watcher[0], watcher_secret=watcher[1])


class KeyCheck:
    """Tells ZeroMQ which clients of a server's sockets may connect: those with the public key of
    the peers or of the watchers. A thread answers its questions (RFC 27), until `context` ends.

    pyzmq has such a thread, which imports asyncio; that takes as long as importing ZeroMQ.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: ServerKeys) -> None:
        self._log = log().getChild("authentication")
        self._log.setLevel(self._log.level or "WARNING")  # whatever users set for "gridengine"
        texts = [one.encode() for one in (keys.peer_public, keys.watcher_public) if one]
        self._users = {z85.decode(text): text for text in texts}
        self._context = context
        self._serves = threading.Event()
        self._fault: BaseException | None = None
        threading.Thread(target=self._serve, name="gridengine-keys", daemon=True).start()
        in_pieces(self._serves.wait)
        if self._fault is not None:
            raise self._fault

    def _serve(self) -> None:
        """Answer until the context ends. It waits for its sockets: only this thread, which no
        Ctrl-C reaches, has this one.
        """
        try:
            with self._context.socket(zmq.REP) as asked:
                asked.linger = 0
                asked.bind("inproc://zeromq.zap.01")
                self._serves.set()
                while True:
                    asked.send_multipart(self.answer(asked.recv_multipart()))
        except BaseException as error:
            if not self._serves.is_set():
                self._fault = error
            elif not isinstance(error, zmq.ContextTerminated):
                raise
        finally:
            self._serves.set()

    def answer(self, question: Sequence[bytes]) -> list[bytes]:
        """Return the answer on a client: "200" and its key in Z85 as the user's id, or "400"."""
        version, number, _domain, address, _identity, mechanism, *credentials = question
        is_known = (version, mechanism, len(credentials)) == (b"1.0", b"CURVE", 1)
        given = credentials[0] if is_known else b""
        # How long this takes tells nobody anything: the client has proved that it has the secret.
        user = self._users.get(given)
        if self._log.isEnabledFor(10):  # DEBUG
            came = "accepted" if user else "refused"
            self._log.debug(
                "%s from %s, key %s", came, address.decode(), z85.encode(given).decode()
            )
        status = (b"200", b"OK", user) if user else (b"400", b"unknown key", b"")
        return [b"1.0", number, *status, b""]


def bind_to_any(socket: zmq.Socket[bytes], ports: Sequence[int]) -> int:
    """Have a socket listen at the first of these ports that is free, or at any port if there are
    none. Return the port.

    Raises:
        ConfigurationError: none of the ports can be listened at.
    """
    for port in ports:
        try:
            socket.bind(f"tcp://*:{port}")
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EADDRINUSE, errno.EACCES):
                raise
        else:
            return port
    if not ports:
        return socket.bind_to_random_port("tcp://*")
    raise ConfigurationError(
        f"no port of {ports[0]} to {ports[-1]} can be listened at",
        hint="have the setting ports name more of them, from 1024 on",
    )


def tcp_addresses(port: int, host: str = "") -> list[str]:
    """Return where others reach a socket that listens at this port, as `tcp://host:port`: at this
    host or, by default, at each address of this machine, IPv4 first and loopback last.
    """
    own = [one for one in addresses() if not one.lower().startswith(("127.", "fe80"))]
    hosts = [host] if host else [*(one for one in dict.fromkeys(own) if one != "::1"), "127.0.0.1"]
    return [f"tcp://{f'[{one}]' if ':' in one else one}:{port}" for one in hosts]


_READABLE, _NOW, _NOW_MORE = map(int, (zmq.POLLIN, zmq.NOBLOCK, zmq.NOBLOCK | zmq.SNDMORE))
"""Plain integers: pyzmq's flags are members of an enumeration, which take microseconds to combine.
"""
_OPTIONS = (
    (zmq.SNDHWM, 0),
    (zmq.RCVHWM, 0),
    (zmq.LINGER, 0),
    (zmq.IPV6, 1),
    (zmq.RECONNECT_IVL, 100),
    (zmq.RECONNECT_IVL_MAX, 2_000),
    # ZeroMQ accepts frames of a peer before the handshake has proved its identity. This limits each
    # frame to one piece of ours and its encryption.
    (zmq.MAXMSGSIZE, PIECE + 1024),
)
_LISTENING: tuple[tuple[int, int | bytes], ...] = (
    # Without an answer of `KeyCheck` nobody is let in; ZeroMQ's default lets everybody in.
    (zmq.ZAP_DOMAIN, b"global"),
    (zmq.ZAP_ENFORCE_DOMAIN, 1),
    (zmq.HANDSHAKE_IVL, 10_000),
    # The kernel finds broken connections, within 20 s. Heartbeats of this end would have ZeroMQ
    # search its list of all timers at each message of a peer.
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 10),
    (zmq.TCP_KEEPALIVE_INTVL, 3),
    (zmq.TCP_KEEPALIVE_CNT, 3),
    (zmq.TCP_MAXRT, 10_000),
)


def secure(socket: zmq.Socket[bytes], keys: ServerKeys) -> None:
    """Have a socket that is to listen encrypt by CURVE, and let in only whom the `KeyCheck` of its
    context accepts.
    """
    socket.curve_server = True
    for option, value in _LISTENING:
        socket.setsockopt(option, value)
    socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()


class PolledSocket:
    """A ZeroMQ socket whose descriptor is polled.

    The descriptor becomes readable once when messages may have arrived, and not again until
    `receive` is called. It does not become readable for a message that ZeroMQ took in during a
    `send`. Therefore ask `pending` before each wait.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        for option, value in _OPTIONS:
            socket.setsockopt(option, value)
        self.fd = int(socket.getsockopt(zmq.FD))
        self.is_quiet = False
        """Whether no message has arrived, as far as is known without asking ZeroMQ, which takes
        microseconds. A message that arrives later makes the descriptor poll, unless ZeroMQ notices
        it during some other operation; therefore each operation clears this flag.
        """

    @property
    def socket(self) -> zmq.Socket[bytes]:
        """The ZeroMQ socket itself."""
        self.is_quiet = False
        return self._socket

    @property
    def pending(self) -> bool:
        """Whether a message can be received now."""
        if not self.is_quiet:
            self.is_quiet = not self._is_readable()
        return not self.is_quiet

    def _is_readable(self) -> bool:
        """Ask ZeroMQ whether a message can be received. Catching `zmq.Again` would take longer."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE)

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send one message without waiting. It is dropped when no peer is connected."""
        send, self.is_quiet = self._socket.send, False
        with contextlib.suppress(zmq.Again):
            for frame in frames[:-1]:
                send(frame, _NOW_MORE, copy=False)
            send(frames[-1], _NOW, copy=False)

    def receive(self) -> list[zmq.Frame]:
        """Return the frames of the next message, an empty list when there is none now.

        Each frame says whether another follows. pyzmq's `recv_multipart` asks the socket instead,
        which takes longer than receiving.
        """
        self.is_quiet = not self._is_readable()
        if self.is_quiet:
            return []
        frames = [self._socket.recv(_NOW, copy=False)]
        while frames[-1].more:
            frames.append(self._socket.recv(_NOW, copy=False))
        return frames


def buffers_of(raw: Sequence[zmq.Frame]) -> list[Buffer]:
    """Return frames as buffers. Large ones are views of ZeroMQ's memory, not copies."""
    return [frame.buffer if len(frame) > 16_384 else frame.bytes for frame in raw]


PIECE_BYTES = 2**20
WAIT_SECONDS = 30.0


def encrypted_bytes_per_second(total_bytes: int = 8 * PIECE_BYTES) -> float:
    """Send this many bytes between two sockets of this process by TCP with CURVE. Return bytes for
    each second of processor time, of both ends together, so that other load on the machine hardly
    matters.

    Raises:
        zmq.ZMQError: this ZeroMQ has no CURVE, there is no loopback network, or nothing arrives for
        `WAIT_SECONDS`.
    """
    public, secret = zmq.curve_keypair()
    with (
        zmq.Context() as context,
        context.socket(zmq.PULL) as receiver,
        context.socket(zmq.PUSH) as sender,
    ):
        receiver.curve_server = True
        receiver.curve_publickey, receiver.curve_secretkey = public, secret
        receiver.rcvtimeo = round(1000 * WAIT_SECONDS)
        sender.curve_publickey, sender.curve_secretkey = zmq.curve_keypair()
        sender.curve_serverkey = public
        sender.linger = 0
        port = receiver.bind_to_random_port("tcp://127.0.0.1")
        sender.connect(f"tcp://127.0.0.1:{port}")
        sender.send(b"the handshake is not measured")
        receiver.recv()
        pieces, piece = max(1, total_bytes // PIECE_BYTES), bytes(PIECE_BYTES)
        begin = time.process_time()
        for _ in range(pieces):
            sender.send(piece, copy=False)
        for _ in range(pieces):
            receiver.recv()
        return pieces * PIECE_BYTES / (time.process_time() - begin)
