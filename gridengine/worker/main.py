"""The main process of a worker: `python -P -m gridengine.worker CONNECTION_FILE [RESOURCES]`.

RESOURCES are the resources that this worker has, as JSON of `encode_demand`; without the argument
it has those of all workers of its dispatcher. It connects to the dispatcher and runs an agent,
until the dispatcher stops it, it gets a signal, or the dispatcher is silent for a whole lease.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from gridengine.call_context import BEGAN, JOB_END, LOG
from gridengine.errors import GridEngineError
from gridengine.output.stream_writer import LogLimit, StandardStreams
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_memory import ResultBlocks
from gridengine.system import Descendants, usable_memory
from gridengine.system.machine import own_path, uptime
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import Connection, folder_at
from gridengine.wire.messages import (
    TERMINATED,
    Assign,
    Goodbye,
    Hello,
    Leaving,
    Message,
    Refuse,
    Rejoin,
    Stop,
    Welcome,
)
from gridengine.wire.processes import make_hello
from gridengine.worker.agent import Agent
from gridengine.worker.forkserver import (
    ForkServer,
    RunnerDescriptors,
    end_all,
    restore_dispositions,
    unblock,
)
from gridengine.worker.held_runs import HeldRuns
from gridengine.worker.meter import Meter, signs_of_life
from gridengine.worker.pulls import PeerKeys
from gridengine.worker.runner_output import Relay

if TYPE_CHECKING:
    from gridengine.wire.session_client import SessionClient

REFUSED = 3
"""The exit status of a worker that its dispatcher refuses."""
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR2)
"""The signals by which batch systems and people end a worker. Grid Engine announces SIGKILL by
SIGUSR2 (qsub(1), -notify).
"""
END_SECONDS = 60.0
"""How long the command that ends the worker's own job may take."""
_LISTEN_BEATS = 5
"""After this process was suspended: for how many beats it reads what has arrived before it takes
silence for the dispatcher's end.
"""


def main(arguments: Sequence[str]) -> int:
    """Run a worker. Return the exit status: 0; 1 when the cluster or this machine failed; 2 for a
    fault of the set-up; 3 when refused.
    """
    if not 1 <= len(arguments) <= 2:
        print("usage: python -P -m gridengine.worker CONNECTION_FILE [RESOURCES]", file=sys.stderr)
        return 2
    path = Path(arguments[0]).absolute()
    Descendants()  # from here on, orphans become this process's children
    restore_dispositions()
    # Forked before ZeroMQ is loaded: it must have neither its threads nor its sockets.
    fork_server = ForkServer.fork_off(_be_runner, _make_ready)
    connection = None
    try:
        connection = holding(Connection.load(path), *arguments[1:])
        client = _connected(connection)
    except GridEngineError as error:
        fork_server.close()
        print(f"gridengine worker: {error}", file=sys.stderr)
        if connection is not None:  # no dispatcher has answered for a whole lease
            end_job(os.environ.get(JOB_END, ""))
        return 2
    gc.freeze()  # all is imported, and stays
    gc.enable()
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
        result_blocks=ResultBlocks(connection.kept_bytes or usable_memory() // 4, path.parent),
        # A restarted dispatcher would not know results that only this worker has.
        holds_results=held is None,
        peer_keys=_peer_keys(connection),
    )
    meter = Meter(agent.pool.runners.values(), time.process_time)
    client.sign_of_life = partial(next, signs_of_life(meter))
    worker = WorkerProcess(connection, client, agent, held)
    try:
        return worker.work(wake, woken)
    finally:
        worker.disconnect()
        streams.close()
        wake.close()
        woken.close()


def _be_runner(descriptors: RunnerDescriptors) -> NoReturn:
    from gridengine.call_context.environment import SiteEnvironment
    from gridengine.worker import runner

    runner.main(descriptors, SiteEnvironment.here())


def _make_ready() -> None:
    """Import in the fork server alone what runners need, while the agent imports ZeroMQ."""
    from gridengine.worker import runner

    runner.make_ready()


def _connected(connection: Connection) -> SessionClient:
    """Connect to the dispatcher, by the transport that its address names.

    Raises:
        ConfigurationError: the dispatcher cannot be reached.
    """
    exchange = folder_at(connection.addresses[0])
    if exchange is not None:
        from gridengine.wire.file_connection import FileConnection  # few use it

        return FileConnection(connection, exchange)
    from gridengine.wire.dispatcher_connection import DispatcherConnection  # imports ZeroMQ

    return DispatcherConnection(connection)


def _wake(woken: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the socket is full, so the loop wakes anyway; or it closed
        woken.send(b"\0")


class WorkerProcess:
    """Connects an agent to its dispatcher, and decides when to leave.

    Args:
        clock: the clock of this loop, the client and the agent.
    """

    def __init__(
        self,
        connection: Connection,
        client: SessionClient,
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
        # Limit only logs that a launch script made: the output of other workers goes to files that
        # belong to somebody else.
        logs = (1, 2) if os.environ.get(BEGAN) else ()
        self._log_limits = [LogLimit(descriptor, connection.log_bytes) for descriptor in logs]
        self._log_due = 0.0
        self.reason = ""
        """Why to leave; empty while the worker goes on."""
        self.status = 0
        self.abandoned = False
        self._terminated = False
        """Whether a signal has asked to leave while calls ask whether they must stop."""
        self._wait_until = math.inf
        """Until when these calls have time to stop, once they were told."""

    def work(self, wake: socket.socket, woken: socket.socket) -> int:
        """Work until there is a reason to leave; return the exit status. Signal handlers write to
        `woken`, which makes `wake` readable and wakes the loop.
        """
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        for number in _ENDING:
            signal.signal(number, lambda number, frame: self._terminate())
        unblock()
        # Some batch systems announce a suspension by SIGUSR1.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        status = self.serve(wake, woken)
        signal.set_wakeup_fd(-1)
        return status

    def serve(self, wake: socket.socket, woken: socket.socket) -> int:
        """Work as `work` does, but in any thread and without signal handlers."""
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
            end_all(Descendants())  # the dead fork server's children, which this process has
        (self._held or self._client).send(Goodbye(self.reason, begun), ())
        if self.abandoned:
            end_job(os.environ.get(JOB_END, ""))
        elif self.reason == TERMINATED and not ends_job:
            self._end_job_if_alone()  # ask again: the dispatcher may have been killed after us
        return self.status

    def disconnect(self) -> None:
        """Close the connection. A busy dispatcher has a whole lease to acknowledge the last
        messages.
        """
        if self.abandoned:
            self._client.close()
        else:
            self._client.close(self._connection.lease_seconds)

    def _end_job_if_alone(self) -> bool:
        """End this job if the dispatcher is gone, and return whether that is so. When the process
        that started this worker dies, Slurm ends the worker, but not always its job.
        """
        if not os.environ.get(JOB_END):
            return False
        from gridengine.wire.exchange_folder import is_listening  # few jobs need it

        alone = not any(map(is_listening, self._connection.addresses))
        if alone:
            end_job(os.environ[JOB_END])
        return alone

    def _loop(self, wake: socket.socket) -> None:
        poller = select.poll()
        for fd in (self._client.fd, self._agent.fileno(), wake.fileno()):
            poller.register(fd, select.POLLIN)
        while wait := self._next(self._clock.monotonic()):
            came = self._client.pending  # ask last: see `PolledSocket`
            ready = dict(poller.poll(0 if came else math.ceil(wait * 1000)))
            if wake.fileno() in ready:
                wake.recv(4096)
            if self._agent.fileno() in ready:
                self._agent.on_ready()
            if came or self._client.fd in ready:
                for message, buffers in self._client.receive():
                    self.handle(message, buffers)

    def _next(self, now: float) -> float:
        """Do everything that is due. Return after how many seconds to call this again, at least a
        millisecond; or 0 when there is a reason to leave.
        """
        if self._held is not None:
            self._held.settle()
        if self._terminated:
            self._wait_for_calls(now)
        wait = max(
            0.001,
            min(
                self._client.tick(now),
                self._agent.tick(now),
                self.check_connection(now),
                self._wait_until - now,
            ),
        )
        return 0 if self.reason else wait

    def _terminate(self) -> None:
        """Leave because a signal asks for it: at once, or when the calls that use checkpoints have
        stopped. Runs in the signal's handler: the loop tells the calls.
        """
        if self._agent.listens:
            self._terminated = True
        else:
            self._leave(TERMINATED)

    def _wait_for_calls(self, now: float) -> None:
        """Tell calls to stop, the first time; leave when all have, or their time is over."""
        if self._wait_until == math.inf:
            seconds = self._connection.checkpoint_seconds
            self._wait_until = now + seconds
            self._agent.leave_by(seconds, now=True)
            self._client.send(Leaving())
        if not self._agent.listens or now >= self._wait_until:
            self._leave(TERMINATED)

    def handle(self, message: Message, buffers: Payload = ()) -> None:
        """Act on a message of the dispatcher.

        Raises:
            ProtocolError: a worker does not understand such a message.
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
        """Check for a reason to leave. Return after how many seconds to check again."""
        connection = self._connection
        if now - self._looked_at > 2 * connection.beat_seconds:
            # This process or the machine was suspended: messages that were sent meanwhile have yet
            # to be read, so silence proves nothing.
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
    """Return the connection of a worker with these resources, given as JSON. Such a worker has a
    slot for each core.
    """
    held = msgspec.json.decode(resources, type=list[tuple[str, list[Any]]])
    if not held:
        return connection
    from gridengine.resources.demand import decode_demand  # workers without start sooner
    from gridengine.resources.kinds import Cores

    cores = decode_demand(held, 1.0).resources.get(Cores)
    slots = 1 if cores is None else cores.N
    return msgspec.structs.replace(connection, slots=slots, resources=held)


def _peer_keys(connection: Connection) -> PeerKeys | None:
    """Return by which keys this worker and others get results from each other; None where messages
    are files, or where no results stay at workers.
    """
    if connection.returns or folder_at(connection.addresses[0]) is not None:
        return None
    first, last = connection.ports
    return PeerKeys(*connection.pair, ports=range(first, last + 1) if last else ())


def _hello(connection: Connection) -> Hello:
    """Return this worker's first message."""
    return make_hello(
        run_id=connection.run_id,
        slots=connection.slots,
        pid=os.getpid(),
        log=_log_path(),
        # The launch script notes when the job began, in seconds of `uptime`.
        elapsed=max(0.0, uptime() - float(began)) if (began := os.environ.get(BEGAN)) else 0.0,
        resources=connection.resources,
        pulls=_peer_keys(connection) is not None,
    )


def end_job(command: str) -> None:
    """End the cluster job that this process runs in, by this command, if there is one: nobody else
    is left to end it.
    """
    if not command:
        return
    import shlex  # few jobs need these
    import subprocess

    try:
        done = subprocess.run(
            shlex.split(command), stdin=subprocess.DEVNULL, timeout=END_SECONDS, check=False
        )
        # The job's end may end the command too, by SIGTERM: that is no failure.
        if done.returncode != -signal.SIGTERM:
            done.check_returncode()
    except (OSError, subprocess.SubprocessError) as error:
        print(
            f"gridengine worker on {socket.gethostname()}: this job may stay until its time is "
            f"over: {error}",
            file=sys.stderr,
        )


def _log_path() -> str:
    """Return the path of this process's standard output if that is a file, else an empty text; or
    the path that the job was told.

    Bytes that are not UTF-8 are escaped. The dispatcher matches the worker by the last two parts of
    the path, which the package itself names.
    """
    if told := os.environ.get(LOG):
        return told
    try:
        path = os.fsencode(Path(own_path(1)).readlink())
        return path.decode(errors="backslashreplace") if stat.S_ISREG(os.fstat(1).st_mode) else ""
    except OSError:
        return ""
