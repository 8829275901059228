"""How dispatchers are shown. How they are started and ended: `tests/integration/dispatcher`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.calls import remote
from gridengine.cli import dispatcher_control
from gridengine.cli.dispatcher_control import show, show_all, words
from gridengine.client import left_calls
from gridengine.dispatcher.standalone import background
from gridengine.dispatcher.standalone.dispatcher_folder import StartOptions, State

FOUND: dict[str, Any] = {
    "name": "sweeps",
    "state": "running",
    "scheduler": "[slurm]",
    "clients": [
        {"script": "a.py", "pid": 7, "host": "login1"},
        {"script": "", "pid": 8, "host": "login2"},
        {"script": "a.py", "pid": 7, "host": "login1"},
    ],
    "addresses": ["tcp://login1:1", "tcp://login1:2"],
    "left_runs": [{"run": "night", "calls": 1}],
    "workers": 0,
    "restarts": False,
    "version": None,
}


def test_it_asks_a_dispatcher_of_any_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    class Remote:
        def __init__(self, path: Path, *, python: str) -> None:
            made.append(python)

        def control(self, action: str, arguments: Any) -> str:
            return action

        def close(self, *, detach: bool) -> None:
            made.append("closed")

    monkeypatch.setattr(remote, "RemoteDispatcher", Remote)
    folder: Any = SimpleNamespace(state=lambda: State.RUNNING, client_file=tmp_path)
    assert dispatcher_control.ask(folder, "describe") == "describe"
    assert made == ["", "closed"]


def test_a_dispatcher_is_shown_a_line_for_each_thing(capsys: pytest.CaptureFixture[str]) -> None:
    show(FOUND)
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[:-1])
    assert lines["clients"] == "a.py: process 7 on login1; python: process 8 on login2"
    assert lines["addresses"] == "tcp://login1:1, tcp://login1:2"
    assert lines["left_runs"] == "night: 1 call"
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


def test_of_what_it_keeps_the_end_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [SimpleNamespace(name="night", left=3), SimpleNamespace(name="day", left=1)]
    monkeypatch.setattr(dispatcher_control, "ask", lambda *args, **kwargs: None)
    monkeypatch.setattr(background, "wait_for_end", lambda folder, seconds: True)
    monkeypatch.setattr(left_calls, "runs_at", lambda folder: kept)
    folder: Any = SimpleNamespace(name="sweeps", state=lambda: State.RUNNING)
    assert dispatcher_control.stop(folder, now=False) == (
        "dispatcher sweeps has ended; it keeps 3 calls of the run 'night' and 1 call of the run "
        "'day', or what they gave, and goes on with them once it is started again"
    )
    assert dispatcher_control.stop(folder, now=False, again=True).endswith("sweeps has ended")


def test_who_stops_waiting_for_the_end_is_told_that_it_comes_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(folder: object, seconds: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(dispatcher_control, "ask", lambda *args, **kwargs: None)
    monkeypatch.setattr(background, "wait_for_end", interrupted)
    folder: Any = SimpleNamespace(name="sweeps", state=lambda: State.RUNNING)
    with pytest.raises(KeyboardInterrupt):
        dispatcher_control.stop(folder, now=False)
    assert capsys.readouterr().err == "\ndispatcher sweeps ends once its calls have\n"


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ([], "started by hand: gridengine worker mine"),
        (
            [("Cores", [2, None])],
            "started by hand: gridengine worker mine, with Cores(2) unless told otherwise",
        ),
    ],
)
def test_where_people_start_all_workers_the_command_is_told(resources: Any, told: str) -> None:
    assert words("mine", StartOptions("none", resources=resources)) == told
