"""Blocks of calls: how large they are, and where they end."""

from __future__ import annotations

import pytest

from gridengine.worker.call_blocks import CallBlocks
from gridengine.worker.status_block import CUT, CUT_RUN, RUN, UNTIL, WORDS_SIZE

CALLS = list(range(1000))
RUN_IN_PROGRESS = 4


@pytest.fixture
def words() -> memoryview:
    words = memoryview(bytearray(WORDS_SIZE)).cast("Q")
    words[RUN] = RUN_IN_PROGRESS
    return words


def cut(words: memoryview, stop: int) -> None:
    words[CUT], words[CUT_RUN] = stop, RUN_IN_PROGRESS


def sizes(words: memoryview, *seconds: float, one_by_one: bool = False) -> list[int]:
    """Return how many calls each of some blocks has; each takes this long."""
    blocks, now, first, found = CallBlocks(words), 100.0, 0, []
    blocks.begin_run(now, one_by_one=one_by_one)
    for its in seconds:
        block = blocks.next(CALLS, first, len(CALLS))
        assert block == CALLS[first : first + len(block or ())]
        found.append(len(block))
        first += len(block)
        assert words[UNTIL] == first
        now += its
        blocks.ended(now)
    return found


def test_blocks_grow_while_they_are_quick(words: memoryview) -> None:
    assert sizes(words, *[1e-6] * 9) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert sizes(words, *[1e-6] * 11)[-2:] == [256, 233]


def test_after_a_slow_block_comes_a_single_call(words: memoryview) -> None:
    assert sizes(words, 1e-6, 1e-6, 7e-4, 1e-6, 2e-3, 1e-6, 1e-6) == [1, 2, 4, 4, 8, 1, 2]


def test_calls_may_come_one_by_one(words: memoryview) -> None:
    assert sizes(words, *[1e-6] * 5, one_by_one=True) == [1] * 5


def test_the_calls_that_were_taken_back_are_in_no_block(words: memoryview) -> None:
    blocks = CallBlocks(words)
    blocks.begin_run(0.0, one_by_one=False)
    for _ in range(3):
        blocks.ended(0.0)
    cut(words, 5)
    assert blocks.next(CALLS, 2, 1000) == [2, 3, 4]
    assert blocks.next(CALLS, 5, 1000) is None
    assert blocks.next(CALLS, 6, 1000) is None
    words[RUN] = RUN_IN_PROGRESS + 1
    assert blocks.next(CALLS, 6, 1000) == list(range(6, 14))


def test_a_look_ends_the_block_of_a_run_that_was_cut_alone(words: memoryview) -> None:
    blocks = CallBlocks(words)
    blocks.begin_run(0.0, one_by_one=False)
    blocks.ended(0.0)
    block = blocks.next(CALLS, 0, 1000)
    blocks.look()
    assert block == [0, 1]
    cut(words, 1)
    blocks.look()
    assert block == []


def test_nothing_of_a_block_is_kept_after_it(words: memoryview) -> None:
    blocks = CallBlocks(words)
    blocks.begin_run(0.0, one_by_one=False)
    block = blocks.next(CALLS, 0, 1000)
    blocks.ended(0.0)
    assert block == []
