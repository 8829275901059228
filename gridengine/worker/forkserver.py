"""The agent's side of its fork server, the process that forks the runners."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Protocol, Self

from msgspec import Struct

from gridengine.wire.socket_pairs import socket_pair
from gridengine.worker.forkserver_process import (
    EXITED,
    FORK,
    FORKED,
    PRELOAD,
    READY,
    RECORD,
    REQUESTS,
    SIGNAL,
    RunnerDescriptors,
    RunnerMain,
    be_fork_server,
)

_LEAVE_SECONDS = 10.0


class Forked(Struct, frozen=True):
    """A runner has started, in the process `pid`."""

    runner: int
    pid: int


class Refused(Struct, frozen=True):
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
    """The agent's side of a fork server, connected by a socket pair (`AF_UNIX`, `SOCK_SEQPACKET`).

    All runners send requests to the agent by the socket `requests` (see `parent_requests`).

    Raises:
        OSError: no descriptors are left, or the fork server is gone.
    """

    def __init__(self, sock: socket.socket, process: Process) -> None:
        self._socket = sock
        self._process = process
        self.threads = 0
        """See `RunnerDescriptors`."""
        self.requests, theirs = socket_pair(socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(sock, [RECORD.pack(REQUESTS, 0, 0, 0)], [theirs.fileno()])

    @classmethod
    def fork_off(cls, run: RunnerMain, prepare: Callable[[], None] = lambda: None) -> Self:
        """Fork this process; the child becomes the fork server.

        Args:
            run: what a runner does in the forked child; it never returns to the fork server's code.
            prepare: what the fork server does before its first fork, such as imports.
        """
        ours, theirs = socket_pair(socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            be_fork_server(theirs, run, prepare)
        theirs.close()
        return cls(ours, _ForkedProcess(pid))

    def fileno(self) -> int:
        return self._socket.fileno()

    def fork(self, runner: int, descriptors: RunnerDescriptors) -> None:
        """Fork a runner; the event `Forked` or `Refused` follows. The caller still closes the
        descriptors.

        Raises:
            OSError: the fork server is gone.
        """
        fds = [descriptors.channel, descriptors.stdout, descriptors.stderr, descriptors.words]
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

    def receive(self) -> list[Forked | Refused | Exited]:
        """Return the events since the last call. Never waits.

        Raises:
            EOFError: the fork server is gone.
        """
        events: list[Forked | Refused | Exited] = []
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
                events.append(Forked(runner, first) if kind == FORKED else Refused(runner, first))

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
