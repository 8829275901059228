"""`gridengine dispatcher start`: what a dispatcher has of what is said, and of the last time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridengine.calls import remote
from gridengine.cli import dispatcher
from gridengine.cli.dispatcher import show, show_all, words
from gridengine.cli.main import main
from gridengine.dispatcher.standalone import background
from gridengine.dispatcher.standalone.dispatcher_folder import (
    DispatcherFolder,
    DispatcherState,
    StartOptions,
)
from gridengine.journal.lock_file import LockFile
from tests.support.named_calls import Notes, hand_over, store_run
from tests.support.watched import Machine


class Started:
    """Starts dispatchers in words alone, and says how."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dispatcher, "start", self._start)
        self.options = StartOptions("none")

    def _start(self, folder: DispatcherFolder, options: StartOptions, *, foreground: bool) -> str:
        folder.make()
        background.write_options(folder, options)
        self.options = folder.options()
        return "process 1"

    def __call__(self, *words: str) -> StartOptions:
        result = self.run(*words)
        assert result.exit_code == 0, result.output
        return self.options

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["dispatcher", "start", "sweeps", *words])


@pytest.fixture
def start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> Started:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    # Else a batch system that takes jobs of who runs the tests is the best.
    configure(scheduler="processes", run_directory=tmp_path, watch_directory=tmp_path / "watch")
    return Started(monkeypatch)


def test_a_given_option_changes_itself_alone(start: Started) -> None:
    said = ("--scheduler", "slurm", "--partition", "main", "--cores", "4", "--memory", "8")
    first = start(*said, "--max-workers", "200", "--restart")
    second = start("--max-workers", "8", "--min-workers", "0", "--memory", "16")
    assert (second.scheduler, second.restarts) == ("slurm", True)
    assert second.arguments == {"partition": "main", "max_workers": 8, "min_workers": 0}
    assert dict(second.resources) == {**dict(first.resources), "Memory": [16.0]}
    assert start() == second


def test_a_scheduler_that_is_said_begins_anew(start: Started) -> None:
    start("--scheduler", "slurm", "--partition", "main", "--cores", "4", "--restart")
    again = start("--scheduler", "slurm", "--max-workers", "8")
    assert again.arguments == {"max_workers": 8}
    assert (list(again.resources), again.restarts) == ([], False)


def test_a_new_name_has_the_scheduler_of_the_settings(start: Started) -> None:
    assert start("--max-workers", "3") == StartOptions(
        "processes", {"max_workers": 3}, directory=str(Path.cwd())
    )


def test_an_option_unknown_to_the_kept_scheduler_is_refused(start: Started) -> None:
    kept = start("--scheduler", "slurm")
    result = start.run("--queue", "all.q")
    assert result.exit_code == 2
    takers = "grid_engine, oar, pbs, lsf, flux"
    words = f"--queue is for {takers}, not for slurm, the scheduler of sweeps; "
    words += "--scheduler names another"
    assert words in " ".join(result.output.split())
    assert start() == kept


def test_status_tells_the_options_of_the_dispatcher(start: Started) -> None:
    start("--scheduler", "slurm", "--max-workers", "8", "--cores", "4")
    assert "its workers: slurm max_workers=8 Cores(4)\n" in start.run().output


@pytest.mark.usefixtures("start")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("dispatcher start a%b", "is not a name for a dispatcher"),
        ("dispatcher status nosuch", "there is no dispatcher 'nosuch'"),
        ("dispatcher stop nosuch", "there is no dispatcher 'nosuch'"),
        ("dispatcher restart nosuch", "there is no dispatcher 'nosuch'"),
        ("worker nosuch", "no dispatcher 'nosuch' runs"),
        ("worker /nowhere/worker.json", "and /nowhere/worker.json does not exist"),
    ],
)
def test_an_error_is_a_line_and_an_exit_status(words: str, told: str) -> None:
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 1
    assert told in " ".join(result.output.split())


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


def test_a_dispatcher_of_any_python_is_asked(
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
    folder: Any = SimpleNamespace(state=lambda: DispatcherState.RUNNING, client_file=tmp_path)
    assert dispatcher.ask(folder, "describe") == "describe"
    assert made == ["", "closed"]


def test_a_dispatcher_is_shown_a_line_for_each_thing(capsys: pytest.CaptureFixture[str]) -> None:
    show(FOUND)
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[:-1])
    assert lines["clients"] == "a.py: process 7 on login1; python: process 8 on login2"
    assert lines["addresses"] == "tcp://login1:1, tcp://login1:2"
    assert lines["left_runs"] == "night: 1 call"
    assert (lines["workers"], lines["restarts"]) == ("0", "no")


def test_missing_clients_and_runs_are_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    show({"clients": [], "left_runs": []})
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["none", "none"]


def test_several_are_shown_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    show_all([FOUND, {"name": "old", "state": "ended", "scheduler": "processes"}])
    _, first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert first == ["sweeps", "running", "[slurm]", "2", "0"]
    assert second == ["old", "ended", "processes"]


def test_the_end_tells_the_calls_that_the_dispatcher_keeps(
    machine: Machine, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run, left in (("day", 1), ("night", 3)):
        store_run(run, left=left)
        folder = hand_over(run, "sweeps")
    held: list[LockFile] = []
    monkeypatch.setattr(dispatcher, "ask", lambda *args, **kwargs: held.pop().close())
    held.append(folder.take_lock())
    assert dispatcher.stop(folder, now=False) == (
        "dispatcher sweeps has ended; it keeps 1 call of the run 'day' and 3 calls of the run "
        "'night', or their results, and goes on with them once it is started again"
    )
    held.append(folder.take_lock())
    assert dispatcher.stop(folder, now=False, again=True).endswith("sweeps has ended")


def test_an_interrupted_wait_for_the_end_says_that_it_comes_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(folder: object, seconds: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(dispatcher, "ask", lambda *args, **kwargs: None)
    monkeypatch.setattr(background, "wait_for_end", interrupted)
    folder: Any = SimpleNamespace(name="sweeps", state=lambda: DispatcherState.RUNNING)
    with pytest.raises(KeyboardInterrupt):
        dispatcher.stop(folder, now=False)
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
def test_the_command_that_starts_workers_by_hand_is_told(resources: Any, told: str) -> None:
    assert words("mine", StartOptions("none", resources=resources)) == told


@pytest.fixture
def asked(start: Started, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a dispatcher was told."""
    found: list[dict[str, Any]] = []

    def ask(folder: Any, action: str, **bounds: Any) -> dict[str, int]:
        assert (folder.name, action) == ("sweeps", "scale")
        found.append(bounds)
        return {"minimum": 0, "maximum": 8, **bounds}

    start()
    monkeypatch.setattr(dispatcher, "ask", ask)
    return found


def scale(*words: str) -> Result:
    return CliRunner().invoke(main, ["scale", "sweeps", *words])


@pytest.mark.parametrize(
    ("word", "bounds", "told"),
    [
        ("50", {"minimum": 50, "maximum": 50}, "50 workers"),
        ("0", {"minimum": 0, "maximum": 0}, "0 workers"),
        ("--auto", {}, "between 0 and 8 workers"),
    ],
)
def test_a_number_is_both_bounds_and_auto_neither(
    asked: list[dict[str, Any]], word: str, bounds: dict[str, int], told: str
) -> None:
    result = scale(word)
    assert (result.exit_code, asked) == (0, [bounds])
    assert result.output == f"dispatcher sweeps: {told}\n"


@pytest.mark.parametrize("words", [(), ("5", "--auto"), ("0", "--auto"), ("-1",), ("many",)])
def test_a_number_that_is_not_given_once_is_refused(
    asked: list[dict[str, Any]], words: tuple[str, ...]
) -> None:
    assert (scale(*words).exit_code, asked) == (2, [])
