"""Failures by their causes."""

from __future__ import annotations

from gridengine.status.rows import FailureStatus
from gridengine.watching.causes import causes


def failure(number: int, error: str, *, calls: int = 1) -> FailureStatus:
    return FailureStatus(f"1.{number}", f"call {number} of f", "f", calls, 0.0, error=error)


def test_what_differs_in_numbers_alone_is_one_cause_with_its_last_words() -> None:
    found = causes(
        [failure(0, "no file 17"), failure(1, "disk full"), failure(2, "no file 2026, really")]
        + [failure(number, f"no file {number}") for number in (3, 4)]
    )
    assert [(one.count, one.words, one.last.id) for one in found] == [
        (3, "no file 4", "1.4"),
        (1, "disk full", "1.1"),
        (1, "no file 2026, really", "1.2"),
    ]


def test_calls_that_failed_together_are_counted_each() -> None:
    found = causes([failure(0, "small"), failure(1, "killed", calls=100), failure(101, "small")])
    assert [(one.count, one.words) for one in found] == [(100, "killed"), (2, "small")]


def test_without_failures_there_are_no_causes() -> None:
    assert causes([]) == []
