"""Dispatchers that are watched over the network, without one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gridengine.dispatcher.run_directory import CLIENT, WATCHER
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.dispatcher.watch_messages import CANCEL, STATUS, WatchAnswer
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.journal.lock_file import Holder
from gridengine.status.rows import Status
from gridengine.watching import connections
from gridengine.watching import remote_connections as module
from gridengine.watching.remote_connections import RemoteWatched, answers
from tests.support.watched import WHO, Machine


class Remote:
    """What is asked by the key of a file, and whether it was closed."""

    def __init__(self, network: Network, file: Path) -> None:
        self.network, self.key = network, file.name
        self.asked: list[tuple[str, str]] = []
        self.closed = False

    def control(self, action: str, arguments: Mapping[str, str], *, seconds: float) -> Any:
        request = msgspec.json.decode(arguments["request"])
        self.asked.append((action, request["ask"]))
        if self.network.fault is not None:
            raise self.network.fault
        return msgspec.to_builtins(WatchAnswer(WHO, Status(done=3), error=self.network.refusal))

    def close(self) -> None:
        self.closed = True


class Network:
    """Where dispatchers are asked, unless something is at fault, and what was asked."""

    def __init__(self) -> None:
        self.made: list[Remote] = []
        self.fault: Exception | None = None
        self.refusal = ""

    def __call__(self, file: Path, *, python: str, patience: float) -> Remote:
        assert python == ""  # who sends no functions may be of any
        self.made.append(Remote(self, file))
        if isinstance(self.fault, ConfigurationError):
            raise self.fault
        return self.made[-1]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    network = Network()
    monkeypatch.setattr(module, "RemoteDispatcher", network)
    return network


@pytest.fixture
def there(network: Network, machine: Machine) -> Iterator[list[DispatcherFolder]]:
    """The dispatchers that there are: `over` has ended."""
    found = [DispatcherFolder.of(name) for name in ("night", "over", "sweeps")]
    with contextlib.ExitStack() as stack:
        for pid, folder in enumerate(found, 6):
            folder.make()
            folder.options_file.write_text("{}")
            (folder.path / WATCHER).touch()
            if folder.name != "over":
                lock = stack.enter_context(contextlib.closing(folder.take_lock()))
                lock.write(replace(Holder.here(), pid=pid))
        yield found


def watched_ones() -> list[str]:
    folders = connections.standalone_folders()
    return [one.name for one in folders if connections.is_watched_elsewhere(one)]


def test_running_dispatchers_are_found(there: list[DispatcherFolder]) -> None:
    assert watched_ones() == ["night", "sweeps"]
    (there[0].path / WATCHER).unlink()
    assert watched_ones() == ["sweeps"]


def test_without_a_run_directory_there_are_none(configure: Callable[..., None]) -> None:
    configure(run_directory="~no such user/runs")
    assert connections.standalone_folders() == []


def test_looking_needs_the_watchers_key_and_acting_the_clients(
    there: list[DispatcherFolder], network: Network
) -> None:
    with RemoteWatched(there[0]) as watched:
        assert watched.ask(STATUS).status.done == 3
        watched.ask(CANCEL, words=["1.0"])
    looks, acts = network.made
    assert (looks.key, looks.asked) == (WATCHER, [("watch", STATUS)])
    assert (acts.key, acts.asked) == (CLIENT, [("act", CANCEL)])
    assert looks.closed
    assert acts.closed


@pytest.mark.parametrize("fault", [ClusterError("gone"), TimeoutError("after 5 s")])
def test_a_silent_dispatcher_is_told_by_its_name(
    there: list[DispatcherFolder], network: Network, fault: Exception
) -> None:
    watched = RemoteWatched(there[0])
    network.fault = fault
    with pytest.raises(ClusterError, match="the dispatcher night cannot be watched: it does not"):
        watched.ask()


def test_a_refusal_is_told_with_its_words(there: list[DispatcherFolder], network: Network) -> None:
    network.refusal = "a watcher may not cancel"
    with pytest.raises(ClusterError, match="it refuses: a watcher may not"):
        RemoteWatched(there[0]).ask()


def test_all_answers_are_those_of_the_others_and_the_words_of_the_silent(
    there: list[DispatcherFolder], network: Network
) -> None:
    found, silent = answers({6})
    assert (len(found), silent, len(network.made)) == (1, [], 1)
    network.fault = ConfigurationError("a firewall")
    found, silent = answers(set())
    assert (found, [words.split(" cannot")[0] for words in silent]) == (
        [],
        ["the dispatcher night", "the dispatcher sweeps"],
    )
