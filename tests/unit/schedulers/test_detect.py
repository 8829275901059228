"""Whether a machine shows any sign of a batch system, and what is chosen when none does."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from gridengine.schedulers import best_available, detect
from gridengine.schedulers.local import ProcessScheduler


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with neither commands nor libraries."""
    for name in ("SGE_ROOT", "DRMAA_LIBRARY_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(detect, "_linked", lambda environment: [])


@pytest.mark.usefixtures("bare")
def test_without_any_sign_of_a_cluster_this_machine_is_chosen_and_the_reasons_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="gridengine"):
        assert isinstance(best_available(), ProcessScheduler)
    assert (
        "not Grid Engine, because no DRMAA library was found (SGE_ROOT is not set)" in caplog.text
    )
    assert "not Slurm, because sbatch is not installed here, or not on the PATH" in caplog.text


@pytest.mark.usefixtures("bare")
def test_without_any_sign_of_a_cluster_nothing_of_one_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = [
        "gridengine.schedulers.grid_engine.scheduler",
        "gridengine.schedulers.slurm.scheduler",
    ]
    for name in clusters:
        monkeypatch.delitem(sys.modules, name, raising=False)
    best_available()
    assert not sys.modules.keys() & set(clusters)


def test_a_submission_command_is_a_sign_of_slurm(tmp_path: Path) -> None:
    command = tmp_path / "sbatch"
    command.touch(mode=0o755)
    assert detect.why_no_slurm({"PATH": str(tmp_path)}) == ""


def test_the_linker_is_asked_where_the_user_has_libraries_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ctypes.util.find_library", lambda name: f"lib{name}.so.1.0")
    assert detect.library_paths({"LD_LIBRARY_PATH": "/opt/pbs/lib"}) == ["libdrmaa.so.1.0"]
