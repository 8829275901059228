"""The fork server: the process that forks a worker's runners, its agent's side, and the processes
below a process.

The fork server has one thread, no sockets of ZeroMQ, and has imported everything that a runner
needs. It is the runners' parent and alone reaps them, so that a signal never reaches another
process that got the same id. It finds the orphans that a dead runner leaves behind
(`system.Descendants`), and ends them after a moment to tidy up. When its agent dies in any way, the
socket between them closes, and it ends everything below itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from select import select
from time import monotonic
from typing import NoReturn, Protocol, Self, TypeAlias

from msgspec import Struct

from gridengine.system import (
    SENT_STAY_OPEN,
    DeathWithParent,
    Descendants,
    open_descriptors,
    peak_bytes,
    prefer_as_oom_victim,
    wait_for_signal,
)
from gridengine.wire.channel import socket_pair

_PYTHON_IGNORES = {signal.SIGPIPE, signal.SIGXFSZ}
_UNCATCHABLE = {signal.SIGKILL, signal.SIGSTOP}


def restore_dispositions() -> None:
    """Give each ignored signal its default action, except those that Python itself ignores.

    While SIGCHLD is ignored no child can be waited for (wait(2)), and a process that ignores
    SIGTERM runs on for the whole grace time.
    """
    for number in signal.valid_signals() - _PYTHON_IGNORES - _UNCATCHABLE:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def unblock() -> None:
    """Unblock all signals. Signals that arrived while they were blocked are delivered now, so set
    handlers before.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


_LOOK_SECONDS = 1.0
_TERMINATION_SECONDS = 1.0
"""How long an orphan may take to end after SIGTERM."""


class OrphanReaper:
    """Ends orphans. Each gets SIGTERM first: joblib's workers, for example, have files in shared
    memory that somebody must remove.
    """

    def __init__(self) -> None:
        self._kill_at: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._kill_at)

    def wait_seconds(self) -> float:
        """Return after how many seconds to call `end` again."""
        now = monotonic()
        return min(
            [_LOOK_SECONDS, *[kill_at - now for kill_at in self._kill_at.values() if kill_at > now]]
        )

    def end(self, pids: Iterable[int]) -> None:
        """Send SIGTERM to those of these processes that had none before, and SIGKILL to those that
        had one long enough ago. Processes that became another user's, as by sudo, are left alone.
        """
        now, before = monotonic(), self._kill_at
        self._kill_at = {}
        for pid in pids:
            kill_at = before.get(pid, now + _TERMINATION_SECONDS)
            with contextlib.suppress(PermissionError):
                with contextlib.suppress(ProcessLookupError):
                    if pid not in before:
                        os.kill(pid, signal.SIGTERM)
                        os.kill(pid, signal.SIGCONT)  # a stopped process would not act on it
                    elif now >= kill_at:
                        os.kill(pid, signal.SIGKILL)
                self._kill_at[pid] = kill_at


def end_all(descendants: Descendants) -> None:
    """End all these processes, and theirs. Return when none is left that this process may end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    orphans = OrphanReaper()
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        left = descendants.left()
        orphans.end(left)
        if not orphans:
            return
        wait_for_signal({signal.SIGCHLD}, orphans.wait_seconds())


def signal_group(pid: int, number: int) -> None:
    """Send a signal to the group that a process leads, or to it alone before it leads one."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


RECORD = struct.Struct("=4q")
"""A command or an event: its kind, the runner's number, and two numbers."""
FORK, SIGNAL, REQUESTS, PRELOAD = 1, 2, 3, 4
FORKED, REFUSED, EXITED, READY = 1, 2, 3, 4
ANNOUNCING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""The signals by which batch systems announce a limit or an end (Grid Engine: queue_conf(5), s_rt
and s_cpu; qsub(1), -notify).
"""
_FDS = 4
_CLIENT = ("gridengine.api.executor", "gridengine.api.map_results", "gridengine.calls.nested")
"""The modules that a call imports when it submits nested calls. Importing them takes a process a
tenth of a second.
"""


class RunnerDescriptors(Struct, frozen=True):
    """The descriptors that a runner starts with: its end of the channel, the write ends of its
    output pipes, its status block, and the socket for its requests. `number` is its number in this
    worker. `threads` is how many processors a call has that requests nothing (0: unknown).
    """

    channel: int
    stdout: int
    stderr: int
    words: int
    requests: int = -1
    number: int = 0
    threads: int = 0


RunnerMain: TypeAlias = Callable[[RunnerDescriptors], None]
"""Runs a runner in the forked process. It never returns."""


def be_fork_server(
    sock: socket.socket,
    run: RunnerMain,
    prepare: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Run as the fork server until the agent is gone. `prepare` is called before the first fork."""
    status, parent, descendants = 1, os.getppid(), None
    try:
        if os.getsid(0) != os.getpid():
            os.setsid()
        descendants = Descendants()
        _close_all_but(sock.fileno())
        with sock as high:  # a dispatcher with many workers; `select` takes numbers below 1024
            sock = high.dup()
        restore_dispositions()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, *ANNOUNCING):
            # The agent decides; some batch systems signal each process of a job.
            signal.signal(number, signal.SIG_IGN)
        unblock()
        prepare()
        # All present objects stay shared with the runners. Looking for garbage among them takes
        # 3 ms and finds little.
        gc.freeze()
        # a name: its sockets must stay open
        process = _ForkServerProcess(sock, run, parent, descendants)
        process.serve()
        status = 0
    except BaseException:
        sys.__excepthook__(*sys.exc_info())
    finally:
        try:
            signal.set_wakeup_fd(-1)
            if descendants is not None:
                end_all(descendants)
        finally:
            os._exit(status)


class _ForkServerProcess:
    """The loop of the fork server: forks, signals, reaps."""

    def __init__(
        self, sock: socket.socket, run: RunnerMain, parent: int, descendants: Descendants
    ) -> None:
        self._socket = sock
        self._run = run
        self._parent = parent
        self._descendants = descendants
        self._death = DeathWithParent()
        self._requests = -1
        self._pids: dict[int, int] = {}
        self._orphans = OrphanReaper()
        self._unsent: deque[bytes] = deque()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> None:
        """Serve the agent until it is gone.

        The socket closes when the agent's process ends, unless a process that was forked from the
        agent holds it open. Hence the parent's process id is checked too.
        """
        self._send(READY, 0, 0)
        while os.getppid() == self._parent:
            ready, writable, _ = select(
                [self._socket, self._wake],
                [self._socket] if self._unsent else [],
                [],
                self._orphans.wait_seconds(),
            )
            if writable:
                self._flush()
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
            if self._wake in ready or self._orphans:
                self._reap()
            if self._socket in ready and not self._handle_command():
                return

    def _handle_command(self) -> bool:
        """Carry out one command; return False when the agent is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, RECORD.size, _FDS)
        except OSError:
            return False
        if len(data) != RECORD.size:
            return False
        kind, runner, number, _ = RECORD.unpack(data)
        if kind == FORK:
            self._fork(runner, number, fds)
        elif kind == REQUESTS:
            (self._requests,) = fds
            os.set_inheritable(self._requests, False)
        elif kind == PRELOAD:
            for module in _CLIENT:
                importlib.import_module(module)
            gc.freeze()
        elif runner in self._pids:
            signal_group(self._pids[runner], number)
        return True

    def _fork(self, runner: int, threads: int, fds: Sequence[int]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._send(REFUSED, runner, error.errno or 0)
        else:
            if pid == 0:
                channel, stdout, stderr, words = fds
                descriptors = RunnerDescriptors(
                    channel=channel,
                    stdout=stdout,
                    stderr=stderr,
                    words=words,
                    requests=self._requests,
                    number=runner,
                    threads=threads,
                )
                self._be_runner(parent, descriptors)
            self._pids[runner] = pid
            self._descendants.add(pid)
            self._send(FORKED, runner, pid)
        finally:
            for fd in fds:
                os.close(fd)

    def _be_runner(self, parent: int, descriptors: RunnerDescriptors) -> NoReturn:
        """Run as a runner: the leader of a session, killed when its parent ends, and the parent of
        its own orphans.
        """
        try:
            os.setsid()
            self._death.begin()
            Descendants()
            if os.getppid() != parent:
                os._exit(0)  # the parent ended before the kernel was told
            signal.set_wakeup_fd(-1)
            for end in (self._wake, self._woken, self._socket):
                end.close()
            # Signals that announce an end stay ignored: a call goes on until the agent ends it.
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            prefer_as_oom_victim()
            self._run(descriptors)
        except BaseException:
            sys.__excepthook__(*sys.exc_info())
            os._exit(1)
        finally:
            os._exit(0)

    def _reap(self) -> None:
        """Reap all ended processes, and end the orphans that dead runners left."""
        ended = []
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                ended.append((pid, os.waitstatus_to_exitcode(status), peak_bytes(usage)))
        runners = {pid: runner for runner, pid in self._pids.items()}
        for pid, _, _ in ended:
            self._pids.pop(runners.get(pid, 0), None)
        self._orphans.end(self._descendants.left(self._pids.values()))
        for pid, exitcode, peak_memory in ended:
            if pid in runners:
                self._send(EXITED, runners[pid], exitcode, peak_memory)

    def _send(self, kind: int, runner: int, first: int, second: int = 0) -> None:
        """Send the agent an event without waiting. The agent may itself be waiting to send a
        command, so that both would wait for ever.
        """
        self._unsent.append(RECORD.pack(kind, runner, first, second))
        self._flush()

    def _flush(self) -> None:
        """Send the waiting events, as far as the socket takes them now."""
        try:
            while self._unsent:
                self._socket.send(self._unsent[0], socket.MSG_DONTWAIT)
                self._unsent.popleft()
        except BlockingIOError:
            return
        except OSError:  # a dead agent shows at the next read
            self._unsent.clear()


def _close_all_but(wanted: int) -> None:
    """Close every descriptor but this one and the standard three, and make standard input empty."""
    for fd in open_descriptors():
        if fd > 2 and fd != wanted:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
                os.close(fd)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)


_LEAVE_SECONDS = 10.0


class Forked(Struct, frozen=True):
    """A runner has started, in the process `pid`."""

    runner: int
    pid: int


class ForkRefused(Struct, frozen=True):
    """A runner could not be forked; `errno` says why."""

    runner: int
    errno: int


class Exited(Struct, frozen=True):
    """A runner has ended. `exitcode` is as in `multiprocessing`: -n when signal n killed it.
    `peak_memory` is in bytes.
    """

    runner: int
    exitcode: int
    peak_memory: int


class Process(Protocol):
    """A child process, as in `subprocess.Popen`: it is sent no signal once it has been reaped."""

    def send_signal(self, sig: int, /) -> None: ...
    def wait(self) -> int: ...


class ForkServer:
    """The agent's side of a fork server, connected by a socket pair, through which
    records of one length go.

    All runners send requests to the agent by the socket `requests` (see `agent_requests`).

    Raises:
        OSError: no descriptors are left, or the fork server is gone.
    """

    def __init__(self, sock: socket.socket, process: Process) -> None:
        self._socket = sock
        self._process = process
        self.threads = 0
        """See `RunnerDescriptors`."""
        self._sent: dict[int, list[int]] = {}
        """Descriptors of runners that are being forked, see `SENT_STAY_OPEN`."""
        self.requests, theirs = socket_pair()
        with theirs:
            socket.send_fds(sock, [RECORD.pack(REQUESTS, 0, 0, 0)], [theirs.fileno()])

    @classmethod
    def fork_off(cls, run: RunnerMain, prepare: Callable[[], None] = lambda: None) -> Self:
        """Fork this process; the child becomes the fork server, which `prepare` makes ready."""
        ours, theirs = socket_pair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            be_fork_server(theirs, run, prepare)
        theirs.close()
        return cls(ours, _ForkedProcess(pid))

    def fileno(self) -> int:
        return self._socket.fileno()

    def fork(self, runner: int, descriptors: RunnerDescriptors) -> None:
        """Fork a runner; the event `Forked` or `ForkRefused` follows. The caller still closes the
        descriptors.

        Raises:
            OSError: the fork server is gone.
        """
        fds = [descriptors.channel, descriptors.stdout, descriptors.stderr, descriptors.words]
        if SENT_STAY_OPEN:
            self._sent[runner] = list(map(os.dup, fds))
        socket.send_fds(self._socket, [RECORD.pack(FORK, runner, self.threads, 0)], fds)

    def signal(self, runner: int, number: int) -> None:
        """Send a signal to a runner's process group. A runner that has ended is no error.

        Raises:
            OSError: the fork server is gone.
        """
        self._socket.send(RECORD.pack(SIGNAL, runner, number, 0))

    def preload(self) -> None:
        """Import the modules that nested calls need, for the runners that are forked after this.

        Raises:
            OSError: the fork server is gone.
        """
        self._socket.send(RECORD.pack(PRELOAD, 0, 0, 0))

    def receive(self) -> list[Forked | ForkRefused | Exited]:
        """Return the events since the last call. Never waits.

        Raises:
            EOFError: the fork server is gone.
        """
        events: list[Forked | ForkRefused | Exited] = []
        while True:
            try:
                data = self._socket.recv(RECORD.size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return events
            except OSError:
                data = b""
            if len(data) != RECORD.size:
                if events:
                    return events
                raise EOFError("the process that starts runners is gone")
            kind, runner, first, second = RECORD.unpack(data)
            if kind == EXITED:
                events.append(Exited(runner, first, second))
            elif kind != READY:
                for fd in self._sent.pop(runner, ()):
                    os.close(fd)
                events.append(
                    Forked(runner, first) if kind == FORKED else ForkRefused(runner, first)
                )

    def close(self) -> None:
        """End all runners, the processes that they left behind, and the fork server; wait for them
        at most ten seconds. May be called twice.
        """
        if self._socket.fileno() < 0:
            return
        self.requests.close()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._process.send_signal(signal.SIGCONT)  # a stopped process would not notice
            # A process in an uninterruptible state would be waited for without end.
            self._socket.settimeout(_LEAVE_SECONDS)
            while self._socket.recv(RECORD.size):
                continue
            self._process.wait()  # its files are closed, so it is about to end
        self._socket.close()
        while self._sent:
            for fd in self._sent.popitem()[1]:
                os.close(fd)


class _ForkedProcess(Struct, frozen=True):
    """A process that was forked from this one."""

    pid: int

    def send_signal(self, sig: int, /) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, sig)

    def wait(self) -> int:
        return os.waitpid(self.pid, 0)[1]


def is_ready(sock: socket.socket) -> bool:
    """Return whether the fork server at the other end of this socket has started. Once it has, the
    socket is readable. Never waits.

    Raises:
        EOFError: the fork server has ended.
    """
    try:
        if sock.recv(RECORD.size, socket.MSG_DONTWAIT | socket.MSG_PEEK):
            return True
    except BlockingIOError:
        return False
    except OSError as error:
        raise EOFError from error
    raise EOFError
