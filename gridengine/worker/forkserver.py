"""The process that runners are forked from: one thread, no sockets of ZeroMQ, everything imported
that a runner needs.

It is the runners' parent and the only one to reap them, so that a signal never meets another
process that got the same id. As a *subreaper* (prctl(2), PR_SET_CHILD_SUBREAPER) it becomes the
parent of whatever a dead runner leaves behind, and ends it, with a moment to tidy up. When its
agent dies, in whatever way, the socket between them closes, and it ends everything below itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import struct
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from select import select
from time import monotonic
from typing import NoReturn, Protocol, Self

from msgspec import Struct

from gridengine.wire.socket_pairs import socket_pair
from gridengine.worker.signals import restore_dispositions, unblock

_RECORD = struct.Struct("=4q")
_FORK, _SIGNAL, _QUESTIONS = 1, 2, 3
_FORKED, _REFUSED, _EXITED, _READY = 1, 2, 3, 4
ANNOUNCING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""What batch systems announce a limit or an end by (Grid Engine: queue_conf(5), s_rt and s_cpu;
qsub(1), -notify).
"""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_FDS = 4
_LEAVE_SECONDS = 10.0
_LOOK_SECONDS = 1.0
_TIDY_SECONDS = 1.0
"""How long what a runner left behind may take to end by itself."""


class Forked(Struct, frozen=True):
    """A runner lives, in the process `pid`."""

    runner: int
    pid: int


class Refused(Struct, frozen=True):
    """A runner could not be forked: the system's error number says why."""

    runner: int
    errno: int


class Exited(Struct, frozen=True):
    """A runner has ended. `exitcode` as in `multiprocessing`: -n when signal n killed it.
    `peak_memory` in bytes.
    """

    runner: int
    exitcode: int
    peak_memory: int


class Ends(Struct, frozen=True):
    """What a runner is born with: its end of the channel, the write ends of its output pipes, its
    shared words, and where questions go.
    """

    channel: int
    stdout: int
    stderr: int
    words: int
    questions: int = -1


class Process(Protocol):
    """A child process, as `subprocess.Popen` has it: once it is reaped it is sent no signal."""

    def send_signal(self, sig: int, /) -> None: ...
    def wait(self) -> int: ...


class ForkServer:
    """The agent's hold on its nursery, a process of its own, by their socket (a pair of `AF_UNIX`,
    `SOCK_SEQPACKET`).

    By the socket `questions` all its runners ask the agent (see `parent`).

    Raises:
        OSError: no descriptors left; the nursery is gone.
    """

    def __init__(self, sock: socket.socket, process: Process) -> None:
        self._socket = sock
        self._process = process
        self.questions, theirs = socket_pair(socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(sock, [_RECORD.pack(_QUESTIONS, 0, 0, 0)], [theirs.fileno()])

    @classmethod
    def fork_off(
        cls, run: Callable[[Ends], None], prepare: Callable[[], None] = lambda: None
    ) -> Self:
        """Fork this process, whose child becomes the nursery.

        Args:
            run: what a runner does, in the forked child; it is given its ends and the runner's
                process never gets past it.
            prepare: what the nursery does before its first fork: imports, say.
        """
        ours, theirs = socket_pair(socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            be_nursery(theirs, run, prepare)
        theirs.close()
        return cls(ours, _Child(pid))

    def fileno(self) -> int:
        return self._socket.fileno()

    def fork(self, runner: int, ends: Ends) -> None:
        """Have a runner forked; `Forked` or `Refused` will tell. The ends stay the caller's to
        close.

        Raises:
            OSError: the nursery is gone.
        """
        fds = [ends.channel, ends.stdout, ends.stderr, ends.words]
        socket.send_fds(self._socket, [_RECORD.pack(_FORK, runner, 0, 0)], fds)

    def signal(self, runner: int, number: int) -> None:
        """Send a signal to a runner's process group. A runner that has ended is no error.

        Raises:
            OSError: the nursery is gone.
        """
        self._socket.send(_RECORD.pack(_SIGNAL, runner, number, 0))

    def receive(self) -> list[Forked | Refused | Exited]:
        """Return what the nursery has told since; never waits.

        Raises:
            EOFError: the nursery is gone.
        """
        events: list[Forked | Refused | Exited] = []
        while True:
            try:
                data = self._socket.recv(_RECORD.size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return events
            except OSError:
                data = b""
            if len(data) != _RECORD.size:
                if events:
                    return events
                raise EOFError("the process that starts runners is gone")
            kind, runner, first, second = _RECORD.unpack(data)
            if kind == _EXITED:
                events.append(Exited(runner, first, second))
            elif kind != _READY:
                events.append(Forked(runner, first) if kind == _FORKED else Refused(runner, first))

    def close(self) -> None:
        """End all runners, and what they left behind, and the nursery; wait for that, within
        reason. May be called twice.
        """
        if self._socket.fileno() < 0:
            return
        self.questions.close()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._process.send_signal(signal.SIGCONT)  # a stopped process would not see it
            self._socket.settimeout(
                _LEAVE_SECONDS
            )  # a process in an uninterruptible state cannot be waited for
            while self._socket.recv(_RECORD.size):
                continue
            self._process.wait()  # its files are closed, so it is about to be gone
        self._socket.close()


class _Child:
    """A process that was forked from this one."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def send_signal(self, sig: int, /) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, sig)

    def wait(self) -> int:
        return os.waitpid(self._pid, 0)[1]


def is_ready(sock: socket.socket) -> bool:
    """Say whether the nursery at the other end of this socket has started: from then on the socket
    is readable. Never waits.

    Raises:
        EOFError: it has ended.
    """
    try:
        if sock.recv(_RECORD.size, socket.MSG_DONTWAIT | socket.MSG_PEEK):
            return True
    except BlockingIOError:
        return False
    except OSError as error:
        raise EOFError from error
    raise EOFError


def be_nursery(
    sock: socket.socket, run: Callable[[Ends], None], prepare: Callable[[], None] = lambda: None
) -> NoReturn:
    """Be the nursery, from the fork to the end."""
    status, parent = 1, os.getppid()
    try:
        os.setsid()
        adopt_orphans()
        _keep_only(sock.fileno())
        restore_dispositions()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, *ANNOUNCING):
            signal.signal(
                number, signal.SIG_IGN
            )  # the agent decides; some batch systems signal each process of a job
        unblock()
        prepare()
        # what is here now stays shared with the runners; to look for garbage in it takes 3 ms, and
        # finds little
        gc.freeze()
        keeper = _Keeper(sock, run, parent)
        keeper.serve()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        signal.set_wakeup_fd(-1)
        end_children()
        os._exit(status)


class _Keeper:
    """The nursery's own loop: forks, signals, reaps."""

    def __init__(self, sock: socket.socket, run: Callable[[Ends], None], parent: int) -> None:
        self._socket = sock
        self._run = run
        self._parent = parent
        self._questions = -1
        self._pids: dict[int, int] = {}
        self._leftovers = _Leftovers()
        self._untold: deque[bytes] = deque()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> None:
        """Serve the agent until it is gone.

        The socket closes with the agent's process, but a process that was forked from that one may
        hold it open.
        """
        self._tell(_READY, 0, 0)
        while os.getppid() == self._parent:
            ready, writable, _ = select(
                [self._socket, self._wake],
                [self._socket] if self._untold else [],
                [],
                self._leftovers.patience(),
            )
            if writable:
                self._flush()
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
            if self._wake in ready or self._leftovers:
                self._reap()
            if self._socket in ready and not self._obey():
                return

    def _obey(self) -> bool:
        """Carry out one command; return False when the agent is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, _RECORD.size, _FDS)
        except OSError:
            return False
        if len(data) != _RECORD.size:
            return False
        kind, runner, number, _ = _RECORD.unpack(data)
        if kind == _FORK:
            self._fork(runner, fds)
        elif kind == _QUESTIONS:
            (self._questions,) = fds
            os.set_inheritable(self._questions, False)
        elif runner in self._pids:
            _signal_group(self._pids[runner], number)
        return True

    def _fork(self, runner: int, fds: Sequence[int]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(_REFUSED, runner, error.errno or 0)
        else:
            if pid == 0:
                self._be_runner(parent, Ends(*(*fds, self._questions)))
            self._pids[runner] = pid
            self._tell(_FORKED, runner, pid)
        finally:
            for fd in fds:
                os.close(fd)

    def _be_runner(self, parent: int, ends: Ends) -> NoReturn:
        """Be a runner: of a session of its own, dead when its parent is, and the one its own
        orphans fall to while it lives.
        """
        try:
            os.setsid()
            _set_process_control(_PR_SET_PDEATHSIG, signal.SIGKILL)
            adopt_orphans()
            if os.getppid() != parent:
                os._exit(0)  # it died before the signal was asked for
            signal.set_wakeup_fd(-1)
            for end in (self._wake, self._woken, self._socket):
                end.close()
            # Those that announce stay ignored: a call goes on until the agent ends it.
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _volunteer()
            self._run(ends)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        finally:
            os._exit(0)

    def _reap(self) -> None:
        """Take the exit status of all that has ended, and end what dead runners left."""
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
        self._leftovers.end(set(children()).difference(self._pids.values()))
        for pid, exitcode, peak_memory in ended:
            if pid in runners:
                self._tell(_EXITED, runners[pid], exitcode, peak_memory)

    def _tell(self, kind: int, runner: int, first: int, second: int = 0) -> None:
        """Tell the agent, and never wait for it: it may be waiting to tell a thousandth command,
        and so would wait for ever.
        """
        self._untold.append(_RECORD.pack(kind, runner, first, second))
        self._flush()

    def _flush(self) -> None:
        """Send what the agent has not been told, as far as the socket takes it now."""
        try:
            while self._untold:
                self._socket.send(self._untold[0], socket.MSG_DONTWAIT)
                self._untold.popleft()
        except BlockingIOError:
            return
        except OSError:  # an agent that is gone shows at the next read
            self._untold.clear()


class _Leftovers:
    """Processes without a runner. Asked to end first: workers of joblib, say, have files in shared
    memory that somebody must remove.
    """

    def __init__(self) -> None:
        self._kill_at: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._kill_at)

    def patience(self) -> float:
        """Return after how many seconds to look again."""
        now = monotonic()
        return min(
            [_LOOK_SECONDS, *[kill_at - now for kill_at in self._kill_at.values() if kill_at > now]]
        )

    def end(self, pids: Iterable[int]) -> None:
        """Ask those of these processes to end that were not asked before, and kill those that were
        asked long enough ago.
        """
        now, before = monotonic(), self._kill_at
        self._kill_at = {pid: before.get(pid, now + _TIDY_SECONDS) for pid in pids}
        for pid, kill_at in self._kill_at.items():
            with contextlib.suppress(ProcessLookupError):
                if pid not in before:
                    os.kill(pid, signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)  # a stopped process would not see it
                elif now >= kill_at:
                    os.kill(pid, signal.SIGKILL)


def adopt_orphans() -> None:
    """Have the orphans below this process fall to it rather than to the system's first process."""
    _set_process_control(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Return the ids of this process's children (proc(5): /proc/pid/task/tid/children)."""
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [
            int(stat.parent.name)
            for stat in Path("/proc").glob("[0-9]*/stat")
            if _parent_of(stat) == me
        ]


def _parent_of(stat: Path) -> int:
    try:
        return int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def end_children() -> None:
    """End every child of this process, and their children as they fall to it, until none is
    left.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    leftovers = _Leftovers()
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                leftovers.end(children())
                signal.sigtimedwait({signal.SIGCHLD}, leftovers.patience())


def _signal_group(pid: int, number: int) -> None:
    """Send a signal to the process group that a runner leads, or to itself when it has not got to
    make one.
    """
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _keep_only(kept: int) -> None:
    """Close every descriptor but one and the standard three, and read standard input from
    nowhere.
    """
    for fd in sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        if fd > 2 and fd != kept:
            with contextlib.suppress(OSError):  # the listing's own is closed by now
                os.close(fd)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)


def _volunteer() -> None:
    """Let the kernel, when memory runs out, take this runner rather than its agent."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def _set_process_control(option: int, value: int) -> None:
    """Call prctl(2)."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
