"""The parts that the ZeroMQ sockets of both ends share: their options, and receiving frames."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import zmq

from gridengine.serialize.payload import Buffer

PIECE = 256 * 1024
_READABLE, _NOW, _NOW_MORE = map(int, (zmq.POLLIN, zmq.NOBLOCK, zmq.NOBLOCK | zmq.SNDMORE))
"""Plain integers: pyzmq's flags are members of an enumeration, which take microseconds to combine.
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
    # ZeroMQ accepts frames of a peer before the handshake has proved its identity. This limits each
    # frame to one piece of ours and its encryption.
    (zmq.MAXMSGSIZE, PIECE + 1024),
)


class PolledSocket:
    """A ZeroMQ socket whose descriptor is polled.

    The descriptor polls as readable once when messages may have arrived, and not again before
    `receive` was called. It does not poll at all for a message that ZeroMQ took in during a `send`.
    Therefore ask `pending` before each wait.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        for option, value in _OPTIONS:
            socket.setsockopt(option, value)
        self.fd = int(socket.getsockopt(zmq.FD))
        self._is_quiet = False
        """Whether no message has arrived, as far as is known without asking ZeroMQ, which takes
        microseconds. A message that arrives later makes the descriptor poll, unless ZeroMQ notices
        it during some other operation; therefore each operation clears this flag.
        """

    @property
    def socket(self) -> zmq.Socket[bytes]:
        """The ZeroMQ socket itself."""
        self._is_quiet = False
        return self._socket

    @property
    def pending(self) -> bool:
        """Whether a message can be received now."""
        if not self._is_quiet:
            self._is_quiet = not self._is_readable()
        return not self._is_quiet

    def _is_readable(self) -> bool:
        """Ask ZeroMQ whether a message can be received. Catching `zmq.Again` would take longer."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE)

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send one message without waiting. It is dropped when no peer is connected."""
        send, self._is_quiet = self._socket.send, False
        with contextlib.suppress(zmq.Again):
            for frame in frames[:-1]:
                send(frame, _NOW_MORE, copy=False)
            send(frames[-1], _NOW, copy=False)

    def receive(self) -> list[zmq.Frame]:
        """Return the frames of the next message, an empty list when there is none now.

        Each frame says whether another follows. pyzmq's `recv_multipart` asks the socket instead,
        which takes longer than receiving.
        """
        self._is_quiet = not self._is_readable()
        if self._is_quiet:
            return []
        frames = [self._socket.recv(_NOW, copy=False)]
        while frames[-1].more:
            frames.append(self._socket.recv(_NOW, copy=False))
        return frames


def buffers_of(raw: Sequence[zmq.Frame]) -> list[Buffer]:
    """Return frames as buffers. Large ones are views of ZeroMQ's memory, not copies."""
    return [frame.buffer if len(frame) > 16_384 else frame.bytes for frame in raw]
