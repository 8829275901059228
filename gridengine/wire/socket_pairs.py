"""Socket pairs between processes of this machine."""

from __future__ import annotations

import socket


def socket_pair(
    kind: socket.SocketKind = socket.SOCK_STREAM,
) -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connection, both blocking.

    A user's `socket.setdefaulttimeout` must not apply: it would make both new sockets non-blocking,
    and the process at the other end would find nothing to read and leave.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    ours.setblocking(True)
    theirs.setblocking(True)
    return ours, theirs
