"""What the ZeroMQ sockets of both ends have alike: their options, and frames that come in."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import zmq

from gridengine.serialize.payload import Buffer

PIECE = 256 * 1024
_READABLE, _NOW, _NOW_MORE = map(int, (zmq.POLLIN, zmq.NOBLOCK, zmq.NOBLOCK | zmq.SNDMORE))
"""Plain numbers: pyzmq's own are members of an enumeration, which take microseconds to combine."""
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
    (zmq.MAXMSGSIZE, PIECE + 1024),
)


class PolledSocket:
    """A ZeroMQ socket that is waited for by its descriptor.

    That polls as readable when there may be something to receive: once, and not again before
    `receive` was called; not at all when something has come by the time of a `send`, so that
    `pending` is to be asked before each wait.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        for option, value in _OPTIONS:
            socket.setsockopt(option, value)
        self.fd = int(socket.getsockopt(zmq.FD))
        self._is_quiet = False
        """Whether nothing has come, as far as can be known without asking ZeroMQ, which takes
        microseconds: what comes from then on has the descriptor poll, unless ZeroMQ takes note of
        it when it is asked for something else.
        """

    @property
    def socket(self) -> zmq.Socket[bytes]:
        """The socket itself."""
        self._is_quiet = False
        return self._socket

    @property
    def pending(self) -> bool:
        """Whether there is something to receive now."""
        if not self._is_quiet:
            self._is_quiet = not self._is_readable()
        return not self._is_quiet

    def _is_readable(self) -> bool:
        """Return it as ZeroMQ says: to be told so by an exception takes longer."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE)

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send one message without waiting; it is dropped where nobody is connected to."""
        send, self._is_quiet = self._socket.send, False
        with contextlib.suppress(zmq.Again):
            for frame in frames[:-1]:
                send(frame, _NOW_MORE, copy=False)
            send(frames[-1], _NOW, copy=False)

    def receive(self) -> list[zmq.Frame]:
        """Return the frames of the next message, none when there is none now.

        A frame knows whether another follows: pyzmq's `recv_multipart` asks the socket, which takes
        longer than to receive.
        """
        self._is_quiet = not self._is_readable()
        if self._is_quiet:
            return []
        frames = [self._socket.recv(_NOW, copy=False)]
        while frames[-1].more:
            frames.append(self._socket.recv(_NOW, copy=False))
        return frames


def buffers_of(raw: Sequence[zmq.Frame]) -> list[Buffer]:
    """Return frames as buffers; large ones are views of ZeroMQ's memory, not copies."""
    return [frame.buffer if len(frame) > 16_384 else frame.bytes for frame in raw]
