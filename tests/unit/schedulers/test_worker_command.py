"""The command line of a worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gridengine.schedulers import worker_command as module
from gridengine.schedulers.worker_command import (
    hiding_flags,
    python_command,
    python_path,
    worker_command,
)

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


def test_flags_that_change_what_calls_do_are_passed_on_and_others_are_not(
    flags: list[str],
) -> None:
    flags += ["-O", "-vv", "-B", "-q", "-W", "error", "-X", "dev", "-d"]
    command = worker_command("python", FILE)
    assert command[1:-4] == ["-O", "-W", "error", "-X", "dev"]


def test_those_that_hide_what_the_environment_offers_are_told_apart(flags: list[str]) -> None:
    flags += ["-O", "-I", "-s", "-Wd", "-E", "-S"]
    assert hiding_flags() == ["-I", "-s", "-E", "-S"]


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_where_the_package_would_not_be_found_its_folder_is_named(
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
