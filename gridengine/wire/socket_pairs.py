"""Sockets between processes of this machine."""

from __future__ import annotations

import socket


def socket_pair(
    kind: socket.SocketKind = socket.SOCK_STREAM,
) -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connection, which wait as long as it takes: a user's
    `socket.setdefaulttimeout` is for his own sockets.

    Such a default makes new sockets non-blocking, at both ends: the process at the other would find
    nothing to read, and leave.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    ours.setblocking(True)
    theirs.setblocking(True)
    return ours, theirs
