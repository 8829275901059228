"""Whether a process still runs."""

from __future__ import annotations

import os

from gridengine.wire.processes import started, this_machine


def test_a_process_has_begun_and_one_that_is_not_there_has_not() -> None:
    assert started(os.getpid()) > 0
    assert started(1 << 22) == 0


def test_a_process_that_has_ended_and_was_not_waited_for_has_not_begun() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert started(pid) == 0
    os.waitpid(pid, 0)


def test_a_machine_is_told_by_its_start_and_its_processes() -> None:
    assert this_machine() == this_machine() != ""
    assert "pid:[" in this_machine()
