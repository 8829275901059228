"""Calls of named runs that dispatchers were handed."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gridengine.calls.outstanding import Left
from gridengine.client import outliving_calls
from gridengine.client import outliving_calls as module
from gridengine.client.outliving_calls import (
    MOST_LEFT,
    dispatchers_with,
    flush_handed,
    how_left_go_on,
    runs_at,
    take_by_now,
    take_left,
    who_has,
)
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, StartOptions
from gridengine.errors import Cancelled, DispatcherGone, JournalError, WorkerCrashed
from gridengine.journal.handed_calls import HandedCalls, origin
from gridengine.journal.run_file import RunFile, path_of
from gridengine.journal.run_reader import RunSummary
from gridengine.requests import CallsFinished
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.wire.messages import ClientWelcome


class Writer:
    """A file's writer, on a disk that may be full."""

    failure = "No space left on device"

    def __init__(self) -> None:
        self.full = False
        self.flushes = 0

    def flush(self, timeout: float | None = None) -> bool:
        self.flushes += 1
        return not self.full


class File:
    """The file of a run: what is written to it, by its place."""

    what, path = 'the run "sweep"', Path("/r/sweep.sqlite")

    def __init__(self) -> None:
        self.writer = Writer()
        self.written: list[tuple[Any, Any]] = []
        self.clients: dict[Path, Any] = {}

    def add_result(self, place: Any, payload: Any, error: Any, *, raised: bool) -> None:
        self.written.append((place, error or payload))


class Dispatcher:
    """A dispatcher with messages of what was left there."""

    identity = "sweeps"

    def __init__(self) -> None:
        self.left: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.taken: list[int] = []
        self.closed: list[bool] = []
        self.forgotten: list[str] = []

    def took(self, messages: list[Left]) -> None:
        self.taken += [one.number for one in messages]

    def close(self, *, detach: bool = False) -> None:
        self.closed.append(detach)


@pytest.fixture
def file() -> Any:
    return File()


@pytest.fixture
def dispatcher(monkeypatch: pytest.MonkeyPatch) -> Dispatcher:
    """A dispatcher to which the calls 10 to 13 of block 1 were handed as task 7."""
    one = Dispatcher()
    monkeypatch.setattr(module, "dispatcher_of", lambda place: one)
    monkeypatch.setattr(
        module, "handed_calls", lambda file, identity: {7: [HandedCalls(7, 0, 4, 1, 10)]}
    )
    forget = one.forgotten.append
    monkeypatch.setattr(module, "forget_handed", lambda file, identity: forget(identity))
    return one


def welcome(owed: int, ready: int) -> ClientWelcome:
    return ClientWelcome(0, 1, 4, owed=owed, ready=ready)


def outcome(start: int, stop: int, *, task: int = 7, last: bool = False, **more: Any) -> Any:
    payload = None if "error" in more else [b"values"]
    return CallsFinished(task, start, stop, payload, last=last, **more)


def left(number: int, *outcomes: CallsFinished) -> Left:
    return Left(number, 1, list(outcomes))


PLACE: Any = None


def test_outcomes_are_written_to_their_run_and_then_forgotten(file: Any, dispatcher: Any) -> None:
    dispatcher.left.put(welcome(owed=1, ready=2))
    dispatcher.left.put(left(5, outcome(0, 3)))
    crash = WorkerCrashed("it crashed")
    dispatcher.left.put(left(6, outcome(3, 4, error=crash, last=True)))
    assert not take_left(file, PLACE)
    assert file.written == [((1, 10, 13, 0), [b"values"]), ((1, 13, 14, 0), crash)]
    assert (dispatcher.taken, dispatcher.forgotten) == ([5, 6], ["sweeps"])
    assert file.writer.flushes


def test_calls_that_never_ran_and_those_of_which_nothing_is_known_are_not_written(
    file: Any, dispatcher: Any
) -> None:
    dispatcher.left.put(welcome(owed=2, ready=1))
    never = outcome(0, 1, error=Cancelled("ended"))
    back = outcome(1, 4, error=Cancelled("taken back"), recalled=True, last=True)
    unknown = outcome(0, 5, task=8, last=True)
    dispatcher.left.put(left(5, never, back, unknown))
    take_left(file, PLACE)
    assert (file.written, dispatcher.taken) == ([], [5])


def test_without_waiting_only_ready_outcomes_are_taken(file: Any, dispatcher: Any) -> None:
    dispatcher.left.put(welcome(owed=1, ready=1))
    dispatcher.left.put(left(5, outcome(0, 1)))
    assert take_left(file, PLACE, wait=False)  # there is more to come
    assert (dispatcher.taken, dispatcher.forgotten) == ([5], [])


def test_very_many_outcomes_are_written_bit_by_bit(file: Any, dispatcher: Any) -> None:
    count = 3 * MOST_LEFT
    dispatcher.left.put(welcome(owed=1, ready=count))
    for number in range(count):
        dispatcher.left.put(left(number, outcome(0, 1, last=number == count - 1)))
    take_left(file, PLACE)
    assert dispatcher.taken == list(range(count))
    assert file.writer.flushes == 3


def test_on_a_full_disk_it_stays_at_the_dispatcher(file: Any, dispatcher: Any) -> None:
    file.writer.full = True
    dispatcher.left.put(welcome(owed=1, ready=1))
    dispatcher.left.put(left(5, outcome(0, 4, last=True)))
    with pytest.raises(JournalError, match=r"cannot be written to /r/sweep.*No space left"):
        take_left(file, PLACE)
    assert (dispatcher.taken, dispatcher.forgotten, dispatcher.closed) == ([], [], [True])


def test_a_dispatcher_that_ends_meanwhile_is_told_of_and_what_came_before_is_kept(
    file: Any, dispatcher: Any
) -> None:
    dispatcher.left.put(welcome(owed=1, ready=0))
    dispatcher.left.put(left(5, outcome(0, 1)))
    dispatcher.left.put(DispatcherGone("it has ended"))
    with pytest.raises(DispatcherGone):
        take_left(file, PLACE)
    assert (len(file.written), dispatcher.forgotten) == (1, [])


def test_all_files_of_a_client_are_flushed_though_one_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = RemoteScheduler(Path("/r/client.json"))
    files = [File(), File(), File()]
    kept = [client.leaving_as("a"), client.leaving_as("b")]
    for one, keeper in zip(files, [*kept, RemoteScheduler(client.path)], strict=True):
        one.clients[client.path] = keeper
    files[0].writer.full = True
    monkeypatch.setattr(module, "files_in_use", lambda: files)
    assert not flush_handed(client)
    assert [one.writer.flushes for one in files] == [1, 1, 0]


@pytest.fixture
def path(tmp_path: Path, configure: Callable[..., None]) -> Path:
    """The file of a run whose calls were handed to the dispatcher `sweeps`, which has ended; there
    is another, which has none of them.
    """
    configure(run_directory=tmp_path)
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
    return file.path


@pytest.fixture
def running(path: Path) -> Iterator[None]:
    """Have the dispatcher run."""
    with contextlib.closing(DispatcherFolder.of("sweeps").take_lock()):
        yield


def test_a_dispatcher_that_has_ended_is_told_with_how_it_goes_on(path: Path) -> None:
    assert [one.name for one in dispatchers_with("night", path)] == ["sweeps"]
    assert who_has("night", path) == ""
    assert "`gridengine dispatcher start sweeps` goes on" in how_left_go_on("night", path)


def test_a_running_dispatcher_has_the_calls(path: Path, running: None) -> None:
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
    monkeypatch.setattr(module.run_reader, "summary", lambda path: run)
    assert list(runs_at(DispatcherFolder.of("sweeps"))) == [run]
    assert list(runs_at(DispatcherFolder.of("other"))) == []


def test_outcomes_of_running_dispatchers_are_taken(
    path: Path, running: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def take(name: str, path: Path, client: RemoteScheduler) -> bool:
        asked.append(client.path)
        return True

    monkeypatch.setattr(outliving_calls, "take_what_has_ended", take)
    assert take_by_now("night", path, None, set())
    client = RemoteScheduler(Path("/copied/client.json"))
    assert take_by_now("night", path, client, set())
    assert asked == [DispatcherFolder.of("sweeps").client_file, client.path]


def test_a_silent_dispatcher_is_told_once_and_not_waited_for(
    path: Path, running: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def take(name: str, path: Path, client: RemoteScheduler) -> bool:
        raise DispatcherGone("it is silent")

    monkeypatch.setattr(outliving_calls, "take_what_has_ended", take)
    warned = set[str]()
    for _ in range(2):
        assert not take_by_now("night", path, None, warned)
    told = "the dispatcher sweeps does not tell of the run 'night': it is silent"
    assert caplog.messages == [told]
