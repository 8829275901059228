"""The link to workers elsewhere, whose messages come to a server's socket; alone, or beside the
link to workers of this machine.
"""

from __future__ import annotations

import itertools
import logging
import math
import select
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from gridengine.dispatcher.worker_links import LocalWorkers

log = logging.getLogger("gridengine")

ANSWERS_PER_LEASE, MOST_UNANSWERED = 6, 4
"""A worker knows by the answers to its beats that its dispatcher lives. With ten thousand workers
the answers take more time than all else, so a beat is answered if it is the fourth without an
answer; with a short lease earlier, so that a worker hears six answers within a lease.
"""


class RemoteWorkers:
    """A `WorkersLink` to workers elsewhere: they connect over TCP, or exchange files. The folder
    `home` has their keys.

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
        self._heard_each = settings.lease_seconds / ANSWERS_PER_LEASE
        self._beat_by = math.inf
        """When all workers are sent a sign of life if not all of their messages have been read
        before.
        """
        beats = int(self._heard_each // beat_seconds(scheduler, settings))
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
        count = 0
        for peer, message, buffers in self._server.receive(most if came else 0):
            count += 1
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
        if count < most and not self._server.pending:  # it drops some itself
            self._beat_by = math.inf
        elif now >= self._beat_by:
            self._server.beat_all()
            self._beat_by = now + self._heard_each
        else:
            self._beat_by = min(self._beat_by, now + self._heard_each)

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


class MixedWorkers:
    """The links of a stand-alone dispatcher that has workers on its own machine, beside workers
    that people start by hand elsewhere. All methods are for one thread. `home` is its folder.
    """

    def __init__(self, local: LocalWorkers, remote: RemoteWorkers, home: Home) -> None:
        self._local = local
        self._remote = remote
        self.context = local.context._replace(epoch=home.epoch, directory=home.folder)
        self.streams, self.keys = local.streams, remote.keys
        self.poller = local.poller
        self.poller.register(remote.fd, select.POLLIN)
        self.take_receipts = remote.take_receipts
        self.acknowledge = remote.acknowledge
        self.stop_workers = local.stop_workers

    @property
    def deadline(self) -> float:
        return min(self._local.deadline, self._remote.deadline)

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterable[tuple[bytes, Message, Payload]]:
        """Return messages of workers, at most `most` from each link, each with its sender."""
        return itertools.chain(
            self._local.receive(ready, now, most), self._remote.receive(ready, now, most)
        )

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        link = self._local if self._local.has(peer) else self._remote
        link.send(peer, message, buffers)

    def forget(self, peer: bytes) -> None:
        self._local.forget(peer)
        self._remote.forget(peer)

    def lasts(self, peer: bytes) -> bool:
        """Return whether a worker outlives this process: only workers that connect over TCP do."""
        return not self._local.has(peer)

    def close(self, *, failed: bool = False) -> None:
        """Close both links for good. `failed`: whether any call has failed."""
        try:
            self._local.close(failed=failed)
        finally:
            self._remote.close(failed=failed)


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
