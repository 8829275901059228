"""The link to workers elsewhere, whose messages come to a server's socket."""

from __future__ import annotations

import logging
import math
import select
from collections.abc import Callable, Iterable, Iterator

from gridengine.dispatcher.core_policy import beat_seconds, check_lease
from gridengine.dispatcher.run_directory import (
    EXCHANGE,
    LOGS,
    Home,
    folder_of_run,
    tidy,
    tidy_logs,
    write_connection,
)
from gridengine.output.jobs_output import JobsOutput
from gridengine.output.stream_writer import StandardStreams
from gridengine.schedulers.base import MOST_BY_HAND, Scheduler
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_memory import ResultBlocks, in_own_block
from gridengine.settings.values import Settings
from gridengine.system import usable_memory
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.messages import Beat, Fetched, Measured, Message, Output, Saved
from gridengine.wire.server import Server
from gridengine.wire.session_server import SessionServer

log = logging.getLogger("gridengine")

ANSWERS_PER_LEASE, MOST_UNANSWERED = 6, 4
"""A worker knows by the answers to its beats that its dispatcher lives. With ten thousand workers
the answers take more time than all else, so a beat is answered if it is the fourth without an
answer; with a short lease earlier, so that a worker hears six answers within a lease.
"""


class RemoteWorkers:
    """Workers elsewhere: they connect over TCP, or exchange files. All methods are for one thread.

    Args:
        wake: wakes that thread if it sleeps; other threads call it.
        home: the folder of a stand-alone dispatcher, with the keys of its workers.
        clock: that thread's.

    Raises:
        ConfigurationError: no socket, or no run directory, can be made.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        run_id: str,
        settings: Settings,
        wake: Callable[[], None],
        home: Home | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._home = home
        self._server = _server(scheduler, run_id, settings, home, clock)
        if home is not None and home.epoch:
            self._server.hold_acknowledgements()
        try:
            self.context = write_connection(self._server, scheduler, settings, run_id, home)
        except BaseException:
            self._server.close()
            raise
        try:
            self._open(scheduler, settings, wake)
        except BaseException:
            self.close()
            raise

    def _open(self, scheduler: Scheduler, settings: Settings, wake: Callable[[], None]) -> None:
        self._server.open()
        self._blocks = ResultBlocks(
            settings.kept_bytes or usable_memory() // 4, self.context.directory
        )
        self.streams = StandardStreams(wake)
        self._jobs_output = JobsOutput(self.streams) if self._home is None else None
        """Receives the output of jobs of this process; None if jobs belong to clients elsewhere."""
        self.send = self._server.send
        self.forget = self._server.forget
        heard_each = settings.lease_seconds / ANSWERS_PER_LEASE
        beats = int(heard_each // beat_seconds(scheduler, settings))
        self._answered_beats = max(1, min(MOST_UNANSWERED, beats))
        self.fd = self._server.fd
        self.poller = select.poll()
        self.poller.register(self.fd, select.POLLIN)
        self.take_receipts = self._server.take_receipts
        self.acknowledge = self._server.acknowledge
        log.info("what calls print goes to the workers' logs below %s", self.context.directory)

    @property
    def keys(self) -> ServerKeys:
        """The keys, and the port, by which workers connect."""
        return self._server.keys

    @property
    def deadline(self) -> float:
        """When `receive` must be called even if nothing polls: at once when a message has arrived,
        because its descriptor polls as readable only once.
        """
        return 0.0 if self._server.pending else math.inf

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterator[tuple[bytes, Message, Payload]]:
        """Yield at most `most` messages of workers, each with its sender."""
        output = self._jobs_output
        came = self.fd in ready or self._server.pending
        for peer, message, buffers in self._server.receive(most if came else 0):
            if output is not None and isinstance(message, Output):
                output.take(peer, message, bytes(buffers[0]))
                continue
            if isinstance(message, Beat | Measured):
                self._server.answer_beat(peer, self._answered_beats)
            if isinstance(message, Fetched | Saved):
                yield peer, message, self._blocks.take_in(buffers, in_own_block)
                continue
            yield peer, message, buffers
        for peer, taken in output.taken() if output is not None else ():
            self._server.send(peer, taken)

    def lasts(self, peer: bytes) -> bool:
        """Return True: these workers outlive this process."""
        return True

    def stop_workers(self) -> None:
        """Do nothing: the launcher stops them, and they leave when their dispatcher is gone."""

    def close(self, *, failed: bool = False) -> None:
        """Close the socket, and remove the run directory except for logs with text."""
        try:
            self._server.close()
        finally:
            if self._home is None:
                tidy(self.context, failed=failed)
            else:
                tidy_logs(self.context.directory / LOGS)


def _server(
    scheduler: Scheduler, run_id: str, settings: Settings, home: Home | None, clock: Clock
) -> SessionServer:
    """Return the dispatcher's end of the scheduler's transport."""
    keys = None if home is None else home.stored.workers
    epoch = 0 if home is None else home.epoch
    if scheduler.transport == "files":
        from gridengine.wire.file_server import FileServer  # few use it

        check_lease(settings)
        exchange = folder_of_run(settings, run_id, home) / EXCHANGE
        return FileServer(exchange, keys=keys, epoch=epoch, clock=clock)
    return Server(
        host=settings.host,
        workers=MOST_BY_HAND if scheduler.local else scheduler.max_workers,
        keys=keys,
        epoch=epoch,
        ports=settings.port_range,
        clock=clock,
    )
