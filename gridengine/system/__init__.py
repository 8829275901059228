"""What Linux and macOS do differently. Only this room asks which system this is; everything above
it does the same on both.

Read the functions here first, which runners and fork servers need from their start. Then read
`polling`, by which dispatchers and agents wait, and `machine`, which few processes need. Memory,
sockets, processors and the ends of processes stay in one module, since each fork server needs all
four before its first fork and every module adds to its start.

                              Linux                            macOS
    waking, polling           eventfd, epoll                   a pipe, `selectors` (kqueue)
    shared memory             memfd_create, seals              unlinked files, opened for reading
    orphans of a runner       children of a subreaper          processes of the runner's session
    death with the parent     PR_SET_PDEATHSIG                 a thread that reads the parent's pipe
    a limit of memory         RLIMIT_DATA                      a thread that looks, and then kills
    packets among processes   SOCK_SEQPACKET, without a file   none: clients use TCP
    binding to processors     sched_setaffinity                none

Where a portable way costs nothing there is no branch: records of one length go through stream
sockets, and `os.pipe` makes descriptors that no child inherits. Linux has a way of its own where
that is quicker (an eventfd is set and cleared in 1 microsecond, a pipe in 2) or holds more (a child
cannot leave its subreaper).

Keep in step: a name has one meaning in both branches; the first has its docstring. The branches are
statements of the module, not of functions. So the tests can load this room as if on macOS
(`tests/support/as_darwin.py`), and mypy checks both (`make check`).

Rejected: POSIX shared memory (shm_open(2)) on macOS. It can be neither written to nor mapped copy
on write there, as results must be. Also rejected: to close each descriptor as soon as it is sent.
macOS may close the connection behind it if the receiver has not taken the descriptor yet
(https://github.com/nodejs/node/issues/7512); hence `SENT_STAY_OPEN`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator

if sys.platform == "linux":
    import fcntl
else:
    import threading

NO_SIGNAL = int(getattr(socket, "MSG_NOSIGNAL", 0))
"""The flag of sends to a peer that may be gone. Python ignores SIGPIPE where there is none."""
_PAGE = resource.getpagesize()
PAUSE_SECONDS = 0.05
"""How often is looked at what the system does not report."""


# Memory that processes share


if sys.platform == "linux":
    _SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    MEMORY_IS_FILES = False
    """Whether such memory takes room of the disk, not of the machine's memory."""

    def nameless_memory(shown_as: str = "gridengine-block") -> int:
        """Return a descriptor of memory that can be sealed, and is freed with its descriptors and
        mappings. Tools that list open files may show it by this word.
        """
        return os.memfd_create(shown_as, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)

    def openable_memory(shown_as: str = "gridengine-block") -> tuple[int, str]:
        """Return memory that other processes can open by its `path_of`, and its name if it has one.
        Tools that list open files may show it by this word.

        Raises:
            OSError: they may not. This is a program with privileges of its own, say (proc(5): the
                folder then belongs to root).
        """
        if os.stat(f"/proc/{os.getpid()}/fd").st_uid != os.geteuid():  # noqa: PTH116
            raise PermissionError("other processes may not open this one's descriptors")
        return os.memfd_create(shown_as), ""

    def path_of(fd: int, name: str) -> str:
        """Return the path by which processes of this machine and user can open memory; empty if
        they cannot.
        """
        return f"/proc/{os.getpid()}/fd/{fd}"

    def release(fd: int, name: str, owner: int) -> None:
        """Close memory of the process `owner`."""
        os.close(fd)

    def sealed_memory(write: Callable[[int], object]) -> int:
        """Return memory that `write` has filled by its descriptor, and that nobody can change."""
        fd = nameless_memory()
        try:
            write(fd)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def is_sealed(fd: int) -> bool:
        """Return whether nobody can change this memory. What was moved to a file has no seals."""
        with contextlib.suppress(OSError):
            return bool(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS)
        return False

else:
    MEMORY_IS_FILES = True

    def nameless_memory(shown_as: str = "") -> int:
        fd, name = openable_memory()
        os.unlink(name)
        return fd

    def openable_memory(shown_as: str = "") -> tuple[int, str]:
        import tempfile

        return tempfile.mkstemp(prefix=f"gridengine-{os.getpid()}-")

    def path_of(fd: int, name: str) -> str:
        return name

    def release(fd: int, name: str, owner: int) -> None:
        os.close(fd)
        if name and owner == os.getpid():  # a fork has the descriptor too, not the file
            os.unlink(name)

    def sealed_memory(write: Callable[[int], object]) -> int:
        fd, name = openable_memory()
        try:
            write(fd)
            return os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            release(fd, name, os.getpid())

    def is_sealed(fd: int) -> bool:
        import fcntl

        mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        return mode == os.O_RDONLY and os.fstat(fd).st_nlink == 0


if sys.platform == "linux":
    CLOSED_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
    """The flag of a receive by which no program that is started meanwhile inherits descriptors."""
    SENT_STAY_OPEN = False
    """Whether a sent descriptor must stay open here until the other end has taken it."""
    _CREDENTIALS = struct.Struct("3i")

    def own(descriptors: Iterable[int]) -> None:
        """Let no program inherit these descriptors, which were received with `CLOSED_ON_EXEC`."""

    def _credentials(sock: socket.socket) -> tuple[int, int]:
        said = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, user, _ = _CREDENTIALS.unpack(said)
        return process, user

    PACKETS = socket.SOCK_SEQPACKET
    """The kind of sockets that keep packets apart, and listen at a `packet_address`."""

    def packet_address(name: str) -> str:
        """Return an address that has no file (unix(7)).

        Raises:
            OSError: there are none.
        """
        return f"\0{name}"

else:
    CLOSED_ON_EXEC = 0
    SENT_STAY_OPEN = True

    def own(descriptors: Iterable[int]) -> None:
        for fd in descriptors:
            os.set_inheritable(fd, False)

    def _credentials(sock: socket.socket) -> tuple[int, int]:
        level, credentials, process = 0, 1, 2  # SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID
        _, user = struct.unpack_from("=II", sock.getsockopt(level, credentials, 76))
        return sock.getsockopt(level, process), user

    PACKETS = socket.SOCK_STREAM

    def packet_address(name: str) -> str:
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))


def peer_user(sock: socket.socket) -> int:
    """Return the user at the other end of a Unix socket, for whom the kernel vouches."""
    return _credentials(sock)[1]


def peer_process(sock: socket.socket) -> int:
    """Return the process at the other end of a Unix socket."""
    return _credentials(sock)[0]


def open_descriptors() -> list[int]:
    """Return the descriptors of this process, and perhaps one that is closed by now.

    Raises:
        FileNotFoundError: there is no /proc, by which Linux tells them.
    """
    return [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - names alone


if sys.platform == "linux":

    def processors() -> list[int]:
        """Return the processors that this process may use, in ascending order."""
        return sorted(os.sched_getaffinity(0))

    def bind_to(numbers: Collection[int]) -> None:
        """Bind this process, with all its threads, to these processors.

        Raises:
            OSError: the machine does not have them.
        """
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - names alone
            with contextlib.suppress(ProcessLookupError):  # the thread has ended meanwhile
                os.sched_setaffinity(int(thread), numbers)

    def _pages(pid: int | None) -> list[int]:
        with open(f"/proc/{pid or 'self'}/statm", "rb") as file:
            return list(map(int, file.read().split()))

    def data_bytes(pid: int | None = None) -> int:
        """Return a process's bytes of data as RLIMIT_DATA counts them, and its stack; 0 when it is
        gone. The default is this process.
        """
        try:
            return _pages(pid)[5] * _PAGE
        except OSError:
            return 0

    def resident_bytes(pid: int | None = None) -> int:
        """Return a process's resident bytes; 0 when it is gone. The default is this process."""
        try:
            return _pages(pid)[1] * _PAGE
        except (OSError, IndexError):
            return 0

    def peak_bytes(usage: resource.struct_rusage) -> int:
        """Return the highest resident memory of a process, in bytes."""
        return usage.ru_maxrss * 1024

    class DataLimit:
        """This process's limit of data (setrlimit(2), RLIMIT_DATA): its heap and its other private
        writable memory.
        """

        def __init__(self) -> None:
            self.before, self._hard = resource.getrlimit(resource.RLIMIT_DATA)
            """The limit that was in force at the start."""

        def set(self, size: int) -> None:
            """Let this process have this many bytes of data."""
            resource.setrlimit(resource.RLIMIT_DATA, (size, self._hard))

else:

    def processors() -> list[int]:
        return list(range(os.cpu_count() or 1))

    def bind_to(numbers: Collection[int]) -> None:
        pass

    def resident_bytes(pid: int | None = None) -> int:
        import psutil

        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0

    data_bytes = resident_bytes

    def peak_bytes(usage: resource.struct_rusage) -> int:
        return usage.ru_maxrss

    class DataLimit:
        before = resource.RLIM_INFINITY

        def __init__(self) -> None:
            self._most = self.before
            self._is_watched = False

        def set(self, size: int) -> None:
            self._most = size
            if size != self.before and not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, daemon=True).start()

        def _watch(self) -> None:
            """Kill this process when it has too much."""
            while self._most == self.before or resident_bytes() <= self._most:
                time.sleep(PAUSE_SECONDS)
            os.kill(os.getpid(), signal.SIGKILL)


# The ends of parents, children and orphans


if sys.platform == "linux":
    _PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
    _PROC = "/proc"

    def _set_process_control(option: int, value: int) -> None:
        """Call prctl(2)."""
        import ctypes  # here: a dispatcher imports this module and never calls this

        if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option}) failed")

    class Descendants:
        """The processes below this one, which becomes the parent of all orphans there, in place of
        the system's first process.
        """

        def __init__(self) -> None:
            _set_process_control(_PR_SET_CHILD_SUBREAPER, 1)

        def add(self, leader: int) -> None:
            """Note a child that leads a session of its own."""

        def left(self, living: Collection[int] = ()) -> set[int]:
            """Return the processes that are not below these living children: this process's other
            children, the orphans among them (proc(5): /proc/pid/task/tid/children).
            """
            return set(_children()).difference(living)

    def _children() -> list[int]:
        me = os.getpid()
        try:
            with open(f"{_PROC}/{me}/task/{me}/children", "rb") as file:
                return list(map(int, file.read().split()))
        except OSError:  # a kernel without CONFIG_PROC_CHILDREN
            import psutil

            return [child.pid for child in psutil.Process().children()]

    def wait_for_signal(numbers: Collection[signal.Signals], seconds: float) -> int | None:
        """Return one of these signals, which are blocked, once it is there; None when none came
        within this many seconds.
        """
        received = signal.sigtimedwait(numbers, seconds)
        return None if received is None else received.si_signo

    class DeathWithParent:
        """Has forks of this process die with it. It is made in the parent."""

        def begin(self) -> None:
            """Have the kernel kill this process, a fork, when its parent ends."""
            _set_process_control(_PR_SET_PDEATHSIG, signal.SIGKILL)

else:

    class Descendants:
        """An orphan that has left its session is not found."""

        def __init__(self) -> None:
            self._leaders: set[int] = set()

        def add(self, leader: int) -> None:
            self._leaders.add(leader)

        def left(self, living: Collection[int] = ()) -> set[int]:
            import psutil

            children = {child.pid for child in psutil.Process().children()}.difference(living)
            parents = dict.fromkeys(children, os.getpid())
            sessions = set()
            for pid in psutil.pids():
                with contextlib.suppress(OSError, psutil.Error):
                    leader, process = os.getsid(pid), psutil.Process(pid)
                    is_left = leader in self._leaders.difference(living)
                    if is_left and process.status() != psutil.STATUS_ZOMBIE:
                        parents[pid] = process.ppid()
                        sessions.add(leader)
            self._leaders = sessions.union(living)
            # An orphan may end its own children, as below a subreaper.
            return {pid for pid, parent in parents.items() if parent not in parents}

    def wait_for_signal(numbers: Collection[signal.Signals], seconds: float) -> int | None:
        until = time.monotonic() + seconds
        while not (here := signal.sigpending().intersection(numbers)):
            if time.monotonic() > until:
                return None
            time.sleep(PAUSE_SECONDS)
        return signal.sigwait(here)

    class DeathWithParent:
        def __init__(self) -> None:
            self._read, self._write = os.pipe()  # which the parent's end closes

        def begin(self) -> None:
            os.close(self._write)
            threading.Thread(target=self._await, daemon=True).start()

        def _await(self) -> None:
            os.read(self._read, 1)
            os.killpg(0, signal.SIGKILL)


# What does without /proc where there is none


def nvidia_gpus() -> int:
    """Return how many GPUs the driver lists."""
    with contextlib.suppress(FileNotFoundError):
        return len(os.listdir("/proc/driver/nvidia/gpus"))  # noqa: PTH208
    return 0


def reset_peak_memory() -> None:
    """Restart the measurement of this process's peak (proc(5), /proc/pid/clear_refs), where the
    system allows it.
    """
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "wb") as file:
        file.write(b"5")


def prefer_as_oom_victim() -> None:
    """Let the kernel kill this process rather than its parent when memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(b"500")


# What control groups leave of this machine to a process (cgroups(7))


GROUPS = "/sys/fs/cgroup"


def control_groups(controller: str, top: str = GROUPS) -> Iterator[str]:
    """Yield the folder of this process's group for a controller ("cpu", "memory"), in version 1 or
    2 of control groups, then the folders of the groups above it. Some may be missing: inside a
    container the file system may begin at the process's own group.
    """
    for line in _memberships():
        number, controllers, group = line.split(":", 2)
        if number != "0" and controller not in controllers.split(","):
            continue
        root, group = top if number == "0" else f"{top}/{controller}", group.rstrip("/")
        while group:
            yield root + group
            group = group.rpartition("/")[0]
        yield root


def _memberships() -> list[str]:
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        return file.read().splitlines()
    return []


def _limits(folder: str, *names: str) -> list[int]:
    """Return the numbers in these files of a control group."""
    words: list[str] = []
    for name in names:
        with contextlib.suppress(OSError), open(f"{folder}/{name}") as file:  # the top has none
            words += file.read().split()
    return [int(one) for one in words if one.isdecimal()]  # "max" and -1 are no limit


def usable_processors(top: str = GROUPS) -> int:
    """Return how many processors this process may use: those of its CPU affinity, but no more than
    the quota of its container (a control group) lets run at a time, rounded up.

    Source: the kernel's documentation, admin-guide/cgroup-v2 (`cpu.max`) and scheduler/sched-bwc.
    """
    usable = len(processors())
    for folder in control_groups("cpu", top):
        limits = _limits(folder, "cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
        if len(limits) == 2:  # a quota and its period, in microseconds; else there is no quota
            usable = min(usable, max(1, -(-limits[0] // limits[1])))
    return usable


def usable_memory(top: str = GROUPS) -> int:
    """Return how many bytes of memory this process and its neighbours may have: the machine's, or
    less where its control group or one above it says so.
    """
    sizes = [os.sysconf("SC_PHYS_PAGES") * _PAGE]
    for folder in control_groups("memory", top):
        sizes += _limits(folder, "memory.max", "memory.limit_in_bytes")
    return min(sizes)
