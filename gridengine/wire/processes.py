"""Identify processes across reboots and namespaces, and ask whether they still run."""

from __future__ import annotations

import contextlib
from pathlib import Path


def this_machine() -> str:
    """Identify this machine since its last boot, together with its process namespace; empty where
    /proc does not tell. Equal values mean that process ids are comparable.
    """
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def has_ended(machine: str, pid: int, since: int) -> bool:
    """Return whether a process can be looked up from here and has ended. `machine` is its
    `this_machine`, `since` its `started`.
    """
    return machine == this_machine() != "" and started(pid) != since


def started(pid: int) -> int:
    """Return the start time of a process of this machine, in clock ticks since boot; 0 when the
    process has ended or cannot be looked at.
    """
    try:
        # The name, in brackets, may have any characters (proc_pid_stat(5)).
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return 0 if state in "ZX" else int(fields[18])
    except (OSError, ValueError, IndexError):
        return 0
