"""Dispatchers that are watched over the network, without one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gridengine.dispatcher.run_directory import CLIENT, WATCHER
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherState
from gridengine.dispatcher.watch_messages import CANCEL, STATUS, WatchAnswer
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.status.rows import Status
from gridengine.watching import connections
from gridengine.watching import remote_connections as module
from gridengine.watching.remote_connections import RemoteWatched, answers
from tests.support.watched import WHO


class Folder:
    """The folder of a dispatcher, with a watcher's key unless it is of an older version."""

    def __init__(
        self, path: Path, state: DispatcherState = DispatcherState.RUNNING, *, pid: int = 7
    ) -> None:
        self.path, self.name = path, path.name
        self._state, self._pid = state, pid
        path.mkdir()
        (path / WATCHER).touch()

    def state(self) -> DispatcherState:
        return self._state

    def holder(self) -> Any:
        return SimpleNamespace(host="login1", is_here=True, pid=self._pid)


class Remote:
    """What is asked by the key of a file, and whether it was closed."""

    made: list[Remote]
    fault: Exception | None = None
    refusal = ""

    def __init__(self, file: Path, *, python: str, patience: float) -> None:
        assert python == ""  # who sends no functions may be of any
        self.key, self.asked, self.closed = file.name, [], False
        Remote.made.append(self)
        if isinstance(Remote.fault, ConfigurationError):
            raise Remote.fault

    def control(self, action: str, arguments: Mapping[str, str], *, seconds: float) -> Any:
        request = msgspec.json.decode(arguments["request"])
        self.asked.append((action, request["ask"]))
        if Remote.fault is not None:
            raise Remote.fault
        return msgspec.to_builtins(WatchAnswer(WHO, Status(done=3), error=Remote.refusal))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Folder]:
    """The dispatchers that there are."""
    found = [
        Folder(tmp_path / "sweeps"),
        Folder(tmp_path / "night", pid=8),
        Folder(
            tmp_path / "over",
            next(one for one in DispatcherState if one is not DispatcherState.RUNNING),
        ),
    ]
    monkeypatch.setattr(Remote, "made", [], raising=False)
    monkeypatch.setattr(Remote, "fault", None)
    monkeypatch.setattr(Remote, "refusal", "")
    monkeypatch.setattr(module, "RemoteDispatcher", Remote)
    monkeypatch.setattr(connections, "DispatcherFolder", SimpleNamespace(all=lambda: found))
    return found


def watched_ones() -> list[str]:
    folders = connections.standalone_folders()
    return [one.name for one in folders if connections.is_watched_elsewhere(one)]


def test_running_dispatchers_are_found(there: list[Folder]) -> None:
    assert watched_ones() == ["sweeps", "night"]
    (there[0].path / WATCHER).unlink()
    assert watched_ones() == ["night"]


def test_without_a_run_directory_there_are_none(
    there: list[Folder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise ConfigurationError("no home")

    monkeypatch.setattr(connections, "DispatcherFolder", SimpleNamespace(all=none))
    assert connections.standalone_folders() == []


def test_looking_needs_the_watchers_key_and_acting_the_clients(there: list[Folder]) -> None:
    with RemoteWatched(there[0]) as watched:  # type: ignore[arg-type]
        assert watched.ask(STATUS).status.done == 3
        watched.ask(CANCEL, words=["1.0"])
    looks, acts = Remote.made
    assert (looks.key, looks.asked) == (WATCHER, [("watch", STATUS)])
    assert (acts.key, acts.asked) == (CLIENT, [("act", CANCEL)])
    assert looks.closed
    assert acts.closed


@pytest.mark.parametrize("fault", [ClusterError("gone"), TimeoutError("after 5 s")])
def test_a_silent_dispatcher_is_told_by_its_name(there: list[Folder], fault: Exception) -> None:
    watched = RemoteWatched(there[0])  # type: ignore[arg-type]
    Remote.fault = fault
    with pytest.raises(ClusterError, match="the dispatcher sweeps cannot be watched: it does not"):
        watched.ask()


def test_a_refusal_is_told_with_its_words(there: list[Folder]) -> None:
    Remote.refusal = "a watcher may not cancel"
    with pytest.raises(ClusterError, match="it refuses: a watcher may not"):
        RemoteWatched(there[0]).ask()  # type: ignore[arg-type]


def test_all_answers_are_those_of_the_others_and_the_words_of_the_silent(
    there: list[Folder],
) -> None:
    found, silent = answers({7})
    assert (len(found), silent, len(Remote.made)) == (1, [], 1)
    Remote.fault = ConfigurationError("a firewall")
    found, silent = answers(set())
    assert (found, [words.split(" cannot")[0] for words in silent]) == (
        [],
        ["the dispatcher sweeps", "the dispatcher night"],
    )
