"""How many calls of an executor there are, and how many have ended."""

from __future__ import annotations

from gridengine.client.settlement import Tally


def test_a_tally_begins_anew_once_all_have_ended() -> None:
    woken: list[int] = []
    tally = Tally(lambda: woken.append(1), lambda: None, restarts=True)
    tally.add(2)
    tally.end(1, failed=True)
    tally.add(1)
    tally.end(1, failed=False)
    tally.withdraw(1)
    assert (tally.total, tally.done, tally.failed, tally.is_open) == (2, 2, 1, False)
    tally.add(5)
    assert (tally.total, tally.done, tally.failed, tally.number) == (5, 0, 0, 2)
    assert woken == [1, 1]
    tally.end(5, failed=False)
    tally.watched = True
    tally.add(1)
    assert (woken, tally.number) == ([1, 1], 3)


def test_one_that_does_not_begin_anew_goes_on_counting() -> None:
    tally = Tally(lambda: None, lambda: None, restarts=False)
    for _ in range(2):
        tally.add(3)
        tally.end(3, failed=False)
    assert (tally.total, tally.done) == (6, 6)
