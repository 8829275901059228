"""Whether a machine shows any sign of a batch system."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.schedulers import detect
from gridengine.schedulers.detect import library_paths


def test_a_submission_command_is_a_sign_of_its_system(tmp_path: Path) -> None:
    command = tmp_path / "sbatch"
    command.touch(mode=0o755)
    assert detect.why_no_command("sbatch", {"PATH": str(tmp_path)}) == ""


def test_the_linker_is_asked_where_the_user_has_libraries_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ctypes.util.find_library", lambda name: f"lib{name}.so.1.0")
    assert detect.library_paths({"LD_LIBRARY_PATH": "/opt/pbs/lib"}) == ["libdrmaa.so.1.0"]


def test_the_library_that_the_user_names_is_the_only_one() -> None:
    assert library_paths(
        {"DRMAA_LIBRARY_PATH": "/opt/lib/libdrmaa.so", "SGE_ROOT": "/opt/sge"}
    ) == ["/opt/lib/libdrmaa.so"]


def test_grid_engine_s_own_library_comes_first(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "lx-amd64" / "libdrmaa.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert library_paths({"SGE_ROOT": str(tmp_path)})[0] == str(library)
