"""Processes, as others find out whether they still run: those of a machine that see each other."""

from __future__ import annotations

import contextlib
from pathlib import Path


def this_machine() -> str:
    """Return what tells this machine, since it was started, and which of its processes can be seen
    here; empty where that cannot be told.
    """
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def has_ended(machine: str, pid: int, since: int) -> bool:
    """Return whether a process, which began then, can be seen from here, and has ended."""
    return machine == this_machine() != "" and started(pid) != since


def started(pid: int) -> int:
    """Return when a process of this machine began, in the kernel's units; 0 when it has ended, or
    cannot be looked at.
    """
    try:
        # The name, in brackets, may have any characters (proc_pid_stat(5)).
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return 0 if state in "ZX" else int(fields[18])
    except (OSError, ValueError, IndexError):
        return 0
