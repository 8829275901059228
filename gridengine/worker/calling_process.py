"""A process that runs calls, as those of its calls find it that make calls of the dispatcher that
runs them.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable

from msgspec import Struct

from gridengine.serialize.payload import Payload
from gridengine.wire.channel import Channel
from gridengine.wire.messages import Allocate
from gridengine.worker import parent_requests
from gridengine.worker.call_context import GVAR
from gridengine.worker.status_block import RUN


class CallingProcess(Struct, frozen=True, eq=False):
    """Such a process.

    `number` is what its agent knows it by, `words` its status block; `allocate` has it keep to
    another allocation in the midst of a call.
    """

    number: int
    pid: int
    words: memoryview
    allocate: Callable[[Allocate, Payload], None]

    @property
    def run(self) -> int:
        """The run in progress, 0 when none is."""
        return self.words[RUN]

    def connect(self) -> Channel:
        """Return a channel that leads to the agent.

        Raises:
            LookupError: there is none; the text says why.
        """
        request = parent_requests.CHILDREN + b"%d" % self.number
        return Channel(socket.socket(fileno=parent_requests.ask(request)[1]))


class _Here:
    """What this process is, or was before it forked."""

    process: CallingProcess | None = None


@functools.cache
def _here() -> _Here:
    return _Here()


def prepare(number: int, words: memoryview, allocate: Callable[[Allocate, Payload], None]) -> None:
    """Have calls of this process able to make calls of the dispatcher that runs them."""
    _here().process = CallingProcess(number, os.getpid(), words, allocate)


def calling_process() -> CallingProcess | None:
    """Return this process if what runs here may make calls of the dispatcher that runs it: not so
    in a call that is made in its caller's own process, nor in a process that a call has forked.
    """
    process = _here().process
    is_it = process is not None and process.pid == os.getpid() and not GVAR.in_own_process
    return process if is_it else None
