"""What `gridengine doctor` finds of a Grid Engine, where there is none or no library for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.schedulers import detect
from gridengine.schedulers.checks import State
from gridengine.schedulers.grid_engine.checks import findings


@pytest.fixture(autouse=True)
def _no_library_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "_linked", lambda environment: [])


def found(**environment: str) -> list[tuple[str, State, str]]:
    return [(one.check, one.state, one.text) for one in findings({"PATH": "", **environment})]


def test_without_root_command_and_library_there_is_no_grid_engine() -> None:
    text = "SGE_ROOT is not set, and there is neither qconf nor a DRMAA library"
    assert found() == [("environment", State.ABSENT, text)]


def test_with_the_command_alone_the_root_is_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "qconf").touch(mode=0o755)
    assert found(PATH=str(tmp_path)) == [("environment", State.ABSENT, "SGE_ROOT is not set")]


def test_a_library_that_is_not_where_it_should_be_is_named(tmp_path: Path) -> None:
    ((check, state, text),) = found(DRMAA_LIBRARY_PATH=f"{tmp_path}/libdrmaa.so")
    assert (check, state) == ("library", State.BROKEN)
    assert (
        text == f"there is no DRMAA library where DRMAA_LIBRARY_PATH says: {tmp_path}/libdrmaa.so"
    )
