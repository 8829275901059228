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
from gridengine.schedulers.command import CommandOutput, CommandRunner, ask, run_command
from gridengine.schedulers.launcher import (
    BatchSystemError,
    BatchSystemRefusal,
    Unavailable,
    Unreachable,
)
from tests.support.waiting import wait_until
from tests.unit.schedulers.test_batch_commands import Example


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
    assert ask([command], os.environ, 0) == CommandOutput(
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
    assert ask(command, os.environ, 600) == CommandOutput("all\n", failure)


def test_a_command_that_cannot_be_run_is_a_failure_with_the_system_s_words(tmp_path: Path) -> None:
    command = tmp_path / "command"
    command.write_text("")
    assert ask([str(command)], os.environ, 600) == CommandOutput(
        "", f"{command} cannot be run: Permission denied", is_silent=True
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("echo no server >&2; exit 1", Unreachable),
        ("echo there is no queue >&2; exit 1", BatchSystemRefusal),
        ("echo no such job >&2; exit 1", BatchSystemRefusal),
        ("echo too many jobs >&2; exit 1", BatchSystemRefusal),
        ("echo no server takes too many jobs >&2; exit 1", BatchSystemRefusal),
    ],
)
def test_a_failure_is_a_refusal_unless_the_system_was_not_reached(
    tmp_path: Path, text: str, kind: type[BatchSystemError]
) -> None:
    runner = CommandRunner(Example(), os.environ)
    with pytest.raises(BatchSystemError) as caught:
        runner.submit([script(tmp_path, text)])
    assert type(caught.value) is kind


class Retrying(Example):
    retrying = b"retrying"


def test_a_command_without_an_answer_is_no_refusal_unless_it_waits_at_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    runner = CommandRunner(Retrying(), os.environ)
    with pytest.raises(Unreachable, match="gave no answer within 0 s"):
        runner.run([script(tmp_path, "exec sleep 600")], 0)
    with pytest.raises(Unreachable, match="retrying"):
        runner.run([script(tmp_path, "echo retrying >&2; exec sleep 600")], 600)
    with pytest.raises(BatchSystemRefusal, match="too many jobs"):
        runner.run([script(tmp_path, "echo too many jobs, retrying >&2; exec sleep 600")], 600)


def test_an_unknown_job_is_an_error_of_a_submission_alone(tmp_path: Path) -> None:
    runner = CommandRunner(Example(), os.environ)
    command = [script(tmp_path, "echo 17.1; echo no such job >&2; exit 1")]
    assert runner.run(command) == "17.1\n"
    with pytest.raises(BatchSystemRefusal):
        runner.submit(command)


class Configured(Example):
    configuration = "EXAMPLE_CONF"


def test_a_command_or_the_file_that_configures_it_may_be_missing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        CommandRunner(Configured(), os.environ).run([str(tmp_path / "command")])
    runner = CommandRunner(Configured(), {**os.environ, "EXAMPLE_CONF": str(tmp_path / "conf")})
    ran = script(tmp_path, f"touch '{tmp_path}/ran'")
    with pytest.raises(Unreachable, match="no configuration file EXAMPLE_CONF="):
        runner.run([ran])
    assert not (tmp_path / "ran").exists()
