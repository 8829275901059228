"""Measure and limit a process's memory, and find out whether the kernel killed it for lack of
memory. Linux.
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
"""For how long after a kill by the kernel a runner's death may be explained by that kill."""


class MemoryLimit:
    """This process's limit of data (setrlimit(2), RLIMIT_DATA): its heap and its other private
    writable memory.

    The limit is set on top of `base`, the bytes of data that the process had when it was new.
    Unlike a limit of address space, it does not count memory that is reserved and never used, as
    libraries of linear algebra do.
    """

    def __init__(self, base: int) -> None:
        self._base = base
        self.wanted = 0
        """The limit that was passed to `set`, in bytes."""
        self._before, self._hard = resource.getrlimit(resource.RLIMIT_DATA)

    @property
    def limit(self) -> int:
        """The limit in force, in bytes: ours, or one of address space or data that was set
        elsewhere; 0 when there is none.
        """
        if self.wanted:
            return self.wanted
        others = [
            resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)
        ]
        return min((soft for soft in others if soft != resource.RLIM_INFINITY), default=0)

    def set(self, size: int) -> None:
        """Allow this many bytes, but never more than the limit that was in force at the start. 0
        restores that limit.
        """
        if size != self.wanted:
            self.wanted = size
            self._apply(size)

    def was_met(self, error: BaseException) -> bool:
        """Return whether an exception means that memory ran out. Under a limit, ENOMEM of a system
        call means that too.
        """
        return isinstance(error, MemoryError) or (
            isinstance(error, OSError) and error.errno == errno.ENOMEM and self.limit > 0
        )

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Lift the limit within the block."""
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
    """Return a process's bytes of data as RLIMIT_DATA counts them, and its stack; 0 when it is
    gone. The default is this process.
    """
    try:
        return int(Path(f"/proc/{pid or 'self'}/statm").read_bytes().split()[5]) * _PAGE
    except OSError:
        return 0


def resident_bytes(pid: int | None = None) -> int:
    """Return a process's resident memory in bytes; 0 when it is gone. The default is this
    process.
    """
    try:
        return int(Path(f"/proc/{pid or 'self'}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def peak_memory() -> int:
    """Return the highest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak_memory() -> None:
    """Restart the measurement of the peak (proc(5), /proc/pid/clear_refs), where the system allows
    it.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class KillCounter:
    """Counts the processes in this process's control group that the kernel has killed for lack of
    memory.

    The kernel does not report which processes these were. A kill that no runner's death claims soon
    was that of another process, such as the user's own outside our workers.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or _events_file()
        self._seen = self._count()
        self._unclaimed = 0
        self._updated_at = -math.inf
        self._rose_at = -math.inf

    def update(self, now: float) -> None:
        """Look for new kills, at most once a second. Call this from time to time (`now` in
        monotonic seconds).
        """
        if now - self._updated_at >= _CLAIM_SECONDS / 2:
            self._count_new(now)

    def claim(self, now: float) -> bool:
        """Return whether a process that was killed just now may be one of the counted kills. If so,
        that kill is used up.
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
    """Return the file in which the kernel counts kills, in version 1 or 2 of control groups
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
    """Return how many bytes of memory this process and its neighbours may have: the machine's, or
    less where its control group or a parent of that says so.
    """
    sizes: list[int] = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    events = _events_file()
    for folder in events.parents if events is not None else ():
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # no limit: no such file, or "max"
                sizes.append(int((folder / name).read_text()))
    return min(sizes)


def killed_for_memory(*, exitcode: int, peak: int, limit: int, kernel: bool) -> bool:
    """Return whether a process died for lack of memory: the kernel counted the kill or, under a
    limit, the process aborted or died near the limit.

    Args:
        exitcode: as in `multiprocessing.Process`. peak, limit: in bytes; limit 0 is none.
        kernel: whether the kernel has just killed some process for lack of memory.
    """
    if kernel and exitcode == -_SIGKILL:
        return True
    return bool(limit) and (exitcode == -_SIGABRT or (exitcode < 0 and peak >= 0.75 * limit))


_SIGABRT, _SIGKILL = 6, 9
