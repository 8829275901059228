"""Tasks and what is told of them."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.tasks import AlikeTasks, Attempt, Task
from gridengine.errors import UNNUMBERED


@pytest.mark.parametrize(("first", "numbers"), [(10, [10, 11, 12]), (UNNUMBERED, [UNNUMBERED] * 3)])
def test_tasks_that_are_alike_differ_by_their_payloads_and_numbers(
    first: int, numbers: list[int]
) -> None:
    alike = AlikeTasks(Task(7, (b"",), retries=5, first=first), [b"a", b"b", b"c"])
    tasks = [alike.at(place) for place in range(3)]
    assert [task.id for task in tasks] == list(alike.numbers) == [7, 8, 9]
    assert [task.payload for task in tasks] == [(b"a",), (b"b",), (b"c",)]
    assert [task.first for task in tasks] == numbers
    assert {task.retries for task in tasks} == {5}


def test_an_attempt_is_told_with_its_place_and_time() -> None:
    attempt = Attempt("node7", "4711", 100.0, 102.25, "it was killed by SIGSEGV")
    assert attempt.seconds == 2.25
    assert str(attempt) == "on node7 (cluster job 4711), after 2.2 s: it was killed by SIGSEGV"
    assert str(Attempt("laptop", "", 5.0, 5.0, "x")) == "on laptop, after 0.0 s: x"
