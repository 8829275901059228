"""What waits for sockets of ZeroMQ by ZeroMQ's own poller."""

from __future__ import annotations

import zmq

from gridengine.wire.server import Server


def poller_of(server: Server) -> zmq.Poller:
    """Return what wakes when there is something to receive; more may be registered."""
    poller = zmq.Poller()
    local = server._local
    poller.register(server._polled.socket if local is None else local.fd, zmq.POLLIN)
    return poller
