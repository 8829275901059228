"""`gridengine runs`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from gridengine.cli.main import main
from gridengine.journal.run_file import path_of
from tests.support.named_calls import Notes, hand_over, store_run
from tests.support.watched import Machine


@pytest.fixture
def found(machine: Machine, notes: Notes) -> None:
    """The runs that there are."""
    notes.bad(2)
    store_run("old", 1, 1, 2, left=2)
    store_run("new", 1)
    path_of("bad").write_text("bad")


def listed(*words: str) -> Result:
    result = CliRunner().invoke(main, ["runs", *words])
    assert result.exit_code == 0
    return result


@pytest.mark.usefixtures("found")
def test_the_latest_comes_first_and_one_that_cannot_be_read_says_why() -> None:
    result = listed()
    _, new, old, bad = (line.split() for line in result.stdout.splitlines())
    assert (new[0], new[3:6]) == ("new", ["1", "0", "0"])
    assert (old[0], old[3:6]) == ("old", ["2", "1", "2"])
    assert bad == ["bad", "3", "B", "cannot", "be", "read"]
    assert "file is not a database" in result.stderr


@pytest.mark.usefixtures("found")
def test_a_dispatcher_that_has_calls_of_a_run_is_told() -> None:
    for name in ("old", "new"):
        hand_over(name, "sweeps")
    [told, *_] = listed().stderr.splitlines()
    assert told.startswith("old: the dispatcher sweeps has calls of it; `gridengine results old`")


@pytest.mark.usefixtures("found")
def test_scripts_have_all_that_is_known() -> None:
    told = {one["name"]: one for one in json.loads(listed("--json").stdout)}
    assert told["old"]["left"] == 2
    assert "file is not a database" in told["bad"]["error"]


@pytest.mark.usefixtures("machine")
def test_without_a_run_it_is_told_how_one_gets_a_name() -> None:
    assert 'name="sweep"' in listed().stdout
