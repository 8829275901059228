"""Workers of this machine: their agents live in the dispatcher's own I/O thread, their nurseries in
processes of their own.

To the core they are workers as all others are. What a worker elsewhere does behind a socket is done
here by the same `Agent` at the price of a function call; there is no address, no key and no file
that a stranger could find.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gridengine.schedulers.base import Scheduler
from gridengine.serialize.payload import Buffer, Payload
from gridengine.settings.values import Settings
from gridengine.wire.messages import Beat, Goodbye, Message, Refuse, Stop, Welcome
from gridengine.wire.open_files import FILES_PER_RUNNER, allow_open_files
from gridengine.worker.agent import Agent, introduce
from gridengine.worker.forkserver import ForkServer, is_ready
from gridengine.worker.parent_requests import answer_in_user_process
from gridengine.worker.stream_writer import StandardStreams


class LocalWorkers:
    """Takes the place of a `Server`. All methods but `adopt` are for one thread.

    Args:
        scheduler: says how many calls one worker runs at a time, and how many processes with
            nothing to do it keeps.
        streams: where what calls print is passed on to.
        wake: wakes that thread when it may be asleep.

    Raises:
        ConfigurationError: too few files may be open for so many runners.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        run_id: str,
        settings: Settings,
        streams: StandardStreams,
        wake: Callable[[], None],
    ) -> None:
        self._slots = scheduler.slots
        self._spare = self._slots if scheduler.spare is None else scheduler.spare
        allow_open_files(self._spare, each=FILES_PER_RUNNER)
        self._run_id = run_id
        self._settings = settings
        self._streams = streams
        self._wake = wake
        self._newcomers: deque[tuple[socket.socket, subprocess.Popen[bytes]]] = deque()
        self._starting: list[tuple[socket.socket, subprocess.Popen[bytes]]] = []
        self._closed = False
        self._inbox: deque[tuple[bytes, Message, Payload]] = deque()
        self._agents: dict[bytes, Agent] = {}
        self._poller = select.poll()
        self._beat_at = 0.0
        self._tick_at = 0.0

    def adopt(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        """Take over a nursery that was started at the other end of this socket. For any thread."""
        self._newcomers.append((sock, process))
        if self._closed:
            self._turn_away()
        self._wake()

    def poller(self) -> select.poll:
        """Return what wakes when there is something to receive; more may be registered."""
        return self._poller

    def patience(self, now: float) -> float:
        """Return after how many seconds to be asked for messages even if the poller does not
        wake.
        """
        return (
            0.0
            if self._inbox or self._newcomers
            else max(0.0, self._tick_at - now)
            if self._agents
            else 3600.0
        )

    def receive(self, most: int) -> Iterator[tuple[bytes, Message, Payload]]:
        """Yield what agents have to say."""
        while self._newcomers:
            newcomer = self._newcomers.popleft()
            self._poller.register(newcomer[0], select.POLLIN)
            self._starting.append(newcomer)
        for newcomer in list(self._starting):
            self._take_in(*newcomer)
        self._let_work(time.monotonic())
        while self._inbox and most > 0:
            most -= 1
            yield self._inbox.popleft()

    def _take_in(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        """Make an agent for a nursery once that is ready; of one that has ended without a word, the
        launcher tells.
        """
        try:
            if not is_ready(sock):
                return
            fork_server = ForkServer(sock, process)
        except (EOFError, OSError):
            self._give_up(sock, process)
            return
        self._starting.remove((sock, process))
        self._poller.unregister(sock)
        peer = os.urandom(16)
        agent = self._agents[peer] = Agent(
            partial(self._say, peer),
            fork_server,
            slots=self._slots,
            spare=self._spare,
            grace_seconds=self._settings.grace_seconds,
            output_bytes=self._settings.output_bytes,
            streams=self._streams,
            answer=answer_in_user_process,
        )
        self._poller.register(agent.fileno(), select.POLLIN)
        self._say(peer, introduce(run_id=self._run_id, slots=self._slots, pid=process.pid, log=""))

    def _give_up(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._starting.remove((sock, process))
        self._poller.unregister(sock)
        sock.close()

    def _say(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        self._inbox.append((peer, message, buffers))

    def _let_work(self, now: float) -> None:
        beats = now >= self._beat_at
        if beats:
            self._beat_at = now + self._settings.beat_seconds
        self._tick_at = self._beat_at
        for peer, agent in list(self._agents.items()):
            agent.on_ready()
            self._tick_at = min(self._tick_at, now + agent.tick(now))
            if agent.broken:
                self._end(peer, agent.broken)
            elif beats:
                self._say(peer, Beat())

    def send(self, peer: bytes, message: Message, buffers: Sequence[Buffer] = ()) -> None:
        """Give an agent a message. One that is gone is given nothing."""
        agent = self._agents.get(peer)
        if agent is None or isinstance(message, Welcome):
            return
        if isinstance(message, Stop | Refuse):
            self._end(peer, "told to stop")
        else:
            agent.handle(message, buffers)
            self._tick_at = 0.0

    def _end(self, peer: bytes, reason: str) -> None:
        agent = self._agents.pop(peer)
        self._poller.unregister(agent.fileno())
        agent.finish_background()
        agent.close()
        self._say(peer, Goodbye(reason))

    def beat(self, peer: bytes) -> None:
        """Answer a sign of life: here nobody waits for the answer."""

    def forget(self, peer: bytes) -> None:
        """End an agent that is not needed any more."""
        if peer in self._agents:
            self._end(peer, "forgotten")

    def close(self) -> None:
        """End all runners, and what they left behind; nobody is taken over from here on. May be
        called twice.
        """
        self._closed = True
        for peer in list(self._agents):
            self._end(peer, "closed")
        for newcomer in list(self._starting):
            self._give_up(*newcomer)
        self._turn_away()

    def _turn_away(self) -> None:
        with contextlib.suppress(IndexError):  # another thread may do the same just now
            while True:
                self._newcomers.popleft()[0].close()
