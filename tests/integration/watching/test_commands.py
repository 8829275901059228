"""The commands that show a run, against one that is under way, at a terminal and through a pipe."""

from __future__ import annotations

import csv
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gridengine.dispatcher.run_reports import write_report
from gridengine.dispatcher.watch_messages import Identity, WatchAnswer
from gridengine.status.rows import Status
from tests.support.processes import completed
from tests.support.waiting import wait_until

WHO = Identity("sweep.py", "20260101-1", 4242, "login1", "", "", 0.0, "Slurm", "1", "3.11")


def gridengine(*words: str, status: int = 0) -> str:
    done = completed([sys.executable, "-m", "gridengine", *words])
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def told_at_last(words: str, *command: str) -> str:
    """Return what a command tells once it has these words: before, it may tell that a worker which
    this machine has held up is silent.
    """
    return str(wait_until(lambda: words in (told := gridengine(*command)) and told))


def shown_at_last(cause: str) -> Any:
    """Return what `top` shows once it tells of this cause."""

    def look() -> Any:
        shown = json.loads(gridengine("top", "--once", "--json"))
        return shown if cause in [one["cause"] for one in shown["explanations"]] else None

    return wait_until(look)


def test_the_run_is_listed(process: subprocess.Popen[str]) -> None:
    [title, row] = gridengine("ls").splitlines()
    [found] = json.loads(gridengine("ls", "--json"))["dispatchers"]
    assert title.split()[:4] == ["name", "id", "pid", "host"]
    id = found["identity"]["run_id"][-6:]
    assert row.split()[:3] == ["sweep.py", id, str(process.pid)]
    assert found["status"]["failed"] == 1


def test_runs_that_have_ended_are_listed_and_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_report("20260101-1", msgspec.json.encode(WatchAnswer(WHO, Status(done=7, failed=1))), 5)
    told = gridengine("ls", status=1)
    [words, row] = told.splitlines()[0], told.splitlines()[-1].split()
    assert words == "no dispatcher runs"
    assert (row[:3], row[-2:]) == (["sweep.py", "1", "4242"], ["7", "1"])
    [found] = json.loads(gridengine("ls", "--json", status=1))["ended"]
    assert (found["identity"]["name"], found["done"], found["failed"]) == ("sweep.py", 7, 1)
    assert "sweep.py, process 4242 on login1, ended at" in gridengine("explain")


def test_calls_are_listed_with_what_they_were_given_and_why_they_failed(
    process: subprocess.Popen[str],
) -> None:
    [row] = csv.DictReader(gridengine("calls", "sweep", "--failed", "--csv").splitlines())
    assert (row["call"], row["arguments"], row["state"]) == ("call 0 of slow", "number=0", "failed")
    assert row["why"] == "ValueError: zero is bad"
    running = json.loads(gridengine("calls", "--running", "--json"))
    assert [one["call"] for one in running] == ["call 1 of slow", "call 2 of slow"]


def test_why_calls_wait_is_said(process: subprocess.Popen[str]) -> None:
    told = told_at_last("3 calls wait for a free slot", "explain", "sweep.py")
    assert "call 0 of slow failed on " in told
    [one] = json.loads(gridengine("explain", str(process.pid), "1", "--json"))
    assert one["text"].startswith("call 1 of slow runs on ")


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


def test_the_log_of_the_dispatcher_is_shown(process: subprocess.Popen[str]) -> None:
    assert "launched 1 worker for slow" in gridengine("logs", "sweep")
    assert "'nobody' names no call that runs or has ended" in gridengine(
        "logs", "sweep", "nobody", status=1
    )


def test_output_of_calls_of_a_script_s_own_processes_is_shown(
    process: subprocess.Popen[str],
) -> None:
    told = told_at_last("call 2 speaks", "logs", "sweep")
    assert sorted(told.split("==> output of calls <==\n")[1].splitlines()) == [
        f"call {number} speaks" for number in range(3)
    ]


def test_workers_leave_a_machine_that_is_drained(
    process: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert "no worker is on nosuch" in gridengine("drain", "nosuch", status=1)
    assert "1 worker will leave" in gridengine("drain", socket.gethostname())
    (tmp_path / "over").touch()
    assert process.wait(60) == 0


def test_a_page_on_a_run_is_written(process: subprocess.Popen[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    gridengine("report", "sweep", "-o", str(page))
    assert "ValueError: zero is bad" in page.read_text()


def test_only_what_is_followed_is_shown(process: subprocess.Popen[str]) -> None:
    words = "top", "--once", "--json", "--follow"
    told = json.loads(gridengine(*words, socket.gethostname()))
    assert len(told["status"]["runs"]) == 2
    assert json.loads(gridengine(*words, "nosuch"))["status"]["runs"] == []
    assert sum(told["sent"].values()) >= 2
    assert sum(told["received"].values()) >= 1


FAILS = """
import sys
import gridengine
from pathlib import Path

def call(number):
    if number == 2 and not Path(sys.argv[1]).exists():
        raise ValueError("two is bad")
    return number

if __name__ == "__main__":
    gridengine.map(call, range(4), name="night", reraise=False, chunksize=1)
"""


def test_failed_calls_of_a_run_with_a_name_are_run_again(tmp_path: Path) -> None:
    script, mended = tmp_path / "night.py", tmp_path / "mended"
    script.write_text(FAILS.replace("sys.argv[1]", repr(str(mended))))
    subprocess.run([sys.executable, str(script)], check=True, timeout=100)
    assert "Aborted" in gridengine("retry", "night", "--failed", status=1)
    words = "retry", "night", "--failed", "--yes", "--scheduler", "processes"
    assert "night: 0 calls done, 1 failed" in gridengine(*words, status=1)
    mended.touch()
    assert "night: 1 call done, 0 failed" in gridengine(*words)
    assert "nothing has failed" in gridengine(*words)
    assert '"result": 2}' in gridengine("results", "night")


def test_a_frame_and_its_json_are_printed_once(process: subprocess.Popen[str]) -> None:
    assert "1 of 6 calls ended" in gridengine("top", "--once")
    told = shown_at_last("max_workers")
    assert told["status"]["running"] == 2
    causes = [one["cause"] for one in told["explanations"]]
    assert next(cause for cause in causes if cause != "silent") == "max_workers"


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
