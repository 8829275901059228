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


def set_up(end: zmq.Socket[bytes]) -> None:
    for option, value in _OPTIONS:
        end.setsockopt(option, value)


def is_readable(end: zmq.Socket[bytes]) -> bool:
    """Return whether there is something to receive: to be told so by an exception takes longer."""
    return bool(int(end.getsockopt(zmq.EVENTS)) & _READABLE)


def receive_frames(end: zmq.Socket[bytes]) -> list[zmq.Frame]:
    """Receive one message, which is there.

    A frame knows whether another follows: pyzmq's `recv_multipart` asks the socket, which takes it
    longer than to receive.
    """
    frames = [end.recv(_NOW, copy=False)]
    while frames[-1].more:
        frames.append(end.recv(_NOW, copy=False))
    return frames


def send_frames(end: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    """Send one message without waiting; it is dropped where nobody is connected to."""
    with contextlib.suppress(zmq.Again):
        for frame in frames[:-1]:
            end.send(frame, _NOW_MORE, copy=False)
        end.send(frames[-1], _NOW, copy=False)


def buffers_of(raw: Sequence[zmq.Frame]) -> list[Buffer]:
    """Return frames as buffers; large ones are views of ZeroMQ's memory, not copies."""
    return [frame.buffer if len(frame) > 16_384 else frame.bytes for frame in raw]
