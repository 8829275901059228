"""Who has the calls of a run that have no result."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gridengine.client import calls_elsewhere as module
from gridengine.client import left_calls
from gridengine.client.calls_elsewhere import (
    dispatchers_with,
    how_left_go_on,
    runs_at,
    take_by_now,
    who_has,
)
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, StartOptions
from gridengine.errors import DispatcherGone
from gridengine.journal.handed_calls import origin
from gridengine.journal.run_file import RunFile, path_of
from gridengine.journal.stored_runs import RunSummary
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.settings.values import settings


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a run whose calls were handed to the dispatcher `sweeps`, which has ended; there
    is another, which has none of them.
    """
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path))
    settings.cache_clear()
    for name in ("sweeps", "other"):
        folder = DispatcherFolder(tmp_path / "dispatchers" / name)
        folder.path.mkdir(parents=True)
        folder.options_file.write_bytes(msgspec.json.encode(StartOptions("processes")))
        kept = {"run_id": name, "clients": {"public": f"key of {name}", "secret": "x"}}
        (folder.path / "server.json").write_bytes(msgspec.json.encode(kept))
    file = RunFile("night", path_of("night"))
    origin(file)
    file.add_handed((7, 0, 4, 1, 10), "key of sweeps")
    file.close()
    file.writer.close()
    yield file.path
    settings.cache_clear()


@pytest.fixture
def running(path: Path) -> Iterator[None]:
    """Have the dispatcher run."""
    with contextlib.closing(DispatcherFolder.of("sweeps").take_lock()):
        yield


def test_a_dispatcher_that_has_ended_is_told_with_how_it_goes_on(path: Path) -> None:
    assert [one.name for one in dispatchers_with("night", path)] == ["sweeps"]
    assert who_has("night", path) == ""
    assert "`gridengine dispatcher start sweeps` goes on" in how_left_go_on("night", path)


def test_one_that_runs_has_the_calls(path: Path, running: None) -> None:
    assert who_has("night", path) == "the dispatcher sweeps"
    assert how_left_go_on("night", path) == "the dispatcher sweeps has them"


def test_a_run_of_which_no_dispatcher_has_calls_is_its_scripts(path: Path) -> None:
    file = RunFile("own", path_of("own"))
    file.begin()
    file.close()
    file.writer.close()
    assert dispatchers_with("own", file.path) == []
    assert how_left_go_on("own", file.path) == "run the script again"


def test_the_runs_are_found_of_which_a_dispatcher_has_calls(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunSummary("night", str(path), 10, left=4)
    monkeypatch.setattr(module.stored_runs, "summary", lambda path: run)
    assert list(runs_at(DispatcherFolder.of("sweeps"))) == [run]
    assert list(runs_at(DispatcherFolder.of("other"))) == []


def test_what_those_have_that_run_is_taken(
    path: Path, running: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def take(name: str, path: Path, client: RemoteScheduler) -> bool:
        asked.append(client.path)
        return True

    monkeypatch.setattr(left_calls, "take_what_has_ended", take)
    assert take_by_now("night", path, None)
    client = RemoteScheduler(Path("/copied/client.json"))
    assert take_by_now("night", path, client)
    assert asked == [DispatcherFolder.of("sweeps").client_file, client.path]


def test_one_that_does_not_answer_is_told_of_and_nothing_is_waited_for(
    path: Path, running: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def take(name: str, path: Path, client: RemoteScheduler) -> bool:
        raise DispatcherGone("it is silent")

    monkeypatch.setattr(left_calls, "take_what_has_ended", take)
    assert not take_by_now("night", path, None)
    assert "the dispatcher sweeps does not tell of the run 'night': it is silent" in caplog.text
