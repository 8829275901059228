"""The plugin for pytest, as the package announces it."""

from __future__ import annotations

import configparser
import os
from importlib.metadata import EntryPoint
from pathlib import Path

import psutil
import pytest

from gridengine import pytest_plugin

ROOT = Path(__file__).parents[2]


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    [line] = config["options.entry_points"]["pytest11"].strip().splitlines()
    name, value = line.split(" = ")
    assert EntryPoint(name, value, "pytest11").load() is pytest_plugin
    assert config["options.extras_require"]["pytest"].split()[0].startswith("pytest")


@pytest.mark.parametrize("is_there", [False, True])
def test_leftovers_of_a_tests_workers_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    monkeypatch.setattr(pytest_plugin, "LEAVE_SECONDS", 0)
    monkeypatch.setattr(pytest_plugin, "_marked", lambda mark: [psutil.Process()] * is_there)
    folder = tmp_path if is_there else tmp_path / "gone"
    found = [words.partition(" (")[0] for words in pytest_plugin._left("mark", folder)]
    assert found == [f"the process {os.getpid()}", f"the folder {tmp_path}"] * is_there
    assert len(pytest_plugin._left("mark", None)) == is_there
