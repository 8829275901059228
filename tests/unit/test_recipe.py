"""The recipe for conda says what `setup.cfg` says."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest

from gridengine._version import __version__

ROOT = Path(__file__).parents[2]


def recipe() -> Any:
    """Return the recipe as conda-build reads it: without its variables."""
    yaml = pytest.importorskip("yaml")
    lines = (ROOT / "recipe" / "meta.yaml").read_text().splitlines()
    text = "\n".join(one for one in lines if not one.startswith("{%"))
    return yaml.safe_load(text.replace("{{ version }}", __version__))


def test_the_recipe_for_conda_has_this_version_and_its_requirements() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = setup["options"]["install_requires"].split()
    run = [one.replace(" ", "") for one in recipe()["requirements"]["run"]]
    python = "python" + setup["options"]["python_requires"]
    assert run == ["__unix", python, *needed]
    text = (ROOT / "recipe" / "meta.yaml").read_text()
    assert re.search(r'set version = "(.*)"', text)[1] == __version__  # type: ignore[index]
