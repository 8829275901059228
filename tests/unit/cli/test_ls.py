"""`gridengine ls`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from gridengine.cli.main import main
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.status.rows import Status
from tests.support.watched import WHO, Machine


def test_an_obstacle_to_the_folder_of_sockets_is_told(
    tmp_path: Path, configure: Callable[..., None]
) -> None:
    blocked = tmp_path / "watch"
    blocked.touch()
    configure(watch_directory=blocked, run_directory=tmp_path / "runs")
    said = CliRunner().invoke(main, ["ls"])
    assert f"runs on this machine cannot be watched: {blocked} is there" in said.output
    assert "no dispatcher runs" in said.output
    assert said.exit_code == 1


@pytest.mark.parametrize(("cancelled", "told"), [(0, False), (1234, True)])
def test_cancelled_calls_have_a_column_where_there_are_any(
    machine: Machine, cancelled: int, told: bool
) -> None:
    answer = WatchAnswer(WHO, Status(done=1, failed=2, cancelled=cancelled))
    machine.says(answer)
    machine.ended(answer)
    said = CliRunner().invoke(main, ["ls"]).output
    assert [said.count("cancelled"), said.count("1,234")] == [2 * told, 2 * told]


def test_scripts_are_told_the_runs_that_have_ended(machine: Machine) -> None:
    machine.ended(WatchAnswer(WHO, Status(done=7, failed=1)))
    said = CliRunner().invoke(main, ["ls", "--json"])
    [told] = json.loads(said.stdout)["ended"]
    assert (told["identity"]["run_id"], told["done"], told["failed"]) == (WHO.run_id, 7, 1)
    assert said.exit_code == 1
