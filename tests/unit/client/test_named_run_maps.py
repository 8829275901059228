"""Maps of a run with a name, in this process."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import gridengine
from gridengine.journal.run_file import files_in_use
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.named_calls import Notes, square


def squares(notes: Notes, numbers: Any, **options: Any) -> list[Any]:
    options = {"scheduler": FakeScheduler(), "reraise": False, **options}
    return gridengine.map(square, numbers, **options, **notes.options)


@pytest.mark.parametrize("chunksize", [None, 1, 7])
def test_only_what_is_not_known_is_handed_over(notes: Notes, chunksize: int | None) -> None:
    assert squares(notes, range(5, 20)) == [x * x for x in range(5, 20)]
    assert notes.made() == list(range(5, 20))
    scheduler = FakeScheduler()
    found = squares(notes, range(30), chunksize=chunksize, scheduler=scheduler)
    assert found == [x * x for x in range(30)]
    assert notes.made() == [*range(5), *range(20, 30)]


def test_where_all_is_known_nothing_is_handed_over(notes: Notes) -> None:
    squares(notes, range(10))
    scheduler = FakeScheduler()
    assert squares(notes, range(10), scheduler=scheduler) == [x * x for x in range(10)]
    assert scheduler.dispatcher.entries == []


def test_what_failed_is_made_again_or_is_a_failure_as_is_asked_for(notes: Notes) -> None:
    notes.bad(3)
    assert str(squares(notes, range(6))[3]) == "3 is bad"
    notes.made()
    notes.bad()
    kept = squares(notes, range(6), retry_failed=False)
    assert (str(kept[3]), notes.made()) == ("3 is bad", [])
    assert squares(notes, range(6)) == [0, 1, 4, 9, 16, 25]
    assert notes.made() == [3]


def test_results_of_before_are_left_alone_when_it_is_to_begin_anew(notes: Notes) -> None:
    squares(notes, range(3))
    notes.made()
    squares(notes, range(3), resume=False)
    assert notes.made() == [0, 1, 2]


def test_a_call_that_cannot_be_pickled_fails_alone_and_the_others_are_kept(notes: Notes) -> None:
    lock: Any = threading.Lock()
    for _ in range(2):
        found = squares(notes, [1, 2, lock, 4], chunksize=4)
        assert [found[0], found[1], found[3]] == [1, 4, 16]
        assert isinstance(found[2], gridengine.PicklingError)
    assert notes.made() == [1, 2, 4]


def test_a_call_that_needs_another_is_made_each_time_and_the_others_are_kept(notes: Notes) -> None:
    with FakeScheduler() as scheduler, gridengine.Executor(scheduler=scheduler) as executor:
        for made in [1, 4, 9], [9]:
            needed = executor.submit(abs, 9)
            assert squares(notes, [1, needed, 4], scheduler=scheduler) == [1, 81, 16]
            assert notes.made() == made


def test_an_imap_has_known_results_in_their_places(notes: Notes) -> None:
    squares(notes, [1, 3])
    notes.made()
    with FakeScheduler() as scheduler:
        found = gridengine.imap(square, [1, 2, 3, 4], scheduler=scheduler, **notes.options)
        assert list(found) == [1, 4, 9, 16]
        assert notes.made() == [2, 4]
        options = {"scheduler": scheduler, "with_index": True, **notes.options}
        found = gridengine.imap_unordered(square, [4, 5, 3], **options)
        assert sorted(found) == [(0, 16), (1, 25), (2, 9)]
    assert notes.made() == [5]


def test_an_iterator_that_is_left_lets_go_of_the_run(notes: Notes) -> None:
    scheduler = FakeScheduler()
    results = gridengine.imap(square, range(100), scheduler=scheduler, **notes.options)
    assert next(results) == 0
    assert len(files_in_use()) == 1
    scheduler.dispatcher.entries.clear()  # they hold their listeners
    del results
    gc.collect()
    assert not files_in_use()


def test_of_several_maps_of_one_name_the_last_is_shown_and_all_are_kept(notes: Notes) -> None:
    for made in [1, 2, 3], []:
        squares(notes, [1, 2])
        squares(notes, [3])
        assert gridengine.run_named("run", journal=notes.journal).results() == [9]
        assert notes.made() == made


def test_a_call_that_is_made_twice_has_two_results(notes: Notes) -> None:
    squares(notes, [1, 1])
    assert notes.made() == [1, 1]
    squares(notes, [1, 1, 1])
    assert notes.made() == [1]


def test_a_ctrl_c_says_that_the_results_are_kept_and_what_to_do(notes: Notes) -> None:
    def on_submit(dispatcher: FakeDispatcher) -> None:
        raise KeyboardInterrupt

    scheduler = FakeScheduler(FakeDispatcher(on_submit=on_submit))
    with pytest.raises(KeyboardInterrupt) as caught:
        squares(notes, [1, 2], scheduler=scheduler)
    assert caught.value.__notes__[-1] == (
        "they are on disk in the run 'run': "
        "when the script is run again, it makes only the other calls"
    )
