"""The agent's part in nested calls: it forwards messages between runners and their dispatcher, by a
socket that each runner opens at its first nested call (`calling_process`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import signal
from collections.abc import Callable

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Payload
from gridengine.system.polling import Poller
from gridengine.wire import agent_requests
from gridengine.wire.channel import Channel, socket_pair
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
from gridengine.worker.runner_handle import RunnerHandle
from gridengine.worker.runner_pool import RunnerPool


class RunnerLink:
    """The agent's end of the socket to a runner whose calls make nested calls; `stalled` is as in
    `RunnerHandle`.
    """

    def __init__(self, runner: RunnerHandle) -> None:
        self.runner = runner
        mine, self.theirs = socket_pair()
        self.channel = Channel(mine)
        self.stalled = False

    def close(self) -> None:
        """Close both ends; the runner may have its own copy of the other end."""
        self.channel.close()
        self.theirs.close()


class NestedCalls:
    """Forwards messages between a worker's runners and their dispatcher.

    Args:
        poller: calls when a socket can be read.
        send: sends a message with its buffers to the dispatcher.
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

    def open(self, request: bytes) -> agent_requests.Answer:
        """Answer a runner's request for a socket for nested calls.

        Raises:
            LookupError: this worker has no runner with this number, or the runner has a socket
                already.
        """
        number = int(request[1:])
        if number not in self._pool.runners or number in self._links:
            raise LookupError(f"process {number} of this worker may not make calls")
        if not self._preloaded:
            self._preloaded = True
            with contextlib.suppress(OSError):  # one that is gone shows when its events are read
                self._pool.fork_server.preload()
        link = self._links[number] = RunnerLink(self._pool.runners[number])
        self._poller.register(link.channel.fileno(), functools.partial(self._handle, link))
        return b"", link.theirs.fileno()

    def pass_on(self, message: ToClient, buffers: Payload = ()) -> None:
        """Forward a message of the dispatcher to its runner, unless that is gone."""
        link = self._links.get(message.runner)
        if link is None:
            return
        if isinstance(message, Resumed) and message.run == link.runner.waits_in:
            allocation = self._pool.end_waiting(link.runner, message.allocation)
            if allocation is not None:
                self._pool.send(link, allocation.message, allocation.payload)
        self._pool.send(link, message, buffers)

    def end_all(self) -> None:
        """Kill the runners with a socket for nested calls: the awaited outcomes will not come."""
        for link in self._links.values():
            link.runner.end(CANCELLED, signal.SIGKILL, math.inf)

    def _handle(self, link: RunnerLink) -> None:
        """Forward the messages of a runner."""
        link.theirs.close()
        if link.stalled:
            self._pool.note_stall(link, stalled=not link.channel.flush())
        try:
            for message, buffers in link.channel.poll():
                if not isinstance(message, FromClient) or message.runner != link.runner.id:
                    raise ProtocolError(f"a call sends no {type(message).__name__}")
                if isinstance(message, Waits):
                    self.begin_waiting(link.runner, message)
                else:
                    self._send(message, buffers)
        except ProtocolError:
            link.channel.ended = True  # user code wrote into the channel
            link.runner.kill()
        if link.channel.ended:
            self._end(link.runner)

    def begin_waiting(self, runner: RunnerHandle, message: Waits) -> None:
        """Let other calls run in place of a call that waits. Give back all runs behind it and all
        queued batches: the waiting call's nested calls come before them.
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
        """Forget a runner: nobody is to be told of its nested calls any more."""
        link = self._links.pop(runner.id, None)
        if link is not None:
            self._poller.unregister(link.channel.fileno())
            link.close()
            self._send(NestedEnded(runner.id), ())
