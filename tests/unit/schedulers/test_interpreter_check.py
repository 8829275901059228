"""What is said of the Python that workers would have, run once here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gridengine._version import __version__
from gridengine.schedulers.checks import CheckState, Finding
from gridengine.schedulers.interpreter_check import check_interpreter, judge
from gridengine.system.machine import exists

COMMAND = ["conda", "run", "-n", "my env", "python"]
LINE = "conda run -n 'my env' python"
OURS = f"{sys.version_info[0]}.{sys.version_info[1]}"
PYTHON = f"\npython {sys.version_info[0]} {sys.version_info[1]} 7\n"
PACKAGE = f"{PYTHON}\ngridengine {__version__} /env/gridengine/__init__.py\n"
LACKS = "Traceback ...\nModuleNotFoundError: No module named '{}'\n\nERROR conda.cli: failed\n"


AWAY = "gridengine: the worker could not be started on h\n"
SHELL = "worker.sh: line 5"


@pytest.mark.parametrize(
    ("output", "text", "remedy"),
    [
        (f"{SHELL}: exec: conda: not found\n{AWAY}", "there is no command conda", "prologue="),
        (f"{SHELL}: conda: No such file\n{AWAY}", "there is no command conda", "whole path"),
        (f"no such env\n{AWAY}", f"{LINE} does not run Python: no such env", "by hand"),
        ("", "does not run Python: it says nothing", "by hand"),
        (
            "gridengine: the prologue failed with status 3 on h; the worker was not started\n",
            "the prologue failed with status 3 on h",
            "login shell",
        ),
        (None, f"{LINE} did not end in time", "--wait"),
        (
            "\npython 3 2 7\n" + LACKS.format("gridengine"),
            f"is Python 3.2, and this is {OURS}",
            f"name a Python {OURS}",
        ),
        (
            PYTHON + LACKS.format("gridengine"),
            f"(Python {OURS}) has no gridengine",
            f"{LINE} -m pip install gridengine=={__version__}",
        ),
        (PACKAGE + LACKS.format("zmq.green"), "has no zmq", "pip install"),
        (f"{PYTHON}ImportError: libzmq.so.5\n", "libzmq.so.5", "by hand"),
        (
            PACKAGE.replace(__version__, "0.0.1") + "\nwhole\n",
            f"has gridengine 0.0.1, and this is {__version__}",
            "pip install",
        ),
        (
            PACKAGE.replace(" 7\n", " 8\n") + "\nwhole\n",
            "does not leave its Python the standard output",
            "--no-capture-output",
        ),
    ],
)
def test_a_missing_part_is_told_with_a_remedy(output: str | None, text: str, remedy: str) -> None:
    found = judge(COMMAND, output, 7)
    assert found.state is CheckState.BROKEN
    assert text in found.text
    assert remedy in found.remedy


def test_a_python_that_has_all_is_told_with_its_package() -> None:
    found = judge(COMMAND, f"{PACKAGE}\nwhole\n", 7)
    assert found.state is CheckState.OK
    assert found.text == f"{LINE}: Python {OURS}, gridengine {__version__} in /env/gridengine"


def stand_in(folder: Path, name: str, text: str) -> dict[str, str]:
    """Write a command; return the environment of a user who has it."""
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def checked(folder: Path, environment: dict[str, str], **nodes: object) -> Finding:
    return check_interpreter(folder, environment, 60, **nodes)  # type: ignore[arg-type]


def test_this_python_is_run_with_the_prologue(tmp_path: Path) -> None:
    environment = stand_in(tmp_path, "own-python", f'exec {sys.executable} "$@"')
    found = checked(tmp_path, environment, python="own-python")
    assert found.state is CheckState.OK
    found = checked(tmp_path, environment, python="own", prologue=f"alias own; cd {tmp_path}")
    assert "the prologue failed" in found.text
    found = checked(tmp_path, environment, python="./own-python", prologue=[f"cd {tmp_path}"])
    assert found.state is CheckState.OK


def test_a_container_gets_the_folder_of_the_runs_that_is_there(tmp_path: Path) -> None:
    """Its image has no `python` but the stand-in, which notes its command line."""
    text = f'printf "%s\\n" "$@" >{tmp_path}/words; shift 4; exec {sys.executable} "${{@:2}}"'
    environment = stand_in(tmp_path, "apptainer", text)
    found = checked(tmp_path / "none" / "yet", environment, container="image.sif")
    assert found.state is CheckState.OK, found
    words = (tmp_path / "words").read_text().splitlines()
    image = str(Path("image.sif").absolute())
    assert words[:6] == ["exec", "--bind", str(tmp_path), image, "python", "-P"]


def test_a_command_that_captures_the_output_is_told(tmp_path: Path) -> None:
    environment = stand_in(tmp_path, "captures", f'{sys.executable} "$@" | cat')
    assert "--no-capture-output" in checked(tmp_path, environment, python="captures").remedy


def test_a_command_that_does_not_end_is_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    words = ["/bin/sh", "-c", f"echo $$ >{pids}; exec sleep 600"]
    found = check_interpreter(tmp_path, os.environ, 1.0, python=words)
    assert "did not end in time" in found.text
    assert not pids.exists() or not exists(int(pids.read_text()))
