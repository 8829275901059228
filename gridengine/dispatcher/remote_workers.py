"""The link to workers elsewhere: a server's socket, the run directory, and what they print."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator

import zmq

from gridengine.dispatcher.run_directory import tidy, write_connection
from gridengine.schedulers.base import Scheduler
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_memory import KeptBlocks, in_own_block
from gridengine.settings.values import Settings
from gridengine.wire.messages import Beat, Fetched, Message, Output, OutputTaken
from gridengine.wire.transport import Server
from gridengine.worker.memory_limit import memory_here
from gridengine.worker.output_relay import JobsOutput
from gridengine.worker.stream_writer import StandardStreams

log = logging.getLogger("gridengine")


class RemoteWorkers:
    """Workers that call over TCP. All methods are for one thread.

    Args:
        wake: wakes that thread when it may be asleep; called by others.

    Raises:
        ConfigurationError: no socket, or no run directory, can be made.
    """

    def __init__(
        self, scheduler: Scheduler, *, run_id: str, settings: Settings, wake: Callable[[], None]
    ) -> None:
        self._server = Server(host=settings.host, workers=scheduler.max_workers)
        try:
            self.context = write_connection(self._server, scheduler, settings, run_id)
        except BaseException:
            self._server.close()
            raise
        self._kept = KeptBlocks(settings.kept_bytes or memory_here() // 4, self.context.directory)
        self.streams = StandardStreams(wake)
        self._jobs_output = JobsOutput(self.streams)
        self.deadline = math.inf  # whatever comes wakes the poller
        self.send = self._server.send
        self.forget = self._server.forget
        log.info("what calls print goes to the workers' logs below %s", self.context.directory)

    def poller(self) -> zmq.Poller:
        """Return what wakes when there is something to receive; more may be registered."""
        return self._server.poller()

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterator[tuple[bytes, Message, Payload]]:
        """Yield at most so many messages of workers, each with its sender."""
        for peer, message, buffers in self._server.receive(most):
            if isinstance(message, Output):
                self._jobs_output.take(peer, message, bytes(buffers[0]))
                continue
            if isinstance(message, Beat):
                self._server.beat(peer)
            if isinstance(message, Fetched):
                yield peer, message, self._kept.take_in(buffers, in_own_block)
                continue
            yield peer, message, buffers
        for peer, size in self._jobs_output.taken():
            self._server.send(peer, OutputTaken(size))

    def stop_workers(self) -> None:
        """Stop none: the launcher does, and they leave when their dispatcher is gone."""

    def close(self, *, failed: bool = False) -> None:
        """Close the socket, and remove the run directory but for logs with text."""
        try:
            self._server.close()
        finally:
            tidy(self.context, failed=failed)
