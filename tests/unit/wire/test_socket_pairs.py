"""Our socket pairs wait, whatever a user's default is."""

from __future__ import annotations

import socket

from gridengine.wire.channel import socket_pair


def test_both_ends_wait_although_new_sockets_have_a_time_limit() -> None:
    socket.setdefaulttimeout(0.5)
    try:
        ours, theirs = socket_pair()
    finally:
        socket.setdefaulttimeout(None)
    with ours, theirs:
        assert (ours.gettimeout(), theirs.gettimeout()) == (None, None)
