"""The fork server: the process that runners are forked from. It has one thread, no sockets of
ZeroMQ, and has imported everything that a runner needs.

It is the runners' parent and alone reaps them, so that a signal never reaches another process that
got the same id. As a *subreaper* (prctl(2), PR_SET_CHILD_SUBREAPER) it becomes the parent of the
orphans that a dead runner leaves behind, and ends them after a moment to tidy up. When its agent
dies in any way, the socket between them closes, and it ends everything below itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import struct
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from select import select
from typing import NoReturn, TypeAlias

from msgspec import Struct

from gridengine.worker.process_tree import (
    OrphanReaper,
    adopt_orphans,
    children,
    die_with_parent,
    end_children,
    signal_group,
)
from gridengine.worker.signals import restore_dispositions, unblock

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
"""What a runner does in the forked process. It never returns."""


def be_fork_server(
    sock: socket.socket,
    run: RunnerMain,
    prepare: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Run as the fork server until the agent is gone."""
    status, parent = 1, os.getppid()
    try:
        os.setsid()
        adopt_orphans()
        _close_all_but(sock.fileno())
        restore_dispositions()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, *ANNOUNCING):
            # The agent decides; some batch systems signal each process of a job.
            signal.signal(number, signal.SIG_IGN)
        unblock()
        prepare()
        # All present objects stay shared with the runners. Looking for garbage among them takes
        # 3 ms and finds little.
        gc.freeze()
        process = _ForkServerProcess(sock, run, parent)  # a name: its sockets must stay open
        process.serve()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        signal.set_wakeup_fd(-1)
        end_children()
        os._exit(status)


class _ForkServerProcess:
    """The loop of the fork server: forks, signals, reaps."""

    def __init__(self, sock: socket.socket, run: RunnerMain, parent: int) -> None:
        self._socket = sock
        self._run = run
        self._parent = parent
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
                self._be_runner(parent, RunnerDescriptors(*(*fds, self._requests, runner, threads)))
            self._pids[runner] = pid
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
            die_with_parent()
            adopt_orphans()
            if os.getppid() != parent:
                os._exit(0)  # the parent ended before `die_with_parent` took effect
            signal.set_wakeup_fd(-1)
            for end in (self._wake, self._woken, self._socket):
                end.close()
            # Signals that announce an end stay ignored: a call goes on until the agent ends it.
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _prefer_as_oom_victim()
            self._run(descriptors)
        except BaseException:
            traceback.print_exc()
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
                ended.append((pid, os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024))
        runners = {pid: runner for runner, pid in self._pids.items()}
        for pid, _, _ in ended:
            self._pids.pop(runners.get(pid, 0), None)
        self._orphans.end(set(children()).difference(self._pids.values()))
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
    for fd in sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        if fd > 2 and fd != wanted:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
                os.close(fd)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)


def _prefer_as_oom_victim() -> None:
    """Let the kernel kill this runner rather than its agent when memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
