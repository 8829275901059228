"""What a setting names that is not there is told, with who said it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.schedulers.checks import CheckState, Finding, check_names

FINE = Finding("grid_engine", "queues", CheckState.OK, "all.q, long.q")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file of a project that is worked in."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "gridengine.toml"


@pytest.mark.parametrize("queue", ["", "all.q", "all.q@node7, long.q", "*.q", "@@gpus", "all|x"])
def test_an_existing_or_matching_name_passes(project: Path, queue: str) -> None:
    project.write_text(f"[grid_engine]\nqueue = {queue!r}\n")
    assert check_names(FINE, "grid_engine.queue", ["all.q", "long.q"]) == FINE


def test_a_name_that_is_not_there_is_told_with_the_file_and_the_line(project: Path) -> None:
    project.write_text("host = 'a'\n[grid_engine]\nqueue = 'all.q,nosuch.q@node7'\n")
    found = check_names(FINE, "grid_engine.queue", ["all.q", "long.q"])
    assert (found.state, found.remedy) == (CheckState.BROKEN, f"correct {project}:3")
    assert found.text == (
        f"there is no queue nosuch.q, which {project}:3 names; there are: all.q, long.q"
    )


def test_settings_that_cannot_be_read_are_told_elsewhere(project: Path) -> None:
    project.write_text("nosuch = 1")
    assert check_names(FINE, "grid_engine.queue", ["all.q"]) == FINE
