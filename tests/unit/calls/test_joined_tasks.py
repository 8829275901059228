"""Tasks that are handed in one by one, and travel together."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from gridengine.calls.translation import MOST_BYTES, MOST_TASKS, RequestEncoder, take_joinable
from gridengine.requests import Function, NamesForgotten, Submitted, Task
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import Submit


def submitted(*ids: int, digest: bytes = b"digest", size: int = 1) -> Submitted:
    function = Function(digest, [b"function"], (), b"/", "f")
    return Submitted(function, [Task(one, [bytes([one]) * size]) for one in ids])


def ids(request: Submitted) -> list[int]:
    return [task.id for task in request.tasks]


def test_joined_tasks_are_one_message_in_order() -> None:
    coming = deque([submitted(2, 3), submitted(4)])
    encoder = RequestEncoder(0, lambda number, run: number)
    [sent] = encoder.encode(take_joinable(submitted(1), coming))
    whole, buffers = decode(encode(*sent))
    assert not coming
    assert isinstance(whole, Submit)
    assert whole.function is not None
    assert whole.function.name == "f"
    assert [one.id for one in whole.tasks] == [1, 2, 3, 4]
    assert list(map(bytes, buffers)) == [b"function", b"\1", b"\2", b"\3", b"\4"]


@pytest.mark.parametrize(
    "other",
    [submitted(2, digest=b"other"), NamesForgotten([b"digest"]), object()],
    ids=["function", "no tasks", "no request"],
)
def test_other_requests_travel_alone_and_are_not_overtaken(other: Any) -> None:
    coming = deque([submitted(1), other, submitted(3)])
    assert ids(take_joinable(submitted(0), coming)) == [0, 1]
    assert len(coming) == 2


def test_a_message_has_no_more_tasks_and_bytes_than_one_that_was_handed_in_so() -> None:
    many = deque([submitted(*[1] * 400)] * 3)
    assert len(take_joinable(submitted(0), many).tasks) == 801 <= MOST_TASKS
    large = deque([submitted(1, size=MOST_BYTES)] * 2)
    assert ids(take_joinable(submitted(0), large)) == [0, 1]
