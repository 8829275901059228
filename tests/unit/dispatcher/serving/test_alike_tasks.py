"""Which of the tasks that are handed in together may wait as one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.serving.task_decoder import LEAST, SMALL, compact, groups_of
from gridengine.errors import UNNUMBERED
from gridengine.wire.messages import TaskItem


def items(length: int, first: int = UNNUMBERED, **options: Any) -> list[TaskItem]:
    """Return tasks that are alike, the calls of a map unless they are single ones."""
    step = 0 if first == UNNUMBERED else 1
    return [
        TaskItem(place, submitter=99, first=first + step * place, **options)
        for place in range(length)
    ]


def sizes(tasks: list[TaskItem]) -> list[int]:
    groups = list(groups_of(tasks))
    assert [one for group in groups for one in group] == tasks
    return [len(group) for group in groups]


@pytest.mark.parametrize("first", [UNNUMBERED, 0, 7])
def test_many_that_differ_in_their_numbers_alone_are_a_group(first: int) -> None:
    assert sizes(items(LEAST, first)) == [LEAST]


def test_few_are_none() -> None:
    assert sizes(items(LEAST - 1)) == [1] * (LEAST - 1)
    assert sizes([]) == []


@pytest.mark.parametrize(
    "other", [{"retries": 1}, {"priority": 1}, {"submitter": 5}, {"timeout": 1.0}, {"id": 999}]
)
def test_a_different_task_is_alone_and_parts_the_others(other: dict[str, Any]) -> None:
    tasks = items(2 * LEAST + 1)
    tasks[LEAST] = replace(tasks[LEAST], **other)
    assert sizes(tasks) == [LEAST, 1, LEAST]


@pytest.mark.parametrize(
    "options",
    [
        {"count": 2},
        {"buffers": 2},
        {"watched": True},
        {"after": [3]},
        {"kept": [(0, 3)]},
        {"needs": [b"shared"]},
    ],
    ids=str,
)
def test_tasks_with_more_than_a_payload_are_alone(options: dict[str, Any]) -> None:
    assert sizes(items(LEAST, **options)) == [1] * LEAST


def test_a_small_payload_does_not_keep_the_message_that_it_came_in() -> None:
    message = memoryview(bytes(2 * SMALL))
    assert type(compact(message[:SMALL])) is bytes
    assert compact(message).obj is message.obj  # type: ignore[union-attr]
