"""`gridengine runs`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import runs as module
from gridengine.cli.main import main
from gridengine.client import outliving_calls
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
