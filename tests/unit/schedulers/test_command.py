"""Commands of batch systems are run for so long and no longer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gridengine.schedulers.command import Answer, ask, run_command

FOR_EVER = "sleep 600"


def script(folder: Path, text: str) -> str:
    path = folder / "command"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_what_a_command_writes_and_how_it_ends_is_returned(tmp_path: Path) -> None:
    done = run_command([script(tmp_path, "echo out; echo err >&2; exit 3")], os.environ, 30)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_a_command_that_says_that_it_only_waits_is_ended(tmp_path: Path) -> None:
    command = script(tmp_path, f"echo waiting for room >&2; {FOR_EVER}")
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run_command([command], os.environ, 600, waiting=b"waiting")
    assert caught.value.stderr == b"waiting for room\n"


def test_a_command_over_its_time_is_a_failure_that_names_it(tmp_path: Path) -> None:
    command = script(tmp_path, f"exec {FOR_EVER}")
    assert ask([command], os.environ, 0.1) == Answer("", f"{command} gives no answer within 0.1 s")


def test_a_command_that_cannot_be_run_is_a_failure_with_the_system_s_words(tmp_path: Path) -> None:
    command = str(tmp_path / "nosuch")
    assert ask([command], os.environ, 30) == Answer("", f"{command}: No such file or directory")


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("echo all; exit 0", ""),
        ("echo all; echo 'no  such' >&2; echo queue >&2; exit 1", "no such queue"),
        ("echo all; exit 1", "all"),
    ],
)
def test_a_failure_is_told_in_one_line_and_the_output_stays(
    tmp_path: Path, text: str, failure: str
) -> None:
    assert ask([script(tmp_path, text)], os.environ, 30) == Answer("all\n", failure)


def test_commands_answer_in_english(tmp_path: Path) -> None:
    command = script(tmp_path, "echo $LC_ALL")
    assert ask([command], {**os.environ, "LC_ALL": "de_DE"}, 30) == Answer("C\n")
