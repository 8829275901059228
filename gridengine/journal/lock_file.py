"""`LockFile`: has at most one process use something, and tells others which: its host, its number,
since when.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
import tempfile
import time
from pathlib import Path

import msgspec

from gridengine._version import __version__

_FLOCK = "hhqqi0q"
"""`struct flock` of fcntl(2)."""
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""What a file system that knows no locks answers."""
TOUCH_SECONDS = 10.0
"""How often who holds a lock shows that."""
SILENT_SECONDS = 60.0
"""After how long without that another machine may take a lock over."""


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock: the process `pid` of a host, since a time of `time.time`; `supervisor` is
    the process that starts it again when it is killed, 0 if none does.
    """

    host: str
    pid: int
    since: float
    version: str
    supervisor: int = 0

    @classmethod
    def here(cls, supervisor: int = 0) -> Holder:
        """Return what tells of this process."""
        return cls(socket.gethostname(), os.getpid(), time.time(), __version__, supervisor)

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.host == socket.gethostname()

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, since {since}"


class LockFile:
    """A file that a process has locked, and in which it stands who that is.

    The lock belongs to the open file (fcntl(2), open file description locks): a child that is
    handed the descriptor has it too, and it is released when the last of them has ended, however.

    Args:
        descriptor: of the file, open to read and write.
        lacking: why there is no lock, of a file system that knows none.
    """

    def __init__(self, descriptor: int, lacking: str = "") -> None:
        self.descriptor = descriptor
        self.lacking = lacking

    @classmethod
    def take(cls, path: Path, *, wait: bool = False) -> LockFile | None:
        """Return the lock at this path, None when another process holds it and is not to be waited
        for. Where the file system knows no locks, it is had without.

        Raises:
            OSError: the file cannot be opened.
        """
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                lacking = _lock(descriptor, wait)
                if lacking is None:
                    os.close(descriptor)
                    return None
                if _is_at(descriptor, path):
                    return cls(descriptor, lacking)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # another took it away before it was locked

    def write(self, holder: Holder | None) -> None:
        """Note who holds it; None is nobody, after an end in order."""
        text = b"" if holder is None else msgspec.json.encode(holder) + b"\n"
        os.pwrite(self.descriptor, text, 0)
        os.ftruncate(self.descriptor, len(text))

    def touch(self) -> None:
        """Show other machines that it is held: see `is_shown`.

        Raises:
            OSError: it cannot be shown now.
        """
        os.utime(self.descriptor)

    def is_replaced(self, path: Path) -> bool:
        """Return whether another has a lock in the place of this one."""
        with contextlib.suppress(OSError):  # the file system is away, or the folder removed
            return not os.path.samestat(os.fstat(self.descriptor), path.stat())
        return False

    def close(self) -> None:
        """Give this process's part in it up."""
        os.close(self.descriptor)


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock at this path. Does not take it meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK))
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    finally:
        os.close(descriptor)


def is_shown(path: Path) -> bool:
    """Return whether somebody has lately shown that the lock at this path is held, by the clock of
    its file system: those of two machines may differ.

    Raises:
        OSError: it cannot be told.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:  # of an open file NFS tells what is so now
        touched = os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
    with tempfile.TemporaryFile(dir=path.parent) as probe:
        return os.fstat(probe.fileno()).st_mtime - touched < SILENT_SECONDS


def read_holder(path: Path) -> Holder | None:
    """Return who last noted that it holds the lock at this path; None when that one ended in
    order, or there never was any.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (FileNotFoundError, msgspec.DecodeError):  # an empty file too is no JSON
        return None


def _lock(descriptor: int, wait: bool) -> str | None:
    """Return None when another has it, and why there is none if the file system knows none."""
    try:
        how = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
        fcntl.fcntl(descriptor, how, _request(fcntl.F_WRLCK))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        if error.errno not in NO_LOCKS:
            raise
        return error.strerror
    return ""


def _request(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
