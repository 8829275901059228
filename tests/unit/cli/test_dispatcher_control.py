"""How dispatchers are shown. How they are started and ended: `tests/integration/dispatcher`."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.cli.dispatcher_control import show, show_all

FOUND: dict[str, Any] = {
    "name": "sweeps",
    "state": "running",
    "scheduler": "[slurm]",
    "clients": [
        {"script": "a.py", "pid": 7, "host": "login1"},
        {"script": "", "pid": 8, "host": "login2"},
    ],
    "addresses": ["tcp://login1:1", "tcp://login1:2"],
    "left_runs": [{"run": "night", "tasks": 1}],
    "workers": 0,
    "restarts": False,
    "version": None,
}


def test_a_dispatcher_is_shown_a_line_for_each_thing(capsys: pytest.CaptureFixture[str]) -> None:
    show(FOUND)
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[:-1])
    assert lines["clients"] == "a.py: process 7 on login1; python: process 8 on login2"
    assert lines["addresses"] == "tcp://login1:1, tcp://login1:2"
    assert lines["left_runs"] == "night: 1 task"
    assert (lines["workers"], lines["restarts"]) == ("0", "no")


def test_of_clients_and_runs_that_are_none_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show({"clients": [], "left_runs": []})
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["none", "none"]


def test_several_are_shown_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    show_all([FOUND, {"name": "old", "state": "ended", "scheduler": "processes"}])
    _, first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert first == ["sweeps", "running", "[slurm]", "2", "0"]
    assert second == ["old", "ended", "processes"]
