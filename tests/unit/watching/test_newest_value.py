"""What came last, for who may be slower than what comes."""

from __future__ import annotations

import operator

from gridengine.watching.newest_value import Newest


def test_an_untaken_value_is_merged_into_the_next() -> None:
    newest = Newest[str](operator.add)
    for one in "abc":
        newest.put(one)
    newest.put(None)
    assert [newest.get(), newest.get()] == ["abc", None]


def test_a_value_from_before_the_end_is_there_after_it() -> None:
    newest = Newest[str](operator.add)
    newest.put("a")
    newest.put(None)
    assert [newest.get(), newest.get(), newest.get()] == ["a", None, None]
