"""What is made of the first message of another version."""

from __future__ import annotations

import msgspec
import pytest

from gridengine._version import __version__
from gridengine.wire.framing import MAGIC, decode, encode, foreign_greeting, in_protocol
from gridengine.wire.messages import VERSION, Beat, Refuse
from gridengine.wire.server import _refusal


def greeting(kind: str, protocol: int, *more: object) -> list[bytes]:
    header = msgspec.msgpack.encode([[], [kind, protocol, *more]])
    return [MAGIC[:3] + bytes([protocol]) + header]


@pytest.mark.parametrize("kind", ["Hello", "ClientHello"])
@pytest.mark.parametrize("protocol", [1, VERSION - 1, VERSION + 1, 200])
def test_a_greeting_of_another_protocol_is_answered_in_it(kind: str, protocol: int) -> None:
    answer = _refusal(greeting(kind, protocol, "8.8.8", "whatever", 7, None))
    assert bytes(answer[0])[:4] == MAGIC[:3] + bytes([protocol])
    [refusal], buffers = [decode(in_protocol(VERSION, answer))[0]], answer[1:]
    assert isinstance(refusal, Refuse)
    assert refusal.mismatch
    assert not buffers
    assert "8.8.8" in refusal.reason
    assert __version__ in refusal.reason


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"GET / HTTP/1.1"],
        [MAGIC[:3]],
        [MAGIC[:3] + b"\x01"],
        [MAGIC[:3] + b"\x01\xff\xff"],
        greeting("Beat", 1),
        greeting("Hello", 1),
        encode(Beat()),
    ],
)
def test_anything_else_is_no_greeting(frames: list[bytes]) -> None:
    assert foreign_greeting(frames) is None
