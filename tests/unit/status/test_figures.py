"""Whether a process has more memory from call to call."""

from __future__ import annotations

import itertools

from gridengine.status.figures import Growth

MB = 1024 * 1024


def grown(sizes: list[int]) -> int:
    one = Growth()
    return max(one.note((1, call), size * MB) for call, size in enumerate(sizes))


def test_a_process_that_has_more_after_each_call_has_grown() -> None:
    assert grown([100 * call for call in range(1, 21)]) == (16 - 5) * 100 * MB


def test_memory_with_peaks_does_not_grow() -> None:
    assert grown([100, 900] * 20) == 0
    assert grown([500] * 20) == 0


def test_memory_with_a_large_start_does_not_grow() -> None:
    assert grown([50, 400, 400, 410, *itertools.repeat(420, 30)]) == 0


def test_an_estimate_comes_after_enough_calls() -> None:
    one = Growth()
    assert not any(one.note((1, 0), size * MB) for size in range(100, 5000, 100))
