"""Named runs are read, and made again, in this process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.api import named_runs as module
from gridengine.api.named_runs import NamedRun, run_named, runs
from gridengine.errors import JournalError, Pending, PicklingError
from gridengine.journal.run_file import FAILED, RETURNED, path_of
from gridengine.journal.run_reader import RunSummary, StoredCalls
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.named_calls import Notes, square, store_run

OK = RunSummary("sweep", "/r/sweep.sqlite", 10, 1e9, "a.py", "login1", 5, 1, 2)
BAD = RunSummary("bad", "/r/bad.sqlite", 3, error="it is corrupt\nhint: forget it")


class NoBool(Exception):
    """An error that is false, as one with an empty list of its own may be."""

    def __len__(self) -> int:
        return 0


class File:
    """A run's file: calls, and what came of them by their rows."""

    def __init__(self) -> None:
        self.rows: list[tuple[StoredCalls, Any]] = []
        self.classes = 0
        self.needs_classes = 0

    def add(self, calls: int, outcome: Any) -> None:
        state = FAILED if isinstance(outcome, Exception) else RETURNED
        row = 0 if outcome is None else len(self.rows) + 1
        self.rows.append((StoredCalls(1, 0, calls, row, state), outcome))

    @contextlib.contextmanager
    def reading(self, name: str, path: Path) -> Iterator[File]:
        yield self

    def calls(self, connection: object) -> Iterator[StoredCalls]:
        return (call for call, _ in self.rows)

    def outcome(self, connection: object, call: StoredCalls) -> Any:
        if self.needs_classes > self.classes:
            raise PicklingError("its class is the script's")
        return self.rows[call.row - 1][1]

    def check_python(self, connection: object, call: StoredCalls) -> None:
        """It is of this one."""

    def load_classes(self, connection: object) -> None:
        self.classes += 1


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> File:
    one = File()
    for name in ("reading", "calls", "outcome", "check_python", "load_classes"):
        monkeypatch.setattr(module.run_reader, name, getattr(one, name))
    return one


def test_results_are_in_the_order_of_the_calls_with_errors_in_their_places(file: File) -> None:
    error = NoBool()
    file.add(2, [1, None])
    file.add(3, None)
    file.add(1, error)
    results = NamedRun(OK).results()
    assert results[:2] == [1, None]
    assert [type(one) for one in results[2:5]] == [Pending] * 3
    assert results[5:] == [error]


def test_calls_that_a_dispatcher_has_are_waited_for(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.add(1, None)
    client: Any = object()
    asked: list[Any] = []

    def take_by_now(*what: Any) -> bool:
        asked.append(what)
        if len(asked) == 2:
            file.rows.clear()
            file.add(1, [7])
        return len(asked) < 2

    monkeypatch.setattr(module, "take_by_now", take_by_now)
    monkeypatch.setattr(module, "LEAST_LOOK_SECONDS", 0.0)
    assert NamedRun(OK, client).results() == [7]
    assert asked == [("sweep", Path("/r/sweep.sqlite"), client, set())] * 2


def test_failures_have_the_numbers_of_their_calls(file: File) -> None:
    error = NoBool()
    file.add(2, [1, 2])
    file.add(2, error)
    file.add(3, None)
    file.add(1, KeyError())
    failures = NamedRun(OK).failures()
    assert (list(failures), failures[2]) == ([2, 3, 7], error)


def test_a_run_without_calls_has_none(file: File) -> None:
    assert (NamedRun(OK).results(), NamedRun(OK).failures()) == ([], {})


def test_classes_of_the_script_are_loaded_once_when_a_result_needs_them(file: File) -> None:
    file.add(1, ["a"])
    file.add(1, ["b"])
    file.needs_classes = 1
    assert (NamedRun(OK).results(), file.classes) == (["a", "b"], 1)


def test_a_result_that_cannot_be_rebuilt_is_an_error(file: File) -> None:
    file.add(1, ["a"])
    file.needs_classes = 2
    with pytest.raises(PicklingError):
        NamedRun(OK).results()


def test_a_run_states_its_progress_or_its_fault_in_one_line() -> None:
    assert repr(NamedRun(OK)) == "<run 'sweep': 5 done, 1 failed, 2 left>"
    assert repr(NamedRun(BAD)) == "<run 'bad': it is corrupt>"


@pytest.mark.usefixtures("machine", "notes")
def test_the_latest_run_comes_first_and_one_that_cannot_be_read_is_there() -> None:
    store_run("a", 1)
    store_run("sweep", 1, left=2)
    path_of("bad").write_text("bad")
    os.utime(path_of("bad"), (0, 0))
    assert [one.name for one in runs()] == ["sweep", "a", "bad"]
    assert run_named("sweep").left == 2
    with pytest.raises(JournalError, match="file is not a database"):
        run_named("bad")


def squares(notes: Notes, numbers: Any, scheduler: FakeScheduler | None = None) -> None:
    scheduler = scheduler or FakeScheduler()
    gridengine.map(square, numbers, scheduler=scheduler, reraise=False, **notes.options)
    notes.made()


def resubmit(notes: Notes, **options: Any) -> list[Any]:
    run = gridengine.run_named("run", journal=notes.journal)
    return run.resubmit(scheduler=FakeScheduler(), **options)


def test_failed_calls_are_made_again_in_their_place(notes: Notes) -> None:
    notes.bad(2, 3, 7)
    squares(notes, range(9))
    notes.bad(7)
    assert [str(one) for one in resubmit(notes)] == ["4", "9", "7 is bad"]
    assert notes.made() == [2, 3, 7]
    run = gridengine.run_named("run", journal=notes.journal)
    assert (run.done, run.failed, list(run.failures())) == (8, 1, [7])
    assert run.results()[:7] == [x * x for x in range(7)]


def test_retried_calls_raise_and_log_to_their_caller_when_asked(notes: Notes) -> None:
    notes.bad(2)
    squares(notes, [2])
    scheduler = FakeScheduler()
    run = gridengine.run_named("run", journal=notes.journal)
    with pytest.raises(ValueError, match="2 is bad"):
        run.resubmit(scheduler=scheduler, reraise=True, forward_logging=True, priority=1)
    [entry] = scheduler.dispatcher.entries
    assert entry.task.options.priority == 1
    assert entry.function.caller is not None
    assert entry.function.caller.levels is not None


def test_nothing_is_retried_when_nothing_has_failed(notes: Notes) -> None:
    squares(notes, range(3))
    assert resubmit(notes) == []
    assert notes.made() == []


def test_calls_without_a_result_are_retried_unless_only_failures_are_meant(notes: Notes) -> None:
    def broken_off(dispatcher: FakeDispatcher) -> None:
        if len(dispatcher.entries) == 3:
            raise KeyboardInterrupt
        dispatcher.run(dispatcher.entries[-1])

    notes.bad(1)
    place = FakeScheduler(FakeDispatcher(on_submit=broken_off))
    with pytest.raises(KeyboardInterrupt):
        gridengine.map(
            square, range(3), scheduler=place, chunksize=1, reraise=False, **notes.options
        )
    notes.made()
    notes.bad()
    assert resubmit(notes, failed_only=True) == [1]
    assert resubmit(notes) == [4]
    assert gridengine.run_named("run", journal=notes.journal).results() == [0, 1, 4]


def test_calls_of_which_too_much_would_have_to_be_kept_are_told_of(notes: Notes) -> None:
    function = partial(give, b"x" * 10_000_000)
    gridengine.map(
        function, [1], scheduler=FakeScheduler(), reraise=False, name="run", journal=notes.journal
    )
    with pytest.raises(JournalError, match=r"cannot be made again: .* not stored"):
        resubmit(notes)


def give(large: bytes, x: int) -> int:
    raise ValueError(x)
