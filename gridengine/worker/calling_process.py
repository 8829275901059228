"""The runner process, as seen by a call that submits nested calls."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable

from msgspec import Struct

from gridengine.serialize.payload import Payload
from gridengine.wire.channel import Channel
from gridengine.wire.messages import Allocate
from gridengine.worker import agent_requests
from gridengine.worker.call_context import GVAR
from gridengine.worker.status_block import RUN


class CallingProcess(Struct, frozen=True, eq=False):
    """The runner process.

    `number` is the agent's number for it, `words` its status block. `allocate` switches to another
    allocation in the midst of a call.
    """

    number: int
    pid: int
    words: memoryview
    allocate: Callable[[Allocate, Payload], None]

    @property
    def run(self) -> int:
        """The run in progress; 0 for none."""
        return self.words[RUN]

    def connect(self) -> Channel:
        """Return a new channel to the agent.

        Raises:
            LookupError: the agent gives none; the text says why.
        """
        request = agent_requests.NESTED + b"%d" % self.number
        return Channel(socket.socket(fileno=agent_requests.ask(request)[1]))


class _Here:
    """This process, or the runner that it was forked from."""

    process: CallingProcess | None = None


@functools.cache
def _here() -> _Here:
    return _Here()


def prepare(number: int, words: memoryview, allocate: Callable[[Allocate, Payload], None]) -> None:
    """Enable calls of this process to submit nested calls."""
    _here().process = CallingProcess(number, os.getpid(), words, allocate)


def calling_process() -> CallingProcess | None:
    """Return this runner process if the present code may submit nested calls; else None. It may not
    in a call that its caller makes in its own process, nor in a process that a call has forked.
    """
    process = _here().process
    is_it = process is not None and process.pid == os.getpid() and not GVAR.in_own_process
    return process if is_it else None
