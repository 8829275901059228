"""How much memory a process has, its limit, and whether the kernel has killed for want of it.
Linux.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_PAGE = resource.getpagesize()
_CLAIM_SECONDS = 2.0
"""How long after the kernel has killed somebody the death of a runner may be that kill."""


class MemoryLimit:
    """This process's limit of data (setrlimit(2), RLIMIT_DATA): its heap and all else that it alone
    may write to.

    It is set on top of `base`, the bytes that the process had when it was new. Unlike a limit of
    address space it leaves room for what is reserved and never used, as libraries of linear algebra
    do.
    """

    def __init__(self, base: int) -> None:
        self._base = base
        self.wanted = 0
        """How many bytes were allowed by `set`."""
        self._before, self._hard = resource.getrlimit(resource.RLIMIT_DATA)

    @property
    def limit(self) -> int:
        """The limit in force in bytes: ours, or one of address space or data that somebody else has
        set; 0 when there is none.
        """
        if self.wanted:
            return self.wanted
        others = [
            resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)
        ]
        return min((soft for soft in others if soft != resource.RLIM_INFINITY), default=0)

    def set(self, size: int) -> None:
        """Allow so many bytes, but no more than were allowed before; 0 is just as many as that."""
        if size != self.wanted:
            self.wanted = size
            self._apply(size)

    def was_met(self, error: BaseException) -> bool:
        """Return whether an exception says that memory ran out: under a limit, ENOMEM of a system
        call does too.
        """
        return isinstance(error, MemoryError) or (
            isinstance(error, OSError) and error.errno == errno.ENOMEM and self.limit > 0
        )

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Within, there is no limit."""
        if self.wanted:
            self._apply(0)
        try:
            yield
        finally:
            if self.wanted:
                self._apply(self.wanted)

    def _apply(self, size: int) -> None:
        limits = [self._base + size] * bool(size) + [self._before] * (
            self._before != resource.RLIM_INFINITY
        )
        resource.setrlimit(
            resource.RLIMIT_DATA, (min(limits, default=resource.RLIM_INFINITY), self._hard)
        )


def data_bytes(pid: int | None = None) -> int:
    """Return the bytes of data of a process, by default this one, as RLIMIT_DATA counts them (and
    its stack); 0 when it is gone.
    """
    try:
        return int(Path(f"/proc/{pid or 'self'}/statm").read_bytes().split()[5]) * _PAGE
    except OSError:
        return 0


def resident_bytes(pid: int | None = None) -> int:
    """Return the bytes that a process, by default this one, has in memory; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid or 'self'}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def peak_memory() -> int:
    """Return the most that this process has had resident, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak_memory() -> None:
    """Have the peak counted from now on (proc(5), /proc/pid/clear_refs), where the system allows
    it.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class KillCounter:
    """Counts the processes that the kernel has killed for want of memory in this process's control
    group.

    The kernel does not report which. A kill that is not claimed soon was of another process: of
    the user, say, outside our workers.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or _events_file()
        self._seen = self._count()
        self._unclaimed = 0
        self._updated_at = -math.inf
        self._rose_at = -math.inf

    def update(self, now: float) -> None:
        """See whether there are more, at most once a second; to be called from time to time (`now`
        in monotonic seconds).
        """
        if now - self._updated_at >= _CLAIM_SECONDS / 2:
            self._count_new(now)

    def claim(self, now: float) -> bool:
        """Return whether a process that was killed just now may be one of them; if so that kill
        counts for no other.
        """
        self._count_new(now)
        if not self._unclaimed:
            return False
        self._unclaimed -= 1
        return True

    def _count_new(self, now: float) -> None:
        before, self._seen = self._seen, self._count()
        if now - self._rose_at > _CLAIM_SECONDS:
            self._unclaimed = 0
        if self._seen > before:
            self._unclaimed += self._seen - before
            self._rose_at = now
        self._updated_at = now

    def _count(self) -> int:
        try:
            lines = self._file.read_text().splitlines() if self._file is not None else []
        except OSError:
            return 0
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def _events_file(
    listing: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> Path | None:
    """Return the file in which the kernel counts kills: of version 1 or 2 of control groups
    (cgroups(7)).
    """
    try:
        groups = [line.split(":", 2) for line in listing.read_text().splitlines()]
    except OSError:
        return None
    candidates = [
        root / "memory" / path.lstrip("/") / "memory.oom_control"
        for _, kind, path in groups
        if "memory" in kind.split(",")
    ]
    candidates += [
        root / path.lstrip("/") / "memory.events" for number, _, path in groups if number == "0"
    ]
    return next((file for file in candidates if file.is_file()), None)


def memory_here() -> int:
    """Return how many bytes of memory this process may have with those beside it: the machine's, or
    less where its control group, or one above, says so.
    """
    sizes: list[int] = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    events = _events_file()
    for folder in events.parents if events is not None else ():
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # the root has none, or says "max"
                sizes.append(int((folder / name).read_text()))
    return min(sizes)


def killed_for_memory(*, exitcode: int, peak: int, limit: int, kernel: bool) -> bool:
    """Return whether a process died for want of memory: the kernel counted it, or under a limit it
    aborted, or died near it.

    Args:
        exitcode: as of a `multiprocessing.Process`. peak, limit: in bytes; limit 0 is none. kernel:
        that a process was just killed so.
    """
    if kernel and exitcode == -_SIGKILL:
        return True
    return bool(limit) and (exitcode == -_SIGABRT or (exitcode < 0 and peak >= 0.75 * limit))


_SIGABRT, _SIGKILL = 6, 9
