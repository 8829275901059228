"""What all messages have in common."""

from __future__ import annotations

import pytest

from gridengine.serialize import payload
from gridengine.wire.messages import Assignment, Goodbye, portions


def assignment(run: int, buffers: int) -> Assignment:
    return Assignment(
        run=run,
        task=run,
        function=b"digest",
        start=0,
        stop=1,
        attempt=1,
        form=payload.SINGLE,
        buffers=buffers,
    )


def test_each_item_gets_the_buffers_that_belong_to_it() -> None:
    items = [assignment(1, 2), assignment(2, 0), assignment(3, 1)]
    shares = [(item.run, list(payload)) for item, payload in portions(items, [b"a", b"b", b"c"])]
    assert shares == [(1, [b"a", b"b"]), (2, []), (3, [b"c"])]


def test_messages_cannot_be_changed() -> None:
    message = Goodbye("idle")
    with pytest.raises(AttributeError):
        message.reason = "other"  # type: ignore[misc]
