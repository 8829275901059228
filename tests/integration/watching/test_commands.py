"""The commands that show a run, against one that is under way, at a terminal and through a pipe."""

from __future__ import annotations

import csv
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.processes import completed
from tests.support.waiting import wait_until


def gridengine(*words: str, status: int = 0) -> str:
    done = completed([sys.executable, "-m", "gridengine", *words])
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def told_at_last(words: str, *command: str) -> str:
    """Return what a command tells once it has these words: before, it may tell that a worker which
    this machine has held up is silent.
    """
    return str(wait_until(lambda: words in (told := gridengine(*command)) and told))


def test_the_run_is_listed(process: subprocess.Popen[str]) -> None:
    [title, row] = gridengine("ls").splitlines()
    [found] = json.loads(gridengine("ls", "--json"))["dispatchers"]
    assert title.split()[:4] == ["name", "id", "pid", "host"]
    id = found["identity"]["run_id"][-6:]
    assert row.split()[:3] == ["sweep.py", id, str(process.pid)]
    assert found["status"]["failed"] == 1


def test_calls_are_listed_with_their_arguments_and_the_reason_of_their_failure(
    process: subprocess.Popen[str],
) -> None:
    [row] = csv.DictReader(gridengine("calls", "sweep", "--failed", "--csv").splitlines())
    assert (row["call"], row["arguments"], row["state"]) == ("call 0 of slow", "number=0", "failed")
    assert row["why"] == "ValueError: zero is bad"
    running = json.loads(gridengine("calls", "--running", "--json"))
    assert [one["call"] for one in running] == ["call 1 of slow", "call 2 of slow"]


def test_calls_are_ended_by_their_numbers_and_all_when_that_is_meant(
    process: subprocess.Popen[str],
) -> None:
    assert "1 call ended" in gridengine("cancel", "sweep", "4")
    found = json.loads(gridengine("calls", "sweep", "--failed", "--json"))
    assert found[0]["call"] == "call 4 of slow"
    assert found[0]["state"] == "cancelled"
    assert "no such call" in gridengine("cancel", "sweep", "9", status=1)
    assert "Aborted" in gridengine("cancel", "sweep", status=1)
    assert "4 calls ended" in gridengine("cancel", "sweep", "--yes")
    assert process.wait(60) == 0


def test_output_of_calls_of_a_script_s_own_processes_is_shown(
    process: subprocess.Popen[str],
) -> None:
    told = told_at_last("call 2 speaks", "logs", "sweep")
    assert sorted(told.split("==> output of calls <==\n")[1].splitlines()) == [
        f"call {number} speaks" for number in range(3)
    ]


def test_through_a_pipe_there_are_plain_frames_until_the_run_ends(
    process: subprocess.Popen[str], tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "gridengine", "top", "--interval", "0.2", "--view", "calls"]
    top = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert top.stdout is not None
    assert top.stdout.readline().startswith("sweep.py: process")
    (tmp_path / "over").touch()
    output, errors = top.communicate(timeout=100)
    assert top.returncode == 0
    assert "\x1b" not in output
    assert "sweep.py has ended; when it was last seen, of its calls" in errors


def test_workers_leave_a_machine_that_is_drained(
    process: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert "no worker is on nosuch" in gridengine("drain", "nosuch", status=1)
    assert "1 worker will leave" in gridengine("drain", socket.gethostname())
    (tmp_path / "over").touch()
    assert process.wait(60) == 0


def shown_at_last(cause: str) -> Any:
    """Return what `top` shows once it tells of this cause."""

    def look() -> Any:
        shown = json.loads(gridengine("top", "--once", "--json"))
        return shown if cause in [one["cause"] for one in shown["explanations"]] else None

    return wait_until(look)


def test_only_followed_calls_are_shown(process: subprocess.Popen[str]) -> None:
    words = "top", "--once", "--json", "--follow"
    told = json.loads(gridengine(*words, socket.gethostname()))
    assert len(told["status"]["runs"]) == 2
    assert json.loads(gridengine(*words, "nosuch"))["status"]["runs"] == []
