"""The links of the I/O thread to workers: their interface (`WorkersLink`), and the link to the
workers on this machine (`LocalWorkers`). Links to workers elsewhere are in `remote_workers`.

The agents of local workers run in the dispatcher's own I/O thread, and their fork servers in
processes of their own. To the core they are workers like all others. The same `Agent` that
elsewhere sits behind a socket costs a function call here, and there is no address, key or file that
another process could find. The workers of a stand-alone dispatcher write to a log of their own.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

from gridengine.dispatcher.run_directory import LOGS, Home
from gridengine.errors import ConfigurationError
from gridengine.output.stream_writer import LogLimit, OutputExcerpt, StandardStreams
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import LaunchContext
from gridengine.serialize.payload import Buffer, Payload
from gridengine.serialize.shared_memory import ResultBlocks
from gridengine.settings.values import Settings
from gridengine.system import usable_memory
from gridengine.wire.agent_requests import answer_in_user_process
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.messages import Beat, Goodbye, Message, Refuse, Stop, Welcome
from gridengine.wire.processes import FILES_PER_RUNNER, allow_open_files, make_hello
from gridengine.worker.agent import HANDLERS, Agent
from gridengine.worker.forkserver import ForkServer, is_ready
from gridengine.worker.meter import Meter
from gridengine.worker.runner_output import Relay

NAME = "local-workers.log"
TICK_DELAY_SECONDS = 0.01
"""An agent looks at its time limits this long after a message: doing so for each message would cost
more than the message.
"""
PRINTED_BYTES = 64 * 1024
"""Where there is no log, this many bytes of calls' output are stored for `gridengine logs`."""


class WorkersLink(Protocol):
    """The way to the workers: `RemoteWorkers`, `LocalWorkers` for those on this machine, or
    `MixedWorkers` for both. All methods are for one thread.

    Each takes the same arguments. `wake` wakes that thread if it sleeps; other threads call it.
    `clock` is that thread's. `home` is the folder of a stand-alone dispatcher.

    context: how the launcher lets workers connect.
    streams: the destination of the output of calls.
    poller: wakes when there is something to receive; other descriptors may be registered too.
    deadline: the monotonic time at which `receive` must be called even if nothing polls.
    keys: the keys, and the port, by which workers connect; None if they need none.
    """

    @property
    def context(self) -> LaunchContext: ...
    @property
    def streams(self) -> StandardStreams: ...
    @property
    def poller(self) -> select.poll: ...
    @property
    def deadline(self) -> float: ...
    @property
    def keys(self) -> ServerKeys | None: ...

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterable[tuple[bytes, Message, Payload]]:
        """Return at most `most` messages of workers, each with its sender. `ready` are the
        descriptors that polled as readable.
        """

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        """Send a message to a worker. Do nothing if the worker is gone."""

    def forget(self, peer: bytes) -> None:
        """Drop everything that is stored for a worker."""

    def stop_workers(self) -> None:
        """Stop the workers that the link itself can stop, before the launcher is closed."""

    def close(self, *, failed: bool = False) -> None:
        """Close the link for good, after the launcher. `failed`: whether any call has failed."""


class LastingLink(WorkersLink, Protocol):
    """A link of which some workers outlive this process and go on with the next."""

    def lasts(self, peer: bytes) -> bool:
        """Return whether a worker outlives this process."""

    def take_receipts(self) -> dict[bytes, int]:
        """Return, per worker, the number of the latest message that came since the last call."""

    def acknowledge(self, receipts: Mapping[bytes, int]) -> None:
        """Acknowledge messages to workers, which then need not store them any more."""


class LocalLog:
    """A log file beside the logs of other workers, within the setting `log_bytes`. A restarted
    dispatcher appends to it.

    Raises:
        ConfigurationError: it cannot be written.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.path = folder / LOGS / NAME
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self.fd = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {self.path}: {error.strerror}",
                hint="free space there, or set GRIDENGINE_RUN_DIRECTORY to another folder",
            ) from error
        self._limit = LogLimit(self.fd, settings.log_bytes)

    def check(self) -> None:
        """Shorten the file if it exceeds the setting."""
        self._limit.check()

    def close(self) -> None:
        """Close the file, once nobody writes to it any more. May be called twice."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


SpawnedProcess: TypeAlias = tuple[socket.socket, subprocess.Popen[bytes]]


class LocalWorkers:
    """A `WorkersLink` to workers whose agents run in this thread. `adopt` is for any thread.

    Args:
        scheduler: says how many calls one worker runs at a time, and how many idle processes it
            keeps.
        home: with a folder, the output of jobs is sent on, as by workers elsewhere.

    Raises:
        ConfigurationError: too few files may be open for so many runners; or the log cannot be
            made.
    """

    keys = None

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
        self._clock = clock
        self._relays = home is not None
        self._slots = scheduler.slots
        self._spare = self._slots if scheduler._spare is None else scheduler._spare
        allow_open_files(self._spare, each=FILES_PER_RUNNER)
        self.context = LaunchContext(run_id, Path(), Path(), self.adopt)
        given = None if home is None else home.output
        self._log = LocalLog(home.folder, settings) if home is not None and given is None else None
        if self._log is None:
            excerpt = OutputExcerpt(PRINTED_BYTES)
            self.streams = StandardStreams(self._stream_has_room, given, excerpt)
        else:
            self.streams = StandardStreams(self._stream_has_room, (self._log.fd, self._log.fd))
        self._settings = settings
        try:
            folder = settings.runs
        except ConfigurationError:  # the user has no home
            import tempfile  # imported here: it takes milliseconds, and few need it

            folder = Path(tempfile.gettempdir())
        self._blocks = ResultBlocks(settings.kept_bytes or usable_memory() // 4, folder)
        self._sent_blocks = ResultBlocks() if home is not None else None
        """The blocks of results that a client of this machine may be sent as they are."""
        self._wake = wake
        self._adopted: deque[SpawnedProcess] = deque()
        self._starting: list[SpawnedProcess] = []
        self._closed = False
        self._inbox: deque[tuple[bytes, Message, Payload]] = deque()
        self._agents: dict[bytes, Agent] = {}
        self._meters: dict[bytes, Meter] = {}
        self._peers: dict[int, bytes] = {}
        """The worker of each agent, by the agent's descriptor."""
        self.poller = select.poll()
        self._beat_at = 0.0
        self.deadline = math.inf
        self._has_room = False

    def adopt(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        """Take over a fork server that was started at the socket's other end. For any thread."""
        self._adopted.append((sock, process))
        # `close` may have emptied the queue just before.
        if self._closed:
            self._close_adopted()
        self._wake()

    def _stream_has_room(self) -> None:
        """Let agents continue to read the output of runners. For any thread."""
        self._has_room = True
        self._wake()

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterable[tuple[bytes, Message, Payload]]:
        """Let agents read and write; return at most `most` of their messages."""
        if self._adopted or self._starting:
            self._connect()
        for fd in ready:
            peer = self._peers.get(fd)
            if peer is not None:
                self._agents[peer].on_ready()
                self.deadline = min(self.deadline, now + TICK_DELAY_SECONDS)
        if now >= self.deadline or self._has_room:
            self._tick(now)
        inbox = self._inbox
        if len(inbox) <= most:
            self._inbox = deque()
            return inbox
        self.deadline = 0.0
        return [inbox.popleft() for _ in range(most)]

    def _connect(self) -> None:
        while self._adopted:
            spawned = self._adopted.popleft()
            self.poller.register(spawned[0], select.POLLIN)
            self._starting.append(spawned)
        for spawned in list(self._starting):
            self._make_agent(*spawned)

    def _make_agent(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        """Make an agent for a fork server, once that is ready. If the fork server has ended before,
        the launcher reports it.
        """
        peer = os.urandom(16)
        try:
            if not is_ready(sock):
                return
            post = partial(self._post, peer)
            agent = Agent(
                post,
                ForkServer(sock, process),
                slots=self._slots,
                spare=self._spare,
                grace_seconds=self._settings.grace_seconds,
                output_bytes=self._settings.output_bytes,
                streams=self.streams,
                relay=Relay(post, alone=self._log is None) if self._relays else None,
                answer=answer_in_user_process,
                result_blocks=self._blocks,
                sent_blocks=self._sent_blocks,
                clock=self._clock,
            )
        except (EOFError, OSError):
            self._give_up(sock, process)
            return
        self._starting.remove((sock, process))
        self.poller.unregister(sock)
        self._agents[peer] = agent
        self._meters[peer] = Meter(agent.pool.runners.values(), clock=self._clock)
        self._peers[agent.fileno()] = peer
        self.poller.register(agent.fileno(), select.POLLIN)
        self.deadline = 0.0
        log = "" if self._log is None else str(self._log.path)
        hello = make_hello(run_id=self.context.id, slots=self._slots, pid=process.pid, log=log)
        self._post(peer, hello)

    def _give_up(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._starting.remove((sock, process))
        self.poller.unregister(sock)
        sock.close()

    def _post(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        self._inbox.append((peer, message, buffers))

    def _tick(self, now: float) -> None:
        """Let agents enforce time limits; end broken agents; send beats and measurements, as
        workers elsewhere do.
        """
        self._has_room = False
        beats = now >= self._beat_at
        if beats:
            self._beat_at = now + self._settings.beat_seconds
            if self._log is not None:
                self._log.check()
        self.deadline = self._beat_at if self._agents else math.inf
        for peer, agent in list(self._agents.items()):
            self.deadline = min(self.deadline, now + agent.tick(now))
            if agent.broken:
                self._end(peer, agent.broken)
            elif beats:
                self._post(peer, self._meters[peer].measure() or Beat())

    def has(self, peer: bytes) -> bool:
        """Return whether this link has a worker."""
        return peer in self._agents

    def send(self, peer: bytes, message: Message, buffers: Sequence[Buffer] = ()) -> None:
        """Pass a message to an agent. Do nothing if the agent is gone."""
        agent = self._agents.get(peer)
        if agent is None:
            return
        handler = HANDLERS.get(type(message))
        if handler is not None:
            handler(agent, message, buffers)
            self.deadline = min(self.deadline, self._clock.monotonic() + TICK_DELAY_SECONDS)
            if self._inbox:
                self.deadline = 0.0
        elif not isinstance(message, Welcome):
            assert isinstance(message, Stop | Refuse)
            self._end(peer, "told to stop")

    def _end(self, peer: bytes, reason: str) -> None:
        agent = self._agents.pop(peer)
        del self._meters[peer]
        self.poller.unregister(agent.fileno())
        del self._peers[agent.fileno()]
        agent.finish_background()
        begun = agent.close()
        self._post(peer, Goodbye(reason, begun))
        self.deadline = 0.0

    def forget(self, peer: bytes) -> None:
        """End an agent that is not needed any more."""
        if peer in self._agents:
            self._end(peer, "forgotten")

    def stop_workers(self) -> None:
        """Stop all agents, before the launcher kills their fork servers."""
        self.close()

    def close(self, *, failed: bool = False) -> None:
        """End all runners and the processes that they have left behind; adopt no more fork servers.
        May be called twice.
        """
        self._closed = True
        for peer in list(self._agents):
            self._end(peer, "closed")
        for spawned in list(self._starting):
            self._give_up(*spawned)
        self._close_adopted()
        if self._log is not None:
            self.streams.close()
            self._log.close()

    def _close_adopted(self) -> None:
        with contextlib.suppress(IndexError):  # another thread may be emptying it too
            while True:
                self._adopted.popleft()[0].close()
