"""Calls of a run with a name, made again from what is kept of them, in this process."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import gridengine
from gridengine.errors import JournalError
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.named_calls import Notes, square


def squares(notes: Notes, numbers: Any, scheduler: FakeScheduler | None = None) -> None:
    scheduler = scheduler or FakeScheduler()
    gridengine.map(square, numbers, scheduler=scheduler, reraise=False, **notes.options)
    notes.made()


def resubmit(notes: Notes, **options: Any) -> list[Any]:
    run = gridengine.run_named("run", journal=notes.journal)
    return run.resubmit(scheduler=FakeScheduler(), **options)


def test_what_has_failed_is_made_again_in_its_place(notes: Notes) -> None:
    notes.bad(2, 3, 7)
    squares(notes, range(9))
    notes.bad(7)
    assert [str(one) for one in resubmit(notes)] == ["4", "9", "7 is bad"]
    assert notes.made() == [2, 3, 7]
    run = gridengine.run_named("run", journal=notes.journal)
    assert (run.done, run.failed, list(run.failures())) == (8, 1, [7])
    assert run.results()[:7] == [x * x for x in range(7)]


def test_they_raise_and_log_to_their_caller_when_asked(notes: Notes) -> None:
    notes.bad(2)
    squares(notes, [2])
    scheduler = FakeScheduler()
    run = gridengine.run_named("run", journal=notes.journal)
    with pytest.raises(ValueError, match="2 is bad"):
        run.resubmit(scheduler=scheduler, reraise=True, forward_logging=True, priority=1)
    [entry] = scheduler.dispatcher.entries
    assert entry.task.priority == 1
    assert entry.function.caller is not None
    assert entry.function.caller.levels is not None


def test_where_nothing_has_failed_nothing_is_made(notes: Notes) -> None:
    squares(notes, range(3))
    assert resubmit(notes) == []
    assert notes.made() == []


def test_what_has_no_result_is_made_with_it_unless_failures_alone_are_meant(
    notes: Notes,
) -> None:
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
