"""What messages hold."""

from __future__ import annotations

import pytest

from gridengine.errors import ProtocolError
from gridengine.serialize import payload
from gridengine.wire import messages
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import (
    VALUES,
    Assignment,
    ChildForget,
    ChildSupply,
    ChildTasks,
    ChildWant,
    Crashed,
    Goodbye,
    Message,
    Result,
    Results,
    TaskItem,
    portions,
)


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


def test_a_dead_runners_message_brings_its_two_outputs() -> None:
    message, buffers = decode(
        encode(Crashed(run=1, index=0, exitcode=-9, reason=messages.CRASH, pid=7), [b"out", b"err"])
    )
    assert isinstance(message, Crashed)
    assert [bytes(buffer) for buffer in buffers] == [b"out", b"err"]


def test_messages_cannot_be_changed() -> None:
    message = Goodbye("idle")
    with pytest.raises(AttributeError):
        message.reason = "other"  # type: ignore[misc]


def test_a_result_is_ten_bytes_and_a_few_on_the_wire() -> None:
    result = Result(run=1, start=0, stop=1, status=VALUES, seconds=0.0)
    one, two = (len(encode(Results([result] * count), [b""] * count)[0]) for count in (1, 2))
    assert two - one < 20


@pytest.mark.parametrize(
    "message",
    [
        ChildSupply(0, -1),
        ChildWant(0, 1, 0, -1),
        ChildForget(0, references=[-1]),
        ChildTasks(0, 0, b"digest", [TaskItem(1, after=[-1], buffers=0)]),
        ChildTasks(0, 0, b"digest", [TaskItem(1, kept=[(0, -1)], buffers=0)]),
        ChildTasks(0, 0, b"digest", [TaskItem(1, count=1 << 63, buffers=0)]),
        Results([Result(1, 0, 1, VALUES, 1.0, buffers=0, held=(-1, 5))]),
    ],
)
def test_a_number_that_a_dispatcher_could_not_work_with_is_malformed(message: Message) -> None:
    with pytest.raises(ProtocolError):
        decode(encode(message, ()))
