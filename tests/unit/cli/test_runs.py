"""`gridengine runs` and `gridengine forget`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import runs as module
from gridengine.cli.main import main
from gridengine.client import outliving_calls
from gridengine.errors import JournalError
from gridengine.journal import run_reader
from gridengine.journal.run_reader import RunSummary

FOUND = {
    "old": RunSummary("old", "/r/old", 2048, 1e9, "a.py", "login1", 1000, 1, 2),
    "new": RunSummary("new", "/r/new", 0, 2e9, "[b].py", "login1", 1, 0, 0),
    "bad": RunSummary("bad", "/r/bad", 3, error="it is of a newer version"),
}


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The runs that there are."""
    paths = [Path(name) for name in FOUND]
    monkeypatch.setattr(module.run_reader, "paths", lambda: paths)
    monkeypatch.setattr(run_reader, "summary", lambda path: FOUND[path.name])
    return paths


def listed(*words: str) -> Result:
    result = CliRunner().invoke(main, ["runs", *words])
    assert result.exit_code == 0
    return result


def test_the_latest_comes_first_and_one_that_cannot_be_read_says_why() -> None:
    result = listed()
    _, new, old, bad = (line.split() for line in result.stdout.splitlines())
    assert (new[0], new[3:]) == ("new", ["1", "0", "0", "-", "[b].py"])
    assert (old[0], old[3:]) == ("old", ["1,000", "1", "2", "2", "kB", "a.py"])
    assert bad == ["bad", "3", "B", "cannot", "be", "read"]
    assert result.stderr == "it is of a newer version\n"


def test_a_dispatcher_that_has_calls_of_a_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def dispatchers_with(name: str, path: Path) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="sweeps")] if name == "old" else []

    monkeypatch.setattr(outliving_calls, "dispatchers_with", dispatchers_with)
    [told, _] = listed().stderr.splitlines()
    assert told.startswith("old: the dispatcher sweeps has calls of it; `gridengine results old`")


def test_scripts_have_all_that_is_known() -> None:
    told = {one["name"]: one for one in json.loads(listed("--json").stdout)}
    assert told["old"]["left"] == 2
    assert told["bad"]["error"] == "it is of a newer version"


def test_without_a_run_it_is_told_how_one_gets_a_name(found: list[Path]) -> None:
    found.clear()
    assert 'name="sweep"' in listed().stdout


DAY = 86400


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of two runs: of `old`, last written to ten days ago, and of `new`."""
    monkeypatch.setattr(run_reader, "folder", lambda: tmp_path)
    monkeypatch.setattr(
        run_reader, "path_of", lambda name, journal: Path(journal or tmp_path) / f"{name}.sqlite"
    )
    for name, days in (("old", 10), ("new", 0)):
        file = tmp_path / f"{name}.sqlite"
        file.write_bytes(b"x" * 2048)
        os.utime(file, (time.time() - days * DAY,) * 2)
    return tmp_path


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


def test_a_run_that_a_script_has_is_left_and_the_others_are_deleted(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(path: Path) -> None:
        if path.stem == "old":
            raise JournalError("it is in use")
        path.unlink()

    monkeypatch.setattr(run_reader, "forget", forget)
    result = call("old", "new", "--yes")
    assert (result.exit_code, left(runs)) == (1, ["old"])
    assert "it is in use" in result.output


def test_a_run_that_cannot_be_deleted_is_told_with_its_file(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(run_reader, "forget", forget)
    result = call("old", "--yes")
    assert result.exit_code == 1
    assert f"{runs}/old.sqlite: Permission denied" in result.output
