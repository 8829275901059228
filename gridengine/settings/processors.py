"""How many processors this process may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from gridengine.system import control_groups, processors

GROUPS = Path("/sys/fs/cgroup")
MANY = 1 << 30


def usable_processors() -> int:
    """Return how many processors this process may use: those of its CPU affinity, but no more than
    the quota of its container (a control group) lets run at a time, rounded up.
    """
    return min(len(processors()), quota_of(GROUPS, control_groups()) or MANY)


def quota_of(groups: Path, lines: Iterable[str]) -> int | None:
    """Return the smallest quota of the control groups that a process is in, in processors; None if
    there is none.

    groups: where the file system of control groups is; lines: see `control_groups`.
    Source: the kernel's documentation, admin-guide/cgroup-v2 (`cpu.max`) and scheduler/sched-bwc.
    """
    pairs = [pair for line in lines for pair in _pairs(groups, line)]
    return min((max(1, -(-quota // period)) for quota, period in pairs), default=None)


def _pairs(groups: Path, line: str) -> Iterator[tuple[int, int]]:
    """Read quotas and their periods, in microseconds, of a process's group of one hierarchy and the
    groups above it. Inside a container the file system may begin at the process's own group.
    """
    number, controllers, group = line.split(":", 2)
    unified = number == "0"
    if not unified and "cpu" not in controllers.split(","):
        return
    top = groups if unified else groups / "cpu"
    for folder in (top / group[1:], *(top / group[1:]).parents):
        if not folder.is_relative_to(top):
            return
        names = ("cpu.max",) if unified else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [word for name in names for word in _words(folder / name)]
        if len(words) == 2 and words[0].isdecimal():  # "max" and -1 are no quota
            yield int(words[0]), int(words[1])


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []  # the group at the top has no such file, nor has a group outside of a container
