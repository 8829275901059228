"""`gridengine forget`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gridengine.cli.main import main
from gridengine.journal.lock_file import take_lock
from gridengine.journal.run_file import folder, lock_of, path_of

DAY = 86400


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, configure: Callable[..., None]) -> Path:
    """Files of two runs: of `old`, last written to ten days ago, and of `new`."""
    configure(run_directory=tmp_path)
    folder().mkdir()
    for name, days in (("old", 10), ("new", 0)):
        file = path_of(name)
        file.write_bytes(b"x" * 2048)
        os.utime(file, (time.time() - days * DAY,) * 2)
    return folder()


def call(*words: str, typed: str = "y\n") -> Result:
    return CliRunner().invoke(main, ["forget", *words], input=typed)


def left(runs: Path) -> list[str]:
    return sorted(one.stem for one in runs.glob("*.sqlite"))


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("new",), ["old"]),
        (("new", "new"), ["old"]),
        (("old", "new"), []),
        (("--older", "9d"), ["new"]),
        (("--older", "1.5w"), ["new", "old"]),
        (("--older", "240h", "new"), ["new", "old"]),
        (("--older", "0d", "new"), ["old"]),
    ],
)
def test_the_selected_runs_are_deleted(
    runs: Path, words: tuple[str, ...], names: list[str]
) -> None:
    result = call(*words)
    assert (result.exit_code, left(runs)) == (0, names)


def test_a_question_with_names_and_sizes_comes_before_a_deletion(runs: Path) -> None:
    result = call("old", typed="n\n")
    assert f"{runs}/old.sqlite  2 kB" in result.output
    assert (result.exit_code, left(runs)) == (1, ["new", "old"])
    assert call("old", "--yes", typed="").exit_code == 0
    assert left(runs) == ["new"]


@pytest.mark.parametrize(
    "words", [(), ("--older", "30"), ("--older", "d"), ("--journal", "x", "--older", "1d")]
)
def test_an_incomplete_request_deletes_nothing(runs: Path, words: tuple[str, ...]) -> None:
    assert call(*words).exit_code == 2
    assert left(runs) == ["new", "old"]


def test_a_run_that_a_script_has_is_left_and_the_others_are_deleted(runs: Path) -> None:
    with contextlib.closing(take_lock(lock_of(path_of("old")), "the run", wait=False)):
        result = call("old", "new", "--yes")
    assert (result.exit_code, left(runs)) == (1, ["old"])
    assert "in use" in result.output


def test_a_run_that_cannot_be_deleted_is_told_with_its_file(runs: Path) -> None:
    (runs / "old.sqlite-wal").mkdir()
    result = call("old", "--yes")
    assert result.exit_code == 1
    assert f"{runs}/old.sqlite-wal: Is a directory" in result.output
