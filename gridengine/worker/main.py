"""What a scheduler starts: `python -P -m gridengine.worker CONNECTION_FILE [RESOURCES]`. RESOURCES
is what the worker is to hold, as JSON of what `encode_demand` makes; without, it holds what all
workers of its dispatcher do.

It connects to the dispatcher and runs an agent, until the dispatcher stops it, it is terminated, or
nothing comes from the dispatcher for too long.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gridengine.errors import GridEngineError
from gridengine.resources.encoding import decode_demand
from gridengine.resources.kinds import Cores
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_memory import KeptBlocks
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import BEGAN, JOB_END, Connection, why_unreachable
from gridengine.wire.messages import (
    TERMINATED,
    Assign,
    Goodbye,
    Hello,
    Message,
    Refuse,
    Rejoin,
    Stop,
    Welcome,
)
from gridengine.worker import runner
from gridengine.worker.agent import Agent, make_hello
from gridengine.worker.environment import Site
from gridengine.worker.figures import Meter, signs_of_life
from gridengine.worker.forkserver import ForkServer
from gridengine.worker.held_runs import HeldRuns
from gridengine.worker.log_limit import LogLimit
from gridengine.worker.memory_limit import memory_here
from gridengine.worker.output_relay import Relay
from gridengine.worker.process_tree import adopt_orphans, end_children
from gridengine.worker.signals import restore_dispositions, unblock
from gridengine.worker.stream_writer import StandardStreams

if TYPE_CHECKING:
    from gridengine.wire.client import Client

REFUSED = 3
"""The exit status of a worker that its dispatcher does not want."""
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR2)
"""What batch systems and people end a worker by; Grid Engine announces SIGKILL by SIGUSR2 (qsub(1),
-notify).
"""
LISTEN_SECONDS = 0.5
END_SECONDS = 60.0
"""How long the batch system has to take note of the end of a worker's own job."""
_LISTEN_BEATS = 5
"""For how many beats a worker that was stopped and goes on listens before it takes silence for the
dispatcher's end.
"""


def main(arguments: Sequence[str]) -> int:
    """Be a worker; return the exit status: 0, or 1 when the cluster or this machine failed, 2 for a
    fault of the set-up, 3 when refused.
    """
    if not 1 <= len(arguments) <= 2:
        print("usage: python -P -m gridengine.worker CONNECTION_FILE [RESOURCES]", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    adopt_orphans()
    restore_dispositions()
    fork_server = ForkServer.fork_off(
        partial(runner.main, site=Site.here())
    )  # forked before ZeroMQ is loaded: it must have neither its threads nor its sockets
    from gridengine.wire.client import Client

    connection = None
    try:
        connection = holding(Connection.load(path), *arguments[1:])
        client = Client(connection)
    except GridEngineError as error:
        fork_server.close()
        print(f"gridengine worker: {error}", file=sys.stderr)
        if connection is not None:  # no dispatcher has answered for a whole lease
            end_job(os.environ.get(JOB_END, ""))
        return 2
    wake, woken = socket.socketpair()
    for end in (wake, woken):
        end.setblocking(False)
    streams = StandardStreams(partial(_wake, woken))
    hello = partial(_hello, connection)
    held = HeldRuns(client, hello) if connection.returns else None
    send = client.send if held is None else held.send
    agent = Agent(
        send,
        fork_server,
        slots=connection.slots,
        grace_seconds=connection.grace_seconds,
        output_bytes=connection.output_bytes,
        streams=streams,
        relay=Relay(send),
        kept=KeptBlocks(connection.kept_bytes or memory_here() // 4, path.parent),
        # What lay here alone a dispatcher that is started again would not know.
        holds_results=held is None,
    )
    meter = Meter(agent.pool.runners.values(), time.process_time)
    client.sign_of_life = partial(next, signs_of_life(meter))
    worker = Worker(connection, client, agent, held)
    try:
        return worker.work(wake, woken)
    finally:
        worker.disconnect()
        streams.close()
        wake.close()
        woken.close()


def _wake(woken: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has enough to read, or has ended
        woken.send(b"\0")


class Worker:
    """Joins an agent to its dispatcher, and decides when to leave.

    Args:
        clock: by which it waits; the client's and the agent's, too.
    """

    def __init__(
        self,
        connection: Connection,
        client: Client,
        agent: Agent,
        held: HeldRuns | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._connection = connection
        self._client = client
        self._agent = agent
        self._held = held
        if held is not None:
            client.introduce = partial(held.introduce, agent)
        self._looked_at = self._listen_until = client.received_at
        # What a worker writes to that no launch script has started is a file of somebody else's.
        logs = (1, 2) if os.environ.get(BEGAN) else ()
        self._log_limits = [LogLimit(descriptor, connection.log_bytes) for descriptor in logs]
        self._log_due = 0.0
        self.reason = ""
        """Why to leave; empty while there is no reason."""
        self.status = 0
        self.abandoned = False

    def work(self, wake: socket.socket, woken: socket.socket) -> int:
        """Work until there is a reason to leave; return the exit status.

        What is written to `woken` makes `wake` readable, and wakes it.
        """
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        for number in _ENDING:
            signal.signal(number, lambda number, frame: self._leave(TERMINATED))
        unblock()
        signal.signal(
            signal.SIGUSR1, signal.SIG_IGN
        )  # some batch systems announce a suspension by it
        status = self.serve(wake, woken)
        signal.set_wakeup_fd(-1)
        return status

    def serve(self, wake: socket.socket, woken: socket.socket) -> int:
        """Work as `work` does, in any thread: signals are left as they are."""
        try:
            with self._clock.waking(partial(_wake, woken)):
                self._client.send(_hello(self._connection))
                self._loop(wake)
        except GridEngineError as error:
            self._leave(error.message, status=1)
        if self.reason != TERMINATED:  # the batch system does not wait
            self._agent.finish_background()
        ends_job = self.reason == TERMINATED and self._end_job_if_alone()
        if not self.abandoned:
            self._agent.hand_over()
        begun = self._agent.close()
        if self._agent.broken:
            end_children()  # those that were the fork server's
        (self._held or self._client).send(Goodbye(self.reason, begun), ())
        if self.abandoned:
            end_job(os.environ.get(JOB_END, ""))
        elif self.reason == TERMINATED and not ends_job:
            self._end_job_if_alone()  # whoever kills all may have come to the dispatcher after us
        return self.status

    def disconnect(self) -> None:
        """Close the connection: a dispatcher that is busy has a whole lease to take what was sent
        last.
        """
        if self.abandoned:
            self._client.close()
        else:
            self._client.close(self._connection.lease_seconds)

    def _end_job_if_alone(self) -> bool:
        """End the job where the dispatcher is gone: with the death of what started this worker
        Slurm ends it, but not always its job.
        """
        alone = bool(os.environ.get(JOB_END)) and not any(
            map(is_listening, self._connection.addresses)
        )
        if alone:
            end_job(os.environ[JOB_END])
        return alone

    def _loop(self, wake: socket.socket) -> None:
        poller = select.poll()
        for fd in (self._client.fd, self._agent.fileno(), wake.fileno()):
            poller.register(fd, select.POLLIN)
        while wait := self._next(self._clock.monotonic()):
            came = self._client.pending  # asked last, see there
            ready = dict(poller.poll(0 if came else math.ceil(wait * 1000)))
            if wake.fileno() in ready:
                wake.recv(4096)
            if self._agent.fileno() in ready:
                self._agent.on_ready()
            if came or self._client.fd in ready:
                for message, buffers in self._client.receive():
                    self.handle(message, buffers)

    def _next(self, now: float) -> float:
        """Do what is due; return after how many seconds to be called again, at least a millisecond,
        or 0 when there is reason to leave.
        """
        if self._held is not None:
            self._held.settle()
        wait = max(
            0.001, min(self._client.tick(now), self._agent.tick(now), self.check_connection(now))
        )
        return 0 if self.reason else wait

    def handle(self, message: Message, buffers: Payload = ()) -> None:
        """Act on a message of the dispatcher.

        Raises:
            ProtocolError: it is none that a worker understands.
        """
        match message:
            case Welcome(epoch=epoch):
                self._client.epoch = epoch
            case Refuse(reason=reason):
                self._leave_refused(reason)
            case Rejoin():
                if not self._client.rejoin(message):
                    self._leave_refused("this dispatcher does not know you any more")
            case Stop():
                self._leave("told to stop")
            case _ if not self.reason:
                if self._held is not None and isinstance(message, Assign):
                    self._held.assigned(message)
                self._agent.handle(message, buffers)

    def check_connection(self, now: float) -> float:
        """Find whether there is a reason to leave; return after how many seconds to look again."""
        connection = self._connection
        if now - self._looked_at > 2 * connection.beat_seconds:
            # This process was stopped (a suspended job), or the machine was: what was sent
            # meanwhile has yet to be read.
            self._listen_until = now + _LISTEN_BEATS * connection.beat_seconds
        self._looked_at = now
        if now > self._log_due:
            self._log_due = now + connection.beat_seconds
            for limit in self._log_limits:
                limit.check()
        if self._agent.broken:
            self._leave(self._agent.broken, status=1)
        elif now - self._client.received_at > connection.lease_seconds and now > self._listen_until:
            self.abandoned = True
            self._leave(
                f"no word from the dispatcher for {connection.lease_seconds:g} seconds", status=1
            )
        return min(connection.beat_seconds, connection.lease_seconds)

    def _leave_refused(self, reason: str) -> None:
        print(
            f"gridengine worker on {socket.gethostname()}: refused: {reason}",
            file=sys.stderr,
            flush=True,
        )
        self._leave(f"refused: {reason}", status=REFUSED)

    def _leave(self, reason: str, *, status: int = 0) -> None:
        if not self.reason:
            self.reason, self.status = reason, status


def holding(connection: Connection, resources: str = "[]") -> Connection:
    """Return the connection of a worker that holds this, as JSON: it has a slot for each core."""
    held = msgspec.json.decode(resources, type=list[tuple[str, list[Any]]])
    if not held:
        return connection
    cores = decode_demand(held, 1.0).resources.get(Cores)
    slots = 1 if cores is None else cores.N
    return msgspec.structs.replace(connection, slots=slots, resources=held)


def _hello(connection: Connection) -> Hello:
    """Return the first message of this worker."""
    return make_hello(
        run_id=connection.run_id,
        slots=connection.slots,
        pid=os.getpid(),
        log=_log_path(),
        elapsed=seconds_since(os.environ.get(BEGAN, "")),
        resources=connection.resources,
    )


def end_job(command: str) -> None:
    """Have the batch system end the job that this process runs in, where somebody says how: nobody
    else is left who might.
    """
    if not command:
        return
    import shlex

    try:
        done = subprocess.run(
            shlex.split(command), stdin=subprocess.DEVNULL, timeout=END_SECONDS, check=False
        )
        if done.returncode != -signal.SIGTERM:  # as of all processes of a job that is being ended
            done.check_returncode()
    except (OSError, subprocess.SubprocessError) as error:
        print(
            f"gridengine worker on {socket.gethostname()}: this job may stay until its time is "
            f"over: {error}",
            file=sys.stderr,
        )


def is_listening(address: str) -> bool:
    """Return whether somebody takes connections at an address as `tcp://host:port`."""
    return not why_unreachable(address, LISTEN_SECONDS)


def seconds_since(began: str) -> float:
    """Return for how long a cluster job has run that began at this time (by /proc/uptime, which
    never jumps); 0 if nobody says.
    """
    if not began:
        return 0.0
    return max(0.0, float(Path("/proc/uptime").read_text().split()[0]) - float(began))


def _log_path() -> str:
    """Return the path of our standard output when that is a file, else an empty text.

    What is not UTF-8 in it is escaped. A worker is known by its last two parts, which are of our
    making.
    """
    try:
        path = os.fsencode(Path("/proc/self/fd/1").readlink())
        return path.decode(errors="backslashreplace") if stat.S_ISREG(os.fstat(1).st_mode) else ""
    except OSError:
        return ""
