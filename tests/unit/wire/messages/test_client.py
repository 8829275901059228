"""What a client's messages may hold."""

from __future__ import annotations

import pytest

from gridengine.errors import ProtocolError
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import ClientForget, Message, Submit, Supply, TaskItem, Want


@pytest.mark.parametrize(
    "message",
    [
        Supply(0, -1),
        Want(0, 1, 0, -1),
        ClientForget(0, references=[-1]),
        Submit(0, 0, b"digest", [TaskItem(1, after=[-1], buffers=0)]),
        Submit(0, 0, b"digest", [TaskItem(1, kept=[(0, -1)], buffers=0)]),
        Submit(0, 0, b"digest", [TaskItem(1, count=1 << 63, buffers=0)]),
    ],
)
def test_a_number_that_a_dispatcher_could_not_work_with_is_malformed(message: Message) -> None:
    with pytest.raises(ProtocolError):
        decode(encode(message, ()))
