"""Jobs of a run with a name, in this process."""

from __future__ import annotations

from typing import Any

import pytest

import gridengine
from gridengine.journal.run_file import files_in_use
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.named_calls import Notes, square


def outcomes(notes: Notes, *numbers: Any, **options: Any) -> tuple[list[Any], list[int | None]]:
    """Return what came of jobs, and their exit codes."""
    jobs = [gridengine.Job(target=square, args=(x,)) for x in numbers]
    with gridengine.JobDispatcher(FakeScheduler(), **notes.options, **options) as dispatcher:
        dispatcher.dispatch(jobs)
        results = list(dispatcher.join())
    return results, [job.exitcode for job in jobs]


def test_a_scheduler_that_cannot_be_had_holds_no_run(notes: Notes) -> None:
    with pytest.raises(ZeroDivisionError):
        gridengine.JobDispatcher(lambda: 1 / 0, **notes.options)  # type: ignore[arg-type,return-value]
    assert not files_in_use()


def test_a_job_that_has_returned_is_not_run_again(notes: Notes) -> None:
    assert outcomes(notes, 1, 2) == ([1, 4], [0, 0])
    notes.made()
    assert outcomes(notes, 1, 2, 3) == ([1, 4, 9], [0, 0, 0])
    assert notes.made() == [3]


def test_one_that_failed_is_run_again_or_has_failed_as_is_asked_for(notes: Notes) -> None:
    notes.bad(2)
    outcomes(notes, 1, 2)
    notes.bad()
    notes.made()
    results, codes = outcomes(notes, 1, 2, retry_failed=False)
    assert (str(results[1]), codes, notes.made()) == ("2 is bad", [0, 1], [])
    assert outcomes(notes, 1, 2) == ([1, 4], [0, 0])
    assert notes.made() == [2]
    assert outcomes(notes, 1, 2) == ([1, 4], [0, 0])
    assert notes.made() == []
