"""ZeroMQ sockets of both ends: their options, the frames that come in, the keys of CURVE, and how
fast this installation encrypts. Some builds of ZeroMQ take ten times as long, and nothing else
reveals it.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Sequence

import msgspec
import zmq
from zmq.utils import z85

from gridengine.serialize.payload import Buffer
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
    """Tells ZeroMQ, in a thread of its own, whose public keys a server accepts (RFC 27): the peers'
    and the watchers'.

    pyzmq's authenticator does the same in an event loop. That takes 0.7 ms of a processor for each
    connection, ten times as long.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: ServerKeys) -> None:
        names = [one.encode() for one in (keys.peer_public, keys.watcher_public) if one]
        self._names = [(z85.decode(name), name) for name in names]
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind("inproc://zeromq.zap.01")
        try:
            threading.Thread(target=self._work, name="gridengine-keys", daemon=True).start()
        except BaseException:
            self._socket.close()  # or the end of the context would wait for it
            raise

    def _work(self) -> None:
        """Answer until the context is terminated."""
        with self._socket, contextlib.suppress(zmq.ContextTerminated):
            while True:
                self._socket.send_multipart(self.answer(self._socket.recv_multipart()))

    def answer(self, request: Sequence[bytes]) -> list[bytes]:
        """Return the answer to a request: accepted, with the key as the `User-Id`, or refused."""
        version, number, _domain, _address, _identity, mechanism, *credentials = request
        if version == _ZAP and mechanism == b"CURVE" and len(credentials) == 1:
            for key, name in self._names:
                if secrets.compare_digest(key, credentials[0]):
                    return [_ZAP, number, b"200", b"OK", name, b""]
        return [_ZAP, number, b"400", b"unknown key", b"", b""]


_ZAP = b"1.0"
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
