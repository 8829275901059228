"""What came last, for who may be slower than what comes."""

from __future__ import annotations

import operator

from gridengine.watching.newest_value import Newest


def test_what_was_not_taken_is_merged_into_what_comes() -> None:
    newest = Newest[str](operator.add)
    for one in "abc":
        newest.put(one)
    assert newest.take() == "abc"
    assert newest.take() is None


def test_what_came_before_the_end_is_there_after_it() -> None:
    newest = Newest[str](operator.add)
    newest.put("a")
    newest.put(None)
    assert [newest.get(), newest.get(), newest.get()] == ["a", None, None]
