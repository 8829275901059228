"""Tasks that are handed in one by one, and travel together."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from gridengine.calls.request_sender import MOST_BYTES, joined, take_joinable
from gridengine.calls.requesting import MOST_TASKS
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import ClientForget, FunctionItem, SharedItem, Submit, TaskItem


def message(*ids: int, digest: bytes = b"digest", **options: Any) -> Submit:
    return Submit(0, 0, digest, [TaskItem(one) for one in ids], **options)


def test_they_are_one_message_in_their_order() -> None:
    function = FunctionItem("f", [], b"/")
    first = message(1, function=function), [b"function", b"one"]
    coming = deque([(message(2, 3), [b"two", b"three"]), (message(4), [b"four"])])
    whole, buffers = decode(encode(*joined([first, *take_joinable(first[0], coming)])))
    assert not coming
    assert isinstance(whole, Submit)
    assert whole.function is not None
    assert whole.function.name == "f"
    assert [one.id for one in whole.tasks] == [1, 2, 3, 4]
    assert list(map(bytes, buffers)) == [b"function", b"one", b"two", b"three", b"four"]


@pytest.mark.parametrize(
    "other",
    [
        message(2, digest=b"other"),
        message(2, function=FunctionItem("f", [], b"/")),
        message(2, shared=[SharedItem(b"object")]),
        message(2, detached=True),
        ClientForget(0, functions=[b"digest"]),
    ],
    ids=["function", "new function", "shared object", "detached", "no tasks"],
)
def test_what_says_something_else_travels_by_itself_and_nothing_overtakes_it(other: Any) -> None:
    coming = deque([(message(1), [b"one"]), (other, []), (message(3), [b"three"])])
    assert [one.tasks[0].id for one, _ in take_joinable(message(0), coming)] == [1]
    assert len(coming) == 2


def test_what_is_no_message_is_left() -> None:
    assert take_joinable(message(0), deque([object(), (message(1), [b"one"])])) == []


def test_a_message_has_no_more_tasks_and_bytes_than_one_that_was_handed_in_so() -> None:
    many = deque([(message(*range(400)), [b""] * 400)] * 3)
    assert len(take_joinable(message(0), many)) == 2
    assert MOST_TASKS >= 1 + 2 * 400
    large = deque([(message(1), [bytes(MOST_BYTES)])] * 2)
    assert len(take_joinable(message(0), large)) == 1
