"""The processes below this one: adopt orphans, list children, end them. Linux."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_SECONDS = 1.0
_TERMINATION_SECONDS = 1.0
"""How long an orphan may take to end after SIGTERM."""


class OrphanReaper:
    """Ends orphans. Each gets SIGTERM first: joblib's workers, for example, have files in shared
    memory that somebody must remove.
    """

    def __init__(self) -> None:
        self._kill_at: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._kill_at)

    def wait_seconds(self) -> float:
        """Return after how many seconds to call `end` again."""
        now = monotonic()
        return min(
            [_LOOK_SECONDS, *[kill_at - now for kill_at in self._kill_at.values() if kill_at > now]]
        )

    def end(self, pids: Iterable[int]) -> None:
        """Send SIGTERM to those of these processes that had none before, and SIGKILL to those that
        had one long enough ago. Processes that became another user's, as by sudo, are left alone.
        """
        now, before = monotonic(), self._kill_at
        self._kill_at = {}
        for pid in pids:
            kill_at = before.get(pid, now + _TERMINATION_SECONDS)
            with contextlib.suppress(PermissionError):
                with contextlib.suppress(ProcessLookupError):
                    if pid not in before:
                        os.kill(pid, signal.SIGTERM)
                        os.kill(pid, signal.SIGCONT)  # a stopped process would not act on it
                    elif now >= kill_at:
                        os.kill(pid, signal.SIGKILL)
                self._kill_at[pid] = kill_at


def adopt_orphans() -> None:
    """Make this process the parent of all orphans below it, in place of the system's first
    process.
    """
    _set_process_control(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _set_process_control(_PR_SET_PDEATHSIG, signal.SIGKILL)


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
    """End all children of this process, and theirs once they are orphans, until none is left that
    this process may end.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    orphans = OrphanReaper()
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                left = children()
                orphans.end(left)
                if left and not orphans:
                    return
                signal.sigtimedwait({signal.SIGCHLD}, orphans.wait_seconds())


def signal_group(pid: int, number: int) -> None:
    """Send a signal to the process group that a process leads, or to the process alone before it
    leads one.
    """
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _set_process_control(option: int, value: int) -> None:
    """Call prctl(2)."""
    import ctypes  # here: a dispatcher imports this module and never calls this

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
