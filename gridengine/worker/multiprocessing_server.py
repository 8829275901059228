"""What runners are given, when they ask, of the state that `multiprocessing` has in the process
that their agent is in.
"""

from __future__ import annotations

import socket

from gridengine.worker import parent_requests


def here(question: bytes) -> parent_requests.Answer:
    """Answer in the user's own process, for workers of this machine.

    Raises:
        LookupError: what is asked for is no more.
    """
    if question == parent_requests.AUTHENTICATION_KEY:
        from multiprocessing.process import current_process

        return bytes(current_process().authkey), None
    if question[:1] == parent_requests.DESCRIPTOR:
        from gridengine.serialize.descriptors import Descriptor

        return b"", Descriptor.find(question[1:])
    return elsewhere(question)


def elsewhere(question: bytes) -> parent_requests.Answer:
    """Answer in a worker that may be on any machine: its runners share a resource tracker, and
    nothing of the user's process.

    Raises:
        LookupError: it is something of the user's process.
    """
    if question != parent_requests.RESOURCE_TRACKER:
        raise LookupError(
            f"the worker on {socket.gethostname()} has nothing of the process that the calls come "
            "from"
        )
    from multiprocessing.resource_tracker import getfd

    return b"", getfd()
