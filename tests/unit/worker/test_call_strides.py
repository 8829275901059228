"""Strides of calls: how large they are, and where they end."""

from __future__ import annotations

import pytest

from gridengine.call_context.status_block import CUT, CUT_RUN, INDEX, RUN, UNTIL, WORDS_SIZE
from gridengine.worker.call_strides import CallStrides

CALLS = 1000
RUN_IN_PROGRESS = 4


@pytest.fixture
def words() -> memoryview:
    words = memoryview(bytearray(WORDS_SIZE)).cast("Q")
    words[RUN] = RUN_IN_PROGRESS
    return words


def cut(words: memoryview, stop: int) -> None:
    words[CUT], words[CUT_RUN] = stop, RUN_IN_PROGRESS


def sizes(words: memoryview, *seconds: float, one_by_one: bool = False) -> list[int]:
    """Return how many calls each of some strides has; each takes this long."""
    strides, now, first, found = CallStrides(words), 100.0, 0, []
    strides.begin_run(now, one_by_one=one_by_one)
    for its in seconds:
        assert strides.begin(first, CALLS)
        assert words[UNTIL] == strides.stop
        found.append(strides.stop - first)
        first = strides.stop
        now += its
        strides.ended(now)
    return found


def in_stride(words: memoryview, index: int) -> CallStrides:
    """Return the strides of a runner that makes a call of the stride from 1 to 3."""
    strides = CallStrides(words)
    strides.begin_run(0.0, one_by_one=False)
    strides.ended(0.0)
    assert strides.begin(1, CALLS)
    words[INDEX] = index
    return strides


def test_strides_grow_while_they_are_quick(words: memoryview) -> None:
    assert sizes(words, *[1e-6] * 9) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert sizes(words, *[1e-6] * 11)[-2:] == [256, 233]


def test_after_a_slow_stride_comes_a_single_call(words: memoryview) -> None:
    assert sizes(words, 1e-6, 1e-6, 7e-4, 1e-6, 2e-3, 1e-6, 1e-6) == [1, 2, 4, 4, 8, 1, 2]


def test_calls_may_come_one_by_one(words: memoryview) -> None:
    assert sizes(words, *[1e-6] * 5, one_by_one=True) == [1] * 5


def test_no_stride_has_calls_that_were_taken_back(words: memoryview) -> None:
    strides = CallStrides(words)
    strides.begin_run(0.0, one_by_one=False)
    for _ in range(3):
        strides.ended(0.0)
    cut(words, 5)
    assert strides.begin(2, CALLS)
    assert strides.stop == 5
    assert not strides.begin(5, CALLS)
    assert not strides.begin(6, CALLS)
    words[RUN] = RUN_IN_PROGRESS + 1
    assert strides.begin(6, CALLS)
    assert strides.stop == 14


@pytest.mark.parametrize(("index", "stop"), [(0, 1), (1, 2), (2, 3)])
def test_a_look_ends_the_stride_after_the_call_in_progress(
    words: memoryview, index: int, stop: int
) -> None:
    strides = in_stride(words, index)
    strides.look()
    assert (strides.stop, words[UNTIL]) == (stop, stop)


def test_calls_that_the_runner_noted_meanwhile_are_not_promised(words: memoryview) -> None:
    class Racing:
        """The words as the backstop has them: after each look the runner notes its next call."""

        def __getitem__(self, word: int) -> int:
            words[INDEX] += 1
            return words[word] - 1

        def __setitem__(self, word: int, value: int) -> None:
            words[word] = value

    strides = in_stride(words, 0)
    strides._words = Racing()  # type: ignore[assignment]
    words[INDEX] = 0
    strides.look()
    assert (strides.stop, words[UNTIL]) == (1, 3)
