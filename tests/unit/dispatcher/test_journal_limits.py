"""What is too large for a dispatcher's journal, before it is sent and after."""

from __future__ import annotations

import mmap

import pytest

from gridengine.dispatcher.journal_limits import (
    MOST_BYTES,
    is_large,
    lost,
    may_refuse,
    too_large,
    why_refused,
    why_refused_as_sent,
)
from gridengine.requests import Function, Task
from gridengine.serialize.shared_objects import SharedObject
from gridengine.wire.messages import FunctionItem, SharedItem, Submit, TaskItem
from tests.support.tasks import make_task

TENTH = MOST_BYTES // 10
MEMORY = memoryview(mmap.mmap(-1, 13 * TENTH))  # nobody writes to it, so it takes none


def tenths(count: int) -> memoryview:
    """Return so many tenths of what the journal takes."""
    return MEMORY[: count * TENTH]


def function(size: int = 1, *needs: SharedObject) -> Function:
    return Function(b"digest", (tenths(size),), (), b"/", "train", needs)


def shared(size: int) -> SharedObject:
    return SharedObject(f"name {size}".encode(), (tenths(size),))


def test_the_parts_of_one_count_together() -> None:
    assert not is_large([])
    assert not is_large([tenths(4), tenths(6)])
    assert is_large([tenths(10), b"."])


@pytest.mark.parametrize(
    ("function", "task", "words"),
    [
        (function(), make_task(1, (tenths(10),)), None),
        (function(), make_task(1, (tenths(6), tenths(5))), "a call of train has 990,000,000"),
        (function(), make_task(1, (tenths(11),), name="Job-7"), "a call of Job-7 has 990,000,000"),
        (function(12), make_task(1, ()), "the function train has 1,080,000,000"),
        (function(1, shared(13)), make_task(1, ()), "a shared object of train has 1,170,000,000"),
        (
            function(),
            make_task(1, (), needs=(shared(11),)),
            "a shared object of train has 990,000,000",
        ),
    ],
)
def test_an_oversized_part_is_named_before_it_is_sent(
    function: Function, task: Task, words: str | None
) -> None:
    error = why_refused(function, task)
    assert (error and error.message.partition(" bytes")[0]) == words
    assert may_refuse(function, [make_task(0, ()), task]) or error is None


def test_many_that_are_too_large_together_alone_are_looked_at_one_by_one() -> None:
    tasks = [make_task(number, (tenths(4),)) for number in range(3)]
    assert may_refuse(function(), tasks)
    assert not may_refuse(function(), tasks[:2])
    assert not [task for task in tasks if why_refused(function(), task)]


def item(id: int, buffers: int = 1, name: str = "") -> TaskItem:
    return TaskItem(id, buffers=buffers, name=name)


MESSAGE = Submit(
    0,
    0,
    b"digest",
    [item(5, buffers=2), item(6, name="Job-6")],
    FunctionItem("train", [], b"/", (), buffers=1),
    [SharedItem(b"name", (), buffers=1)],
)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((1, 1, 1, 1, 1), None),
        ((5, 5, 5, 5, 5), None),
        ((11, 1, 1, 1, 1), "the function train has 990,000,000"),
        ((1, 11, 1, 1, 1), "a shared object has 990,000,000"),
        ((1, 1, 6, 5, 1), "the call 5 has 990,000,000"),
        ((1, 1, 1, 1, 11), "the call Job-6 has 990,000,000"),
    ],
)
def test_an_oversized_part_is_named_as_it_arrives(
    sizes: tuple[int, ...], words: str | None
) -> None:
    error = why_refused_as_sent(MESSAGE, [tenths(size) for size in sizes])
    assert (error and error.message.partition(" bytes")[0]) == words


def test_both_errors_name_the_limit_and_the_remedy() -> None:
    for error in (too_large("a call", [bytes(2000)]), lost([bytes(2000)])):
        assert "2,000 bytes" in str(error)
        assert "at most" in str(error)
        assert f" {MOST_BYTES:,} " in str(error)
        assert error.hint
