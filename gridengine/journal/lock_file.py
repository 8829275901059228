"""`LockFile`: lets one process at a time use something, and tells others which process that is.

It is a lock of the open file (`system.machine.lock`), not a file with a process id. The lock is
released with the last process that has it open, however that process dies. A command that starts a
dispatcher takes the lock and hands it on, so that the second of two starts fails at once. The
supervisor has it open, too, so that nobody else starts between two lives. And anybody can ask
whether it is locked without taking it, which flock(2) cannot. The text in the file is for people.

Locks of other machines may not be visible (a home on NFS without locks), or may stay although the
machine is gone. So a dispatcher on another machine counts as running as long as it answers, or
touches the file. It touches the file every 10 s; after 60 s without a touch its lock may be taken
over. Rejected: asking only whether it answers. A dispatcher behind a firewall, or on a network that
was away for two seconds, would be replaced while it runs. A dispatcher that finds its lock taken
ends as if killed, and so does its supervisor, because two would write into one journal.

A named run has such a lock, too (`take_lock`), and its script touches it likewise: sshfs, BeeGFS
and an NFS without locks (nolock, local_lock of nfs(5)) lock for one machine alone, and raise no
error. Where the lock is free and the file names a process of another machine that touched it
lately, one of two things is true: the lock is invisible here, or that process was killed. The next
touch tells. A lock that is seen is never taken over: the script may be suspended.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
import time
from pathlib import Path

import msgspec

from gridengine._version import __version__
from gridengine.display import printable
from gridengine.errors import JournalError
from gridengine.system import machine

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""The errors of a file system without locks."""
TOUCH_SECONDS = 10.0
"""How often the process with a lock touches the file."""
SILENT_SECONDS = 60.0
"""After this time without a touch, another machine may take the lock over."""
LOOK_SECONDS = 1.0
"""How often a process that waits looks for a touch."""


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a lock: `pid` on `host`, since a time of `time.time`. `supervisor` is
    the process that starts it again when it is killed, 0 if none does.
    """

    host: str
    pid: int
    since: float
    version: str
    supervisor: int = 0

    @classmethod
    def here(cls, supervisor: int = 0) -> Holder:
        """Return the description of this process."""
        return cls(socket.gethostname(), os.getpid(), time.time(), __version__, supervisor)

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.host == socket.gethostname()

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {printable(self.host)}, since {since}"


class LockFile:
    """A file that a process has locked, whose content names the process.

    The lock belongs to the open file. A child that is
    handed the descriptor has it too, and the lock is released when the last of them ends in any
    way.

    Args:
        descriptor: the file, open for reading and writing.
        lacking: why there is no lock, if the file system has none.
    """

    def __init__(self, descriptor: int, lacking: str = "") -> None:
        self.descriptor = descriptor
        self.lacking = lacking

    @classmethod
    def take(cls, path: Path, *, wait: bool = False) -> LockFile | None:
        """Return the lock at this path; None when another process holds it and `wait` is false. On
        a file system without locks, return one that is not locked.

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
            os.close(descriptor)  # another process replaced the file before it was locked

    def write(self, holder: Holder | None) -> None:
        """Write the name of the lock's holder; with None, that it ended in order."""
        text = b"" if holder is None else msgspec.json.encode(holder) + b"\n"
        os.pwrite(self.descriptor, text, 0)
        os.ftruncate(self.descriptor, len(text))

    def touch(self) -> None:
        """Show other machines that the lock is held; see `is_shown`.

        Raises:
            OSError: the file cannot be touched now.
        """
        os.utime(self.descriptor)

    def is_replaced(self, path: Path) -> bool:
        """Return whether another file, with another lock, is at this path now."""
        with contextlib.suppress(OSError):  # the file system is away, or the folder removed
            return not os.path.samestat(os.fstat(self.descriptor), path.stat())
        return False

    def close(self) -> None:
        """Close the file: from here on this process does not have the lock."""
        os.close(self.descriptor)


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock at this path, without taking it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        return machine.is_locked(descriptor)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    finally:
        os.close(descriptor)


def is_shown(path: Path) -> bool:
    """Return whether the lock at this path was touched lately, by the clock of its file system: the
    clocks of two machines may differ.

    Raises:
        OSError: the file cannot be looked at.
    """
    return machine.file_age(path) < SILENT_SECONDS


def other_machine(path: Path) -> tuple[Holder, float] | None:
    """Return the process of another machine that has written into the file at this path that it has
    the lock, and still touches the file; and when it did. Its lock may be invisible here.

    Raises:
        OSError: the file cannot be looked at.
    """
    touched = machine.touched_at(path)  # the file's present size is known from here on
    holder = read_holder(path)
    if touched is None or holder is None or holder.is_here:
        return None
    silent = machine.time_of(path.parent) - touched
    return (holder, touched) if silent < SILENT_SECONDS else None


def read_holder(path: Path) -> Holder | None:
    """Return the process that last wrote itself into the lock at this path; None when it ended in
    order, or there never was one.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (FileNotFoundError, msgspec.DecodeError):  # an empty file too is no JSON
        return None


def _lock(descriptor: int, wait: bool) -> str | None:
    """Lock the file. Return None if another process holds the lock; an empty text if this process
    has it now; or the reason why the file system has no locks.
    """
    try:
        return "" if machine.lock(descriptor, wait=wait) else None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return error.strerror


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


log = logging.getLogger("gridengine")


class RunLock:
    """The lock of a named run, of this process. A thread touches its file until it is closed."""

    def __init__(self, lock: LockFile, path: Path) -> None:
        self._lock = lock
        self._path = path
        try:
            lock.write(Holder.here())
        except OSError as error:  # the lock holds all the same
            log.debug("%s cannot be written: %s", path, error)
        self._written = path.read_bytes()
        self._closed = threading.Event()
        threading.Thread(target=self._show, name="gridengine-lock", daemon=True).start()

    def _show(self) -> None:
        while not self._closed.wait(TOUCH_SECONDS):
            with contextlib.suppress(OSError):  # by its path: the descriptor may be closed now
                self.check()  # the touches of this process would keep a later one's lock
                os.utime(self._path)

    def check(self) -> None:
        """Check that this process still has the lock: a process of another machine takes it when
        this one was suspended for long, and is free to write then.

        Raises:
            OSError: another has it, or had it meanwhile; or the file cannot be read now.
        """
        if self._path.read_bytes() != self._written:
            who = read_holder(self._path) or "another process"
            raise OSError(f"this process was silent, and {who} has taken the run over")

    def close(self) -> None:
        """Release the lock, and say so."""
        self._closed.set()
        with contextlib.suppress(OSError):  # the folder was removed, or another has the lock
            self.check()
            self._lock.write(None)
        self._lock.close()


def take_lock(path: Path, what: str, *, wait: bool) -> RunLock:
    """Return the lock at this path. One process on any machine has it at a time; it is released
    when that process closes it or dies. The file stays. On a file system without locks a warning is
    logged, and every process of this machine gets the lock.

    what: the name of the locked thing in messages, such as 'the run "sweep"'. wait: whether to wait
        for the lock to be released.

    Raises:
        JournalError: another process has the lock; the text says which.
        OSError: the file cannot be created.
    """
    lock = LockFile.take(path)
    if lock is None:
        _refuse_or_tell(path, what, wait=wait)
        lock = LockFile.take(path, wait=True)
        assert lock is not None
    try:
        _wait_for_other_machines(path, what, wait=wait)
        if lock.lacking:
            log.warning(
                "%s: the file system of %s has no locks (%s): see to it that no other script of "
                "this machine uses it at the same time",
                what,
                path,
                lock.lacking,
            )
        return RunLock(lock, path)
    except BaseException:
        lock.close()
        raise


def _refuse_or_tell(path: Path, what: str, *, wait: bool) -> None:
    holder = read_holder(path)
    told = f"{what} is in use by {holder or 'a process that has not said who it is'}"
    if wait:
        log.warning("%s; waiting for it to end", told)
        return
    hint = "wait=True waits for it to end; another name= is another run"
    if holder is not None and not holder.is_here and not is_shown(path):
        hint += f"; if that machine is down for good, and its lock is still there, delete {path}"
    raise JournalError(told, hint=hint)


def _wait_for_other_machines(path: Path, what: str, *, wait: bool) -> None:
    """Wait while a process of another machine touches the lock, which is free as seen from here.

    Raises:
        JournalError: there is one, and `wait` is false.
    """
    first, lives = None, False
    while (found := other_machine(path)) is not None:
        holder, touched = found
        if first is None:
            first = touched
            log.warning(
                "%s was in use by %s, and has not been released; waiting at most %g s for a sign "
                "that this process lives",
                what,
                holder,
                SILENT_SECONDS,
            )
        elif not lives and touched != first:
            lives = True
            _refuse_or_tell(path, what, wait=wait)
        time.sleep(LOOK_SECONDS)
