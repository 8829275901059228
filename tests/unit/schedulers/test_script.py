"""The shell script that a cluster task runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gridengine.schedulers.script import job_name, launch_script


def run_script(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "worker.sh"
    path.write_text(script)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        ["bash", str(path)], capture_output=True, text=True, env=environment, check=False
    )


def test_the_launch_script_quotes_what_it_is_given(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import os, sys; print(sys.argv[1:], os.environ['ODD'])",
        "a 'b'; $HOME",
    ]
    script = launch_script(command, prologue=(), environment={"ODD": "it's $HOME"}, path="")
    assert run_script(script, tmp_path).stdout == """["a 'b'; $HOME"] it's $HOME\n"""


def test_a_failing_prologue_line_keeps_the_worker_from_starting_and_says_so(tmp_path: Path) -> None:
    done = run_script(
        launch_script(["echo", "worker"], prologue=["false", "true"], environment={}, path=""),
        tmp_path,
    )
    assert done.returncode == 1
    assert "worker\n" not in done.stdout
    assert "the prologue failed with status 1" in done.stderr


def test_after_a_prologue_the_worker_starts_with_its_variables(tmp_path: Path) -> None:
    script = launch_script(
        ["printenv", "A", "B"],
        prologue=["export A=1", "export B=1"],
        environment={"B": "2"},
        path="",
    )
    assert run_script(script, tmp_path).stdout == "1\n2\n"


def test_the_package_s_folder_comes_before_a_path_that_the_prologue_sets(tmp_path: Path) -> None:
    script = launch_script(
        ["printenv", "PYTHONPATH"],
        prologue=["export PYTHONPATH=/site"],
        environment={},
        path="/check out",
    )
    assert run_script(script, tmp_path).stdout == "/check out:/site\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("risky", "risky"),
        ("main.<locals>.risky", "risky"),
        ("Trainer.train", "Trainer.train"),
        ("<lambda>", "lambda"),
        ("main.<locals>.<lambda>", "lambda"),
        ("2body", "gridengine-2body"),
        ("_hidden", "gridengine-_hidden"),
        ("a/b:c@d\\e*f?g h,i\nj", "a-b-c-d-e-f-g-h-i-j"),
        ("Größe", "Gr-e"),
        ("", "gridengine"),
        ("x" * 99, "x" * 40),
    ],
)
def test_a_job_s_name_is_one_that_every_batch_system_takes(text: str, name: str) -> None:
    assert job_name(text) == name
