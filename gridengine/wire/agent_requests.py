"""Requests of a runner to its worker's agent in the midst of a call: for the things that a child of
`multiprocessing` gets at its start, and for a socket for nested calls. Both ends.

All runners of a worker share one stream socket. Each request carries the descriptor to which its
answer goes. A read ends there, so it never returns parts of two requests. So processes that user
code forks may send requests as well, and an answer never reaches another runner. Nothing leaves
this machine.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from typing import TypeAlias

from gridengine.system import CLOSED_ON_EXEC, own
from gridengine.wire.channel import socket_pair

AUTHENTICATION_KEY, RESOURCE_TRACKER, DESCRIPTOR, NESTED = b"k", b"r", b"d", b"c"
"""The kinds of requests: the authentication key of `multiprocessing`; the descriptor of its
resource tracker; the descriptor of a `Descriptor`, whose name follows; a socket for nested calls,
for the runner whose number follows.
"""
_GIVEN, _REFUSED = b"+", b"-"
_DESCRIPTOR = struct.Struct("i")
_LARGEST = 4096
_MOST = 64
"""How many requests are answered at a time."""

Answer: TypeAlias = tuple[bytes, int | None]
"""A value, and a descriptor that the answering process still owns."""


# The runner's end


def ask(sock: socket.socket, request: bytes) -> tuple[bytes, int]:
    """Return the agent's answer to a request through this socket: a value, and a descriptor that
    this process now owns, -1 if none.

    Raises:
        LookupError: there is no answer; the text says why.
    """
    ours, theirs = socket_pair()
    with ours:
        try:
            with theirs:
                socket.send_fds(sock, [request], [theirs.fileno()])
            data, descriptor = _receive(ours)
        except OSError as error:
            raise LookupError(
                f"the process that this one runs calls for does not answer: {error}"
            ) from error
    if data[:1] != _GIVEN:
        raise LookupError(
            data[1:].decode(errors="replace")
            or "the process that this one runs calls for does not answer"
        )
    return data[1:], descriptor


# The agent's end


def reply(sock: socket.socket, answer: Callable[[bytes], Answer]) -> bool:
    """Answer the requests that have arrived; never waits. Return False when no more can arrive."""
    for _ in range(_MOST):
        try:
            request, descriptor = _receive(sock, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not request:
            return False
        if descriptor != -1:
            # The asking process may be gone.
            with contextlib.suppress(OSError), socket.socket(fileno=descriptor) as asker:
                _send(asker, request, answer)
    return True


def _send(asker: socket.socket, request: bytes, answer: Callable[[bytes], Answer]) -> None:
    asker.setblocking(False)
    try:
        value, descriptor = answer(request)
    except Exception as error:
        reason = (
            str(error) if isinstance(error, LookupError) else f"{type(error).__name__}: {error}"
        )
        asker.send(_REFUSED + reason.encode(errors="replace")[: _LARGEST - 1])
        return
    socket.send_fds(asker, [_GIVEN + value], [] if descriptor is None else [descriptor])


def answer_in_user_process(request: bytes) -> Answer:
    """Answer in the user's own process, for workers of this machine.

    Raises:
        LookupError: the requested thing no longer exists.
    """
    if request == AUTHENTICATION_KEY:
        from multiprocessing.process import current_process  # few calls use it

        return bytes(current_process().authkey), None
    if request[:1] == DESCRIPTOR:
        from gridengine.serialize.descriptors import Descriptor  # few calls have one

        return b"", Descriptor.find(request[1:])
    return answer_on_any_machine(request)


def answer_on_any_machine(request: bytes) -> Answer:
    """Answer in a worker that may be on any machine. Its runners share a resource tracker, and get
    nothing of the user's process.

    Raises:
        LookupError: the request is for something of the user's process.
    """
    if request != RESOURCE_TRACKER:
        raise LookupError(
            f"the worker on {socket.gethostname()} has nothing of the process that the calls come "
            "from"
        )
    from multiprocessing.resource_tracker import getfd  # few calls use it

    return b"", getfd()


def _receive(sock: socket.socket, flags: int = 0) -> tuple[bytes, int]:
    """Return a message and the descriptor that came with it, -1 if none. The descriptor is not
    inherited by children that are started meanwhile.
    """
    data, extras, _, _ = sock.recvmsg(
        _LARGEST, socket.CMSG_SPACE(_DESCRIPTOR.size), flags | CLOSED_ON_EXEC
    )
    for level, kind, content in extras:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(
            content
        ) >= _DESCRIPTOR.size:
            (descriptor,) = _DESCRIPTOR.unpack_from(content)
            own([descriptor])
            return data, descriptor
    return data, -1
