"""The command line of a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gridengine.call_context import EXPORTED, KEPT, SITE
from gridengine.errors import ConfigurationError
from gridengine.schedulers import worker_command as module
from gridengine.schedulers.worker_command import (
    container_words,
    hiding_flags,
    in_container,
    job_name,
    launch_script,
    python_command,
    python_path,
    worker_command,
)
from tests.support.processes import completed

FILE = Path("/r/connection.json")


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flags of this interpreter."""
    found: list[str] = []
    monkeypatch.setattr(module, "interpreter_flags", lambda: found)
    return found


def test_nothing_is_imported_from_the_working_directory(flags: list[str]) -> None:
    assert worker_command("/opt/python", FILE) == [
        *("/opt/python", "-P", "-m", "gridengine.worker", str(FILE))
    ]


def test_a_command_of_several_words_begins_the_line(flags: list[str]) -> None:
    assert worker_command(["srun", "a b", "python3"], FILE)[:4] == ["srun", "a b", "python3", "-P"]


def test_flags_that_change_the_behaviour_of_calls_are_passed_on(flags: list[str]) -> None:
    flags += ["-O", "-vv", "-B", "-q", "-W", "error", "-X", "dev", "-d"]
    command = worker_command("python", FILE)
    assert command[1:-4] == ["-O", "-W", "error", "-X", "dev"]


def test_modules_that_hide_the_environment_s_are_told_apart(flags: list[str]) -> None:
    flags += ["-O", "-I", "-s", "-Wd", "-E", "-S"]
    assert hiding_flags() == ["-I", "-s", "-E", "-S"]


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_the_package_s_folder_is_named_where_it_would_not_be_found(
    flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", "lib", "/a", "/b"])
    command = python_command("python", [flag], "gridengine.worker", "x")
    assert command[:4] == ["python", flag, "-P", "-c"]
    assert "run_module('gridengine.worker', None, '__main__', True)" in command[4]
    assert command[5:] == ["/a:/b" if flag == "-S" else python_path(""), "x"]


@pytest.mark.parametrize(
    ("inherited", "path"),
    [("", []), ("/a:/b", ["/a", "/b"]), (":lib:/a:../x:/a:", ["/a"])],
)
def test_relative_folders_would_be_others_there(
    inherited: str, path: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "__file__", "/src/gridengine/schedulers/worker_command.py")
    assert python_path(inherited) == os.pathsep.join([*path, "/src"])
    assert python_path("/src:/a") == "/src:/a"


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_an_installed_package_is_found_without_being_named(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = f"/usr/lib/{folder}/gridengine/schedulers/worker_command.py"
    monkeypatch.setattr(module, "__file__", file)
    assert python_path("") == ""
    assert python_path("/a") == "/a"


def run_script(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "worker.sh"
    path.write_text(script)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "MULTIPLE": "a\nb=c", "OLD": "1"}
    return completed(["bash", str(path)], env=environment)


def test_the_launch_script_quotes_its_arguments(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("prologue", "given", "said"),
    [
        ("export A=1 B=1", {"environment": {"B": "2"}}, "A=1 B=2"),
        ("export PYTHONPATH=/site", {"path": "/check out"}, "PYTHONPATH=/check out:/site"),
        (
            "export LD_LIBRARY_PATH=/site:$LD_LIBRARY_PATH",
            {"caller": {"LD_LIBRARY_PATH": "/mine"}},
            "LD_LIBRARY_PATH=/site:/mine",
        ),
    ],
    ids=["the arguments' come last", "the package's folder comes first", "libraries are added"],
)
def test_a_worker_starts_with_the_variables_of_its_prologue_and_its_own(
    tmp_path: Path, prologue: str, given: dict[str, Any], said: str
) -> None:
    wanted = said.split(" ") if "check" not in said else [said]
    script = launch_script(["env"], prologue=[prologue], **given)
    assert set(wanted) <= set(run_script(script, tmp_path).stdout.splitlines())


def names_in(script: str, variable: str, folder: Path) -> set[str]:
    """Return the names that the worker finds in a variable."""
    done = run_script(script, folder)
    assert not done.stderr
    [said] = [line for line in done.stdout.splitlines() if line.startswith(f"{variable}=")]
    return {name for name in said.partition("=")[2].split("=") if name}


def test_the_worker_is_told_the_variables_of_its_prologue_and_arguments(tmp_path: Path) -> None:
    prologue = ["PATH=/opt/bin:$PATH", "unset OLD", "export NEW=1 HOME=$HOME", "local_one=1"]
    script = launch_script(["env"], prologue=prologue, environment={"MINE": "1", "B": "2"})
    # Debian's /etc/profile, which a login shell reads first, sets PATH.
    assert names_in(script, KEPT, tmp_path) == {"PATH", "OLD", "NEW", "MINE", "B"}
    assert names_in(launch_script(["env"], environment={"B": "2"}), KEPT, tmp_path) == {"B"}


def test_variables_of_a_prologue_are_known_without_commands_in_the_path(tmp_path: Path) -> None:
    script = launch_script(["/usr/bin/env"], prologue=["export PATH=/opt/bin"])
    assert names_in(script, KEPT, tmp_path) == {"PATH"}


@pytest.mark.parametrize("name", ["x$(touch ran)", "`touch ran`", "a]b", "BASH_FUNC_f%%"])
def test_odd_names_are_compared_and_not_run(name: str, tmp_path: Path) -> None:
    script = launch_script(["env"], prologue=[f"cd {tmp_path}"])
    path = tmp_path / "worker.sh"
    path.write_text(script)
    done = completed(
        ["bash", str(path)],
        env={"PATH": "/usr/bin:/bin", name: "() {  echo\n}"},
        cwd=tmp_path,
        check=True,
    )
    assert not (tmp_path / "ran").exists()
    [said] = [line for line in done.stdout.splitlines() if line.startswith(f"{KEPT}=")]
    assert name not in said


def test_the_worker_is_told_when_it_is_to_have_the_site_s_variables(tmp_path: Path) -> None:
    script = launch_script(["env"], environment=None, caller={"LD_LIBRARY_PATH": "/opt/lib"})
    assert SITE in names_in(script, KEPT, tmp_path)
    assert "/opt/lib" not in script


def test_the_script_has_names_of_the_caller_s_variables_alone(tmp_path: Path) -> None:
    caller = {"TOKEN": "hush", "IT'S": "hush", "LD_LIBRARY_PATH": "/opt/my lib"}
    script = launch_script(["env"], caller=caller)
    assert "hush" not in script
    assert names_in(script, EXPORTED, tmp_path) == caller.keys()
    assert "LD_LIBRARY_PATH=/opt/my lib" in run_script(script, tmp_path).stdout.splitlines()


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


# ---------------------------------------------------------------- containers


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("/i/image.sif", ["apptainer", "exec", "/i/image.sif"]),
        ("image.sif", ["apptainer", "exec", str(Path.cwd() / "image.sif")]),
        ("docker://python:3.11", ["apptainer", "exec", "docker://python:3.11"]),
        (
            ["/opt/singularity", "-q", "exec", "--nv", "/i/a b"],
            ["/opt/singularity", "-q", "exec", "--nv", "/i/a b"],
        ),
    ],
)
def test_a_container_is_an_image_or_a_command_that_ends_with_one(
    given: object, words: list[str]
) -> None:
    assert list(container_words("container", given)) == words


@pytest.mark.parametrize(
    "given",
    [
        ["image.sif"],
        ["podman", "run", "image"],
        ["apptainer", "run", "image"],
        ["apptainer", "exec"],
    ],
)
def test_another_command_is_refused_as_a_container(given: object) -> None:
    with pytest.raises(ConfigurationError, match="container must be an image") as caught:
        container_words("container", given)
    assert "give all words by python=" in str(caught.value)


@pytest.mark.parametrize("given", [5, [], ["apptainer", "exec", 5]])
def test_a_wrong_container_command_is_refused(given: object) -> None:
    with pytest.raises(TypeError, match="container must be a string"):
        container_words("container", given)


def test_a_container_sees_the_run_directory_under_its_own_path() -> None:
    words = in_container(("apptainer", "exec", "--nv", "/i"), Path("/r"), Path("/d e"))
    assert words == ["apptainer", "exec", "--nv", "--bind", "/r", "--bind", "/d e", "/i"]
    with pytest.raises(ConfigurationError, match="/a:b has a colon or comma"):
        in_container(("apptainer", "exec", "/i"), Path("/a:b"))
