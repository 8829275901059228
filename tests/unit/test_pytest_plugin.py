"""The plugin for pytest, as the package announces it."""

from __future__ import annotations

import configparser
from importlib.metadata import EntryPoint
from pathlib import Path

from gridengine import pytest_plugin

ROOT = Path(__file__).parents[2]


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    [line] = config["options.entry_points"]["pytest11"].strip().splitlines()
    name, value = line.split(" = ")
    assert EntryPoint(name, value, "pytest11").load() is pytest_plugin
    assert config["options.extras_require"]["pytest"].split()[0].startswith("pytest")
