"""What log files of workers say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridengine.errors import WorkerLost
from gridengine.schedulers.logs import add_log, is_empty, log_tail, unanswered


def test_a_log_s_tail_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert log_tail(str(log)).splitlines()[-1] == "line 9999"
    assert len(log_tail(str(log)).splitlines()) == 20
    assert log_tail(str(tmp_path / "none")) == ""


@pytest.mark.parametrize("path", ["{}/a\0", "{}/pipe", "{}", "/dev/zero", "{}/x" * 2000, ""])
def test_nothing_is_read_of_a_path_that_is_no_file_whatever_a_worker_sends(
    tmp_path: Path, path: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert log_tail(path.format(*[tmp_path] * 2000)) == ""


@pytest.mark.parametrize("end", ["; it tries on\nmore\n", "\n  try: this\n", ""])
def test_a_log_says_which_addresses_do_not_answer(tmp_path: Path, end: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"hello\nthe worker on a gets no answer of its dispatcher: tcp://b:1 (why){end}")
    assert unanswered(str(log)) == "tcp://b:1 (why)"
    log.write_text("hello\n")
    assert unanswered(str(log)) == ""


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        ("", True),
        ("slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-22T01:44:36 ***\n", True),
        (
            "slurmstepd: error: *** STEP 62.0 ON node-7 CANCELLED AT 2026-11-22T01:44:36 ***\n" * 2,
            True,
        ),
        (
            "[2026-11-28T09:43:32.498] error: *** STEP 2.0 ON n2 CANCELLED AT 2026-11-28T09:43:32 "
            "DUE to SIGNAL Terminated ***\n",
            True,
        ),
        (
            "slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-22T01:44:36 DUE TO TIME "
            "LIMIT ***\n",
            False,
        ),
        (
            "hello\nslurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-22T01:44:36 ***\n",
            False,
        ),
        ("x" * 10_000, False),
    ],
)
def test_a_log_that_only_says_that_its_job_was_cancelled_says_nothing(
    tmp_path: Path, text: str, empty: bool
) -> None:
    (tmp_path / "a.log").write_text(text)
    assert is_empty(tmp_path / "a.log") is empty
    error = WorkerLost("gone")
    add_log(error, str(tmp_path / "a.log"))
    assert (error.log is None, error.log_tail is None) == (empty, empty)


@pytest.mark.parametrize("name", ["of-another-machine.log", "no\0path.log"])
def test_a_log_that_cannot_be_read_is_named_without_its_end(tmp_path: Path, name: str) -> None:
    error = WorkerLost("gone")
    add_log(error, str(tmp_path / name))
    assert (error.log, error.log_tail) == (str(tmp_path / name), None)
