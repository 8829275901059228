"""Maps of a run with a name, in this process."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import gridengine
from tests.support.fake_dispatcher import FakeScheduler
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


def test_an_imap_has_known_results_in_their_places(notes: Notes) -> None:
    squares(notes, [1, 3])
    notes.made()
    with FakeScheduler() as scheduler:
        found = gridengine.imap(square, [1, 2, 3, 4], scheduler=scheduler, **notes.options)
        assert list(found) == [1, 4, 9, 16]
    assert notes.made() == [2, 4]


def test_a_call_that_is_made_twice_has_two_results(notes: Notes) -> None:
    squares(notes, [1, 1])
    assert notes.made() == [1, 1]
    squares(notes, [1, 1, 1])
    assert notes.made() == [1]
