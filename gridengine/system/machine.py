"""What few processes ask of the system: locks, file systems, other processes, this machine. See the
room's own docstring.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gridengine.system import PAUSE_SECONDS

# Locks of open files


if sys.platform == "linux":
    _FLOCK = "hhqqi0q"
    """The format of `struct flock` of fcntl(2)."""

    def lock(descriptor: int, *, wait: bool) -> bool:
        """Lock an open file (fcntl(2), open file description locks). Return whether it is locked
        now: without `wait`, another process may have it.

        Raises:
            OSError: the file system has no locks, say.
        """
        how = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
        try:
            fcntl.fcntl(descriptor, how, _request())
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def is_locked(descriptor: int) -> bool:
        """Return whether some process has locked an open file, without locking it.

        Raises:
            OSError: the file system has no locks, say.
        """
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _request())
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    def _request() -> bytes:
        return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

else:

    def lock(descriptor: int, *, wait: bool) -> bool:
        for _ in range(4):  # who asks whether it is locked has it for a moment
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                time.sleep(PAUSE_SECONDS)
            else:
                return True
        return False

    def is_locked(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return False


if sys.platform == "linux":

    def claim(name: str) -> Callable[[], object] | None:
        """Take a name that one process of this machine can have at a time, until its end (unix(7),
        abstract sockets). Return what gives the name back; None if another process has it.
        """
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            taken.bind(f"\0{name}")
        except OSError:
            taken.close()
            return None
        return taken.close

else:

    def claim(name: str) -> Callable[[], object] | None:
        import tempfile

        folder = Path(tempfile.gettempdir(), f"gridengine-names-{os.getuid()}")
        folder.mkdir(mode=0o700, exist_ok=True)
        taken = Path(folder, name).open("ab")  # noqa: SIM115 - open as long as it is claimed
        try:
            fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken.close()
            return None
        return taken.close


# Files and descriptors


if sys.platform == "linux":

    def pipe_bytes(descriptor: int) -> int:
        """Return how many bytes a pipe can hold."""
        return fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)

else:

    def pipe_bytes(descriptor: int) -> int:
        return 1 << 16


if sys.platform == "linux":
    MOST_SOCKET_PATH = 107
    """The longest path of a Unix socket, in bytes (unix(7))."""
    OPEN_ONLY = os.O_PATH
    """Opens a file, folder or link itself, neither to read nor to write."""
    MOUNTS = Path("/proc/self/mounts")

    def target_of(link: int, name: str, folder: int) -> str:
        """Return the target of a link that was opened by this name in this folder."""
        return os.readlink("", dir_fd=link)

    def mounts() -> dict[Path, str]:
        """Return the types of the mounted file systems, by where they are; the last one counts.

        Raises:
            OSError: the system does not tell.
        """
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
        found = (line.split(" ") for line in lines)
        return {Path(at.replace("\\040", " ")): kind for _, at, kind, *_ in found}

else:
    MOST_SOCKET_PATH = 103
    OPEN_ONLY = os.O_SYMLINK | os.O_NONBLOCK

    def target_of(link: int, name: str, folder: int) -> str:
        target = os.readlink(name, dir_fd=folder)
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not os.path.samestat(os.fstat(link), facts):
            raise OSError(errno.ESTALE, "somebody replaced it just now")
        return target

    def mounts() -> dict[Path, str]:
        import psutil

        return {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}


def file_age(path: Path) -> float:
    """Return how many seconds ago a file was touched, by the clock of its file system: the clocks
    of two machines may differ. Infinite if there is no such file.

    Raises:
        OSError: it cannot be looked at, or no file can be made beside it.
    """
    touched = touched_at(path)
    return math.inf if touched is None else time_of(path.parent) - touched


def time_of(folder: Path) -> float:
    """Return the time by the clock of the folder's file system.

    Raises:
        OSError: no file can be made in the folder.
    """
    import tempfile  # few ask

    with tempfile.TemporaryFile(dir=folder) as probe:
        return os.fstat(probe.fileno()).st_mtime


def touched_at(path: Path) -> float | None:
    """Return when a file was touched, by the clock of its file system, as its server knows by now;
    None if there is no such file.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:  # the answer to a change has the present size and times, where fstat may have old ones
        with contextlib.suppress(OSError):  # another user's, or read-only
            os.fchmod(descriptor, 0o600)
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


# Other processes, and the machine


def exists(pid: int) -> bool:
    """Return whether a process of this machine has this id."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return pid > 0


if sys.platform == "linux":

    def started(pid: int) -> int:
        """Return the start time of a process of this machine, in ticks of a clock; 0 when the
        process has ended or cannot be looked at.
        """
        try:
            # The name, in brackets, may have any characters (proc_pid_stat(5)).
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            return 0 if state in "ZX" else int(fields[18])
        except (OSError, ValueError, IndexError):
            return 0

    def processor_seconds(pid: int) -> float:
        """Return a process's processor time in seconds (proc_pid_stat(5)); 0 when it is gone."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_unreaped(pid: int) -> None:
        """Wait until a child has ended, and leave it to be waited for.

        Raises:
            ChildProcessError: it is no child, or was waited for.
        """
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def this_machine() -> str:
        """Identify this machine since its last boot, together with its process namespace; empty
        where /proc does not tell. Equal values mean that process ids are comparable.
        """
        with contextlib.suppress(OSError):
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
        return ""

    _SIOCGIFCONF = 0x8912
    _REQUEST_BYTES = 16 + struct.calcsize("LLHBBB0L")
    """The size of `struct ifreq` of netdevice(7): a name and the longest of its values."""
    _MOST_ADDRESSES = 1024

    def addresses() -> list[str]:
        """Return the addresses of this machine's interfaces, IPv4 first."""
        room = array.array("B", bytes(_MOST_ADDRESSES * _REQUEST_BYTES))
        wanted = struct.pack("iP", len(room), room.buffer_info()[0])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            used, _ = struct.unpack("iP", fcntl.ioctl(sock, _SIOCGIFCONF, wanted))
        found = [
            socket.inet_ntoa(room[at + 20 : at + 24].tobytes())
            for at in range(0, used, _REQUEST_BYTES)
        ]
        with contextlib.suppress(OSError):  # there is no IPv6
            for line in Path("/proc/net/if_inet6").read_text().splitlines():
                found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])))
        return found

else:

    def addresses() -> list[str]:
        import psutil

        return [
            entry.address.split("%")[0]
            for family in (socket.AF_INET, socket.AF_INET6)
            for entries in psutil.net_if_addrs().values()
            for entry in entries
            if entry.family == family
        ]

    def started(pid: int) -> int:
        import psutil

        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                return round(process.create_time() * 100)
        return 0

    def processor_seconds(pid: int) -> float:
        import psutil

        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            return float(times.user + times.system)
        return 0.0

    def wait_unreaped(pid: int) -> None:
        import psutil

        try:
            while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(PAUSE_SECONDS)
        except psutil.NoSuchProcess as error:
            raise ChildProcessError from error

    def this_machine() -> str:
        import socket

        import psutil

        return f"{socket.gethostname()} {psutil.boot_time():.0f}"


# What does without /proc where there is none


def present_umask() -> int:
    """Return this process's umask. It is read from /proc, because the system call sets it for a
    moment, in which other threads may make files.
    """
    said = b""
    with contextlib.suppress(FileNotFoundError):  # there is no /proc
        descriptor = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            said = os.read(descriptor, 256).partition(b"\nUmask:")[2]
        finally:
            os.close(descriptor)
    if said:
        return int(said.split()[0], 8)
    umask = os.umask(0o077)  # the only way without /proc, and on Linux before 4.7
    os.umask(umask)
    return umask


def own_path(descriptor: int) -> str:
    """Return the path by which this process can find or open anew the file of a descriptor."""
    return f"/proc/self/fd/{descriptor}"


def uptime() -> float:
    """Return the seconds since the machine's start, of a clock that never jumps."""
    return float(Path("/proc/uptime").read_text().split()[0])


def first_own_port() -> int:
    """Return the first of the ports that the kernel assigns by itself (ip(7),
    ip_local_port_range), or of those that it should (RFC 6335).
    """
    with contextlib.suppress(FileNotFoundError):
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return 49152
