"""`gridengine dispatcher start`: what a dispatcher has of what is said, and of the last time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import dispatcher_control
from gridengine.cli.main import main
from gridengine.dispatcher.standalone import background, dispatcher_folder
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, StartOptions
from gridengine.settings.values import Settings, settings


class Started:
    """Starts dispatchers in words alone, and says how."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dispatcher_control, "start", self._start)
        self.options = StartOptions("none")

    def _start(self, folder: DispatcherFolder, options: StartOptions, *, foreground: bool) -> str:
        folder.make()
        background.keep_options(folder, options)
        self.options = folder.options()
        return "process 1"

    def __call__(self, *words: str) -> StartOptions:
        result = self.run(*words)
        assert result.exit_code == 0, result.output
        return self.options

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["dispatcher", "start", "sweeps", *words])


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(dispatcher_folder, "settings", lambda: Settings(run_directory=tmp_path))
    monkeypatch.setenv("GRIDENGINE_SCHEDULER", "processes")
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("GRIDENGINE_WATCH_DIRECTORY", str(tmp_path / "watch"))
    monkeypatch.chdir(tmp_path)
    settings.cache_clear()  # else a batch system that takes jobs of who runs the tests is the best
    yield Started(monkeypatch)
    monkeypatch.undo()
    settings.cache_clear()


def test_what_is_said_changes_that_and_nothing_else(start: Started) -> None:
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


def test_what_the_kept_scheduler_does_not_take_is_refused(start: Started) -> None:
    kept = start("--scheduler", "slurm")
    result = start.run("--queue", "all.q")
    assert result.exit_code == 2
    words = "--queue is for grid_engine, not for slurm, the scheduler of sweeps; "
    words += "--scheduler names another"
    assert words in " ".join(result.output.split())
    assert start() == kept


def test_it_tells_what_the_dispatcher_has(start: Started) -> None:
    start("--scheduler", "slurm", "--max-workers", "8", "--cores", "4")
    assert "its workers: slurm max_workers=8 Cores(4)\n" in start.run().output


@pytest.mark.usefixtures("start")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("dispatcher start a%b", "is no name for a dispatcher"),
        ("dispatcher status nosuch", "there is no dispatcher 'nosuch'"),
        ("dispatcher stop nosuch", "there is no dispatcher 'nosuch'"),
        ("dispatcher restart nosuch", "there is no dispatcher 'nosuch'"),
        ("worker nosuch", "no dispatcher 'nosuch' runs"),
        ("worker /nowhere/worker.json", "and /nowhere/worker.json does not exist"),
    ],
)
def test_what_cannot_be_done_is_a_line_and_an_exit_status(words: str, told: str) -> None:
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 1
    assert told in " ".join(result.output.split())
