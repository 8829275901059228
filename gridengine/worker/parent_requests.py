"""What a runner asks of its worker's agent in the midst of a call: what a child of
`multiprocessing` is given at its start.

All runners of a worker share one socket (`AF_UNIX`, `SOCK_SEQPACKET`). A question brings along the
descriptor that the answer goes to, so that processes which user code forks may ask as well, and an
answer never meets another runner. Nothing leaves this machine.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
from collections.abc import Callable
from typing import TypeAlias

from gridengine.wire.socket_pairs import socket_pair

AUTHENTICATION_KEY, RESOURCE_TRACKER, DESCRIPTOR = b"k", b"r", b"d"
"""The questions: the key of `multiprocessing`; the descriptor of its resource tracker; that of a
`Descriptor`, whose name follows.
"""
_GIVEN, _REFUSED = b"+", b"-"
_DESCRIPTOR = struct.Struct("i")
_LARGEST = 4096
_MOST = 64
"""How many questions are answered at a time."""

Answer: TypeAlias = tuple[bytes, int | None]
"""A value, or a descriptor that stays the answerer's."""


class _Line:
    """This process's way to its agent, if it is a runner."""

    sock: socket.socket | None = None


@functools.cache
def _line() -> _Line:
    return _Line()


def connect(descriptor: int) -> None:
    """Have this process's questions go there."""
    _line().sock = socket.socket(fileno=descriptor)


def ask(question: bytes) -> tuple[bytes, int]:
    """Return the agent's answer: a value, and a descriptor, -1 where there is none, which is now
    this process's own.

    Raises:
        LookupError: there is no answer; the text says why.
    """
    sock = _line().sock
    if sock is None:
        raise LookupError("this process runs no calls for another")
    ours, theirs = socket_pair(socket.SOCK_SEQPACKET)
    with ours:
        try:
            with theirs:
                socket.send_fds(sock, [question], [theirs.fileno()])
            data, descriptor = _receive(ours)
        except OSError as error:
            raise LookupError(
                f"the process that this one runs calls for does not answer: {error}"
            ) from error
    if data[:1] != _GIVEN:
        raise LookupError(
            data[1:].decode() or "the process that this one runs calls for does not answer"
        )
    return data[1:], descriptor


def reply(sock: socket.socket, answer: Callable[[bytes], Answer]) -> bool:
    """Answer what has been asked; never waits. Return False when nobody is left who could ask."""
    for _ in range(_MOST):
        try:
            question, descriptor = _receive(sock, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not question:
            return False
        if descriptor != -1:
            with (
                contextlib.suppress(OSError),
                socket.socket(fileno=descriptor) as asker,
            ):  # who has asked may be gone
                _send(asker, question, answer)
    return True


def _send(asker: socket.socket, question: bytes, answer: Callable[[bytes], Answer]) -> None:
    asker.setblocking(False)
    try:
        value, descriptor = answer(question)
    except Exception as error:
        reason = (
            str(error) if isinstance(error, LookupError) else f"{type(error).__name__}: {error}"
        )
        asker.send(_REFUSED + reason.encode(errors="replace")[: _LARGEST - 1])
        return
    socket.send_fds(asker, [_GIVEN + value], [] if descriptor is None else [descriptor])


def _receive(sock: socket.socket, flags: int = 0) -> tuple[bytes, int]:
    """Return a message and the descriptor that came with it, -1 without; children that are started
    meanwhile do not inherit it.
    """
    data, extras, _, _ = sock.recvmsg(
        _LARGEST, socket.CMSG_SPACE(_DESCRIPTOR.size), flags | socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, content in extras:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(
            content
        ) >= _DESCRIPTOR.size:
            return data, _DESCRIPTOR.unpack_from(content)[0]
    return data, -1
