"""The agent's part in calls that make calls: passes on what they and their dispatcher say to each
other, by a socket that each runner opens when it first wants it (`calling_process`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import signal
from collections.abc import Callable

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Payload
from gridengine.wire.channel import Channel
from gridengine.wire.messages import (
    CANCELLED,
    FromClient,
    Message,
    NestedEnded,
    Resumed,
    Returned,
    ToClient,
    Waits,
)
from gridengine.wire.socket_pairs import socket_pair
from gridengine.worker import parent_requests
from gridengine.worker.poller import Poller
from gridengine.worker.runner_handle import RunnerHandle
from gridengine.worker.runner_pool import RunnerPool


class RunnerLink:
    """The agent's end of such a socket; `stalled` as that of its runner."""

    def __init__(self, runner: RunnerHandle) -> None:
        self.runner = runner
        mine, self.theirs = socket_pair()
        self.channel = Channel(mine)
        self.stalled = False

    def close(self) -> None:
        """Close both ends, of which the runner may have one."""
        self.channel.close()
        self.theirs.close()


class NestedCalls:
    """Passes on what the calls of a worker's runners and their dispatcher say to each other.

    Args:
        pool: whose runners these are.
        poller: calls when there is something to read.
        send: is given each message for the dispatcher, with its buffers.
    """

    def __init__(
        self, pool: RunnerPool, poller: Poller, send: Callable[[Message, Payload], None]
    ) -> None:
        self._pool = pool
        self._poller = poller
        self._send = send
        self._links: dict[int, RunnerLink] = {}
        self._preloaded = False
        pool.on_removed = self._end

    def open(self, request: bytes) -> parent_requests.Answer:
        """Answer a runner that requests such a socket.

        Raises:
            LookupError: it is no runner of this worker's, or has one.
        """
        number = int(request[1:])
        if number not in self._pool.runners or number in self._links:
            raise LookupError(f"process {number} of this worker is none that may make calls")
        if not self._preloaded:
            self._preloaded = True
            with contextlib.suppress(OSError):  # one that is gone shows when its events are read
                self._pool.fork_server.preload()
        link = self._links[number] = RunnerLink(self._pool.runners[number])
        self._poller.register(link.channel.fileno(), functools.partial(self._handle, link))
        return b"", link.theirs.fileno()

    def pass_on(self, message: ToClient, buffers: Payload = ()) -> None:
        """Pass a message of the dispatcher on to a runner; one that is gone is told nothing."""
        link = self._links.get(message.runner)
        if link is None:
            return
        if isinstance(message, Resumed) and message.run == link.runner.waits_in:
            allocation = self._pool.end_waiting(link.runner, message.allocation)
            if allocation is not None:
                self._pool.send(link, allocation.message, allocation.payload)
        self._pool.send(link, message, buffers)

    def end_all(self) -> None:
        """End the runners that have such a socket: what they wait for does not come."""
        for link in self._links.values():
            link.runner.end(CANCELLED, signal.SIGKILL, math.inf)

    def _handle(self, link: RunnerLink) -> None:
        """Pass on what a runner has sent."""
        link.theirs.close()
        if link.stalled:
            self._pool.note_stall(link, stalled=not link.channel.flush())
        try:
            for message, buffers in link.channel.poll():
                if not isinstance(message, FromClient) or message.runner != link.runner.id:
                    raise ProtocolError(f"a call sends no {type(message).__name__}")
                if isinstance(message, Waits):
                    self._begin_waiting(link.runner, message)
                else:
                    self._send(message, buffers)
        except ProtocolError:
            link.channel.ended = True  # user code wrote into it
            link.runner.kill()
        if link.channel.ended:
            self._end(link.runner)

    def _begin_waiting(self, runner: RunnerHandle, message: Waits) -> None:
        """Have others run in the place of a call that waits. Nothing is to wait behind it, and what
        waits here for a runner comes after its children: so all that is given back.
        """
        if message.run not in runner.given or runner.waits_in:
            return
        self._pool.begin_waiting(runner, message.run)
        self._send(message, ())
        returned = self._pool.take_all_queued()
        asked, _, shortened = runner.recall(set(runner.given))
        if shortened is not None:
            self._send(shortened, ())
        if returned := [*returned, *asked]:
            self._send(Returned(returned), ())

    def _end(self, runner: RunnerHandle) -> None:
        """Forget a runner: nobody is there any more to be told of its calls."""
        link = self._links.pop(runner.id, None)
        if link is not None:
            self._poller.unregister(link.channel.fileno())
            link.close()
            self._send(NestedEnded(runner.id), ())
