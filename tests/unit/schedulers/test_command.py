"""Commands of batch systems are run for so long and no longer."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from gridengine.schedulers import command as module
from gridengine.schedulers.command import Answer, ask, run_command
from tests.support.waiting import wait_until


def script(folder: Path, text: str) -> str:
    path = folder / "command"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_output_and_status_of_a_command_are_returned(tmp_path: Path) -> None:
    done = run_command([script(tmp_path, "echo out; echo err >&2; exit 3")], os.environ, 600)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_a_command_that_says_that_it_only_waits_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    text = f"exec 7>'{tmp_path}/held'; sleep 600 & echo waiting for room >&2; wait"
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run_command([script(tmp_path, text)], os.environ, 600, waiting=b"waiting")
    assert caught.value.stderr == b"waiting for room\n"
    assert select.select([held], [], [], 60)[0], "a child holds the pipe"
    os.close(held)


def test_a_command_over_its_time_is_a_failure_that_names_it(tmp_path: Path) -> None:
    command = script(tmp_path, "exec sleep 600")
    assert ask([command], os.environ, 0) == Answer(
        "", f"{command} gave no answer within 0 s", is_silent=True
    )


def test_a_command_of_another_user_that_cannot_be_killed_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []

    def refuse(group: int, number: int) -> None:
        groups.append(group)
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "killpg", refuse)
        with pytest.raises(subprocess.TimeoutExpired):
            run_command([script(tmp_path, "exec sleep 600")], os.environ, 0.1)
    [group] = groups
    os.killpg(group, signal.SIGKILL)  # it was still there
    wait_until(lambda: os.waitpid(group, os.WNOHANG)[0] == group)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("echo all; exit 0", ""),
        ("echo all; echo 'ours: no such' >&2; echo queue >&2; exit 1", "no such; queue"),
        ("echo all; exit 1", "all"),
    ],
)
def test_a_failure_is_told_in_one_line_and_the_output_stays(
    tmp_path: Path, text: str, failure: str
) -> None:
    command = [script(tmp_path, text)]
    assert ask(command, os.environ, 600) == Answer("all\n", failure)


def test_a_command_that_cannot_be_run_is_a_failure_with_the_system_s_words(tmp_path: Path) -> None:
    command = tmp_path / "command"
    command.write_text("")
    assert ask([str(command)], os.environ, 600) == Answer(
        "", f"{command} cannot be run: Permission denied", is_silent=True
    )
