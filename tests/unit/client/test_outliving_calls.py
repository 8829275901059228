"""Calls of named runs that dispatchers were handed."""

from __future__ import annotations

import contextlib
import pickle
import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gridengine.calls.outstanding import Left
from gridengine.client import outliving_calls
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
from gridengine.journal.call_keys import FunctionKey
from gridengine.journal.handed_calls import handed_calls, origin
from gridengine.journal.run_file import (
    RunFile,
    StoredBlock,
    open_run,
    path_of,
    read_outcome,
    release,
)
from gridengine.journal.run_reader import reading
from gridengine.requests import CallsFinished
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.serialize.payload import SINGLE
from gridengine.wire.messages import ClientWelcome
from tests.support.fake_dispatcher import FakeScheduler


class Dispatcher:
    """A dispatcher with messages of what was left there."""

    identity = "sweeps"

    def __init__(self, file: RunFile) -> None:
        self.left: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.taken: list[int] = []
        self.on_disk: list[int] = []
        """How many outcomes the file had each time when some were taken."""
        self.closed: list[bool] = []
        self._file = file
        self.place = FakeScheduler(self)  # type: ignore[arg-type]

    def took(self, messages: list[Left]) -> None:
        self.taken += [one.number for one in messages]
        self.on_disk.append(len(written(self._file)))

    def close(self, *, detach: bool = False, wait: bool = True) -> None:
        self.closed.append(detach)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RunFile]:
    """The file of a run whose calls 10 to 13 of a block the dispatcher was handed as task 7."""
    made = RunFile("sweep", tmp_path / "sweep.sqlite")
    origin(made)
    hand(made, "sweeps")
    yield made
    made.close()


def hand(file: RunFile, dispatcher: str) -> None:
    """Hand the calls 10 to 13 of a block to a dispatcher as task 7."""
    file.begin()
    function = file.function(FunctionKey("f", b"1" * 16, {}), [b"code"])
    block = file.add_block(StoredBlock(function, SINGLE, 14, b"1" * 16, None), [b"arguments"])
    file.add_order(0, block, 10, 14)
    file.add_handed((7, 0, 4, block, 10), dispatcher)
    assert file.writer.flush()


def written(file: RunFile) -> list[tuple[int, int, str]]:
    """Return the outcomes that are on disk: of which calls, and what it is in words."""
    with reading(file.name, file.path) as connection:
        return [
            (start, stop, str(read_outcome(connection, row, state)))
            for row, start, stop, state in connection.execute(
                "SELECT id, start, stop, state FROM results ORDER BY id"
            )
        ]


@pytest.fixture
def dispatcher(file: RunFile) -> Dispatcher:
    return Dispatcher(file)


def welcome(owed: int, ready: int) -> ClientWelcome:
    return ClientWelcome(0, 1, 4, owed=owed, ready=ready)


def outcome(start: int, stop: int, *, task: int = 7, last: bool = False, **more: Any) -> Any:
    payload = None if "error" in more else [pickle.dumps([*range(start, stop)])]
    return CallsFinished(task, start, stop, payload, last=last, **more)


def left(number: int, *outcomes: CallsFinished) -> Left:
    return Left(number, 1, list(outcomes))


def test_outcomes_are_written_to_their_run_and_then_forgotten(
    file: RunFile, dispatcher: Any
) -> None:
    dispatcher.left.put(welcome(owed=1, ready=2))
    dispatcher.left.put(left(5, outcome(0, 3)))
    crash = WorkerCrashed("it crashed")
    dispatcher.left.put(left(6, outcome(3, 4, error=crash, last=True)))
    assert not take_left(file, dispatcher.place)
    assert written(file) == [(10, 13, "[0, 1, 2]"), (13, 14, str(crash))]
    assert (dispatcher.taken, dispatcher.on_disk) == ([5, 6], [2])
    assert file.writer.flush()
    assert not handed_calls(file, "sweeps")


def test_calls_that_never_ran_and_those_of_which_nothing_is_known_are_not_written(
    file: RunFile, dispatcher: Any
) -> None:
    dispatcher.left.put(welcome(owed=2, ready=1))
    never = outcome(0, 1, error=Cancelled("ended"))
    back = outcome(1, 4, error=Cancelled("taken back"), recalled=True, last=True)
    unknown = outcome(0, 5, task=8, last=True)
    dispatcher.left.put(left(5, never, back, unknown))
    take_left(file, dispatcher.place)
    assert (written(file), dispatcher.taken) == ([], [5])


def test_without_waiting_only_ready_outcomes_are_taken(file: RunFile, dispatcher: Any) -> None:
    dispatcher.left.put(welcome(owed=1, ready=1))
    dispatcher.left.put(left(5, outcome(0, 1)))
    assert take_left(file, dispatcher.place, wait=False)  # there is more to come
    assert dispatcher.taken == [5]
    assert file.writer.flush()
    assert handed_calls(file, "sweeps")


def test_very_many_outcomes_are_written_bit_by_bit(file: RunFile, dispatcher: Any) -> None:
    count = 3 * MOST_LEFT
    dispatcher.left.put(welcome(owed=1, ready=count))
    for number in range(count):
        dispatcher.left.put(left(number, outcome(0, 1, last=number == count - 1)))
    take_left(file, dispatcher.place)
    assert dispatcher.taken == list(range(count))
    assert dispatcher.on_disk == [MOST_LEFT, 2 * MOST_LEFT, 3 * MOST_LEFT]


def test_an_outcome_that_cannot_be_written_stays_at_the_dispatcher(
    file: RunFile, dispatcher: Any
) -> None:
    class Removing(queue.SimpleQueue[Any]):
        def get(self) -> Any:
            file.path.unlink(missing_ok=True)
            return super().get()

    dispatcher.left = Removing()
    dispatcher.left.put(welcome(owed=1, ready=1))
    dispatcher.left.put(left(5, outcome(0, 4, last=True)))
    with pytest.raises(JournalError, match=f"cannot be written to {file.path}: .*removed"):
        take_left(file, dispatcher.place)
    assert (dispatcher.taken, dispatcher.closed) == ([], [True])


def test_the_end_of_a_dispatcher_is_reported_and_earlier_outcomes_are_kept(
    file: RunFile, dispatcher: Any
) -> None:
    dispatcher.left.put(welcome(owed=1, ready=0))
    dispatcher.left.put(left(5, outcome(0, 1)))
    dispatcher.left.put(DispatcherGone("it has ended"))
    with pytest.raises(DispatcherGone):
        take_left(file, dispatcher.place)
    assert file.writer.flush()
    assert len(written(file)) == 1
    assert handed_calls(file, "sweeps")


def test_all_files_of_a_client_are_flushed_though_one_fails(tmp_path: Path) -> None:
    client = RemoteScheduler(Path("/r/client.json"))
    files = [open_run(name, tmp_path / f"{name}.sqlite", wait=False) for name in ("a", "b")]
    for one in files:
        one.clients[client.path] = client.leaving_as(one.name)
        origin(one)
    files[0].path.unlink()
    for one in files:
        one.add_handed((7, 0, 4, 1, 10), "sweeps")
    assert not flush_handed(client)
    assert handed_calls(files[1], "sweeps")
    assert flush_handed(RemoteScheduler(client.path))
    for one in files:
        release(one)


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
    hand(file, "key of sweeps")
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


def test_the_runs_are_found_of_which_a_dispatcher_has_calls(path: Path) -> None:
    [run] = runs_at(DispatcherFolder.of("sweeps"))
    assert (run.name, run.left) == ("night", 4)
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
    path: Path, running: None, caplog: pytest.LogCaptureFixture
) -> None:
    warned = set[str]()
    for _ in range(2):
        assert not take_by_now("night", path, None, warned)
    [told] = caplog.messages
    assert told.startswith("the dispatcher sweeps does not tell of the run 'night': ")
