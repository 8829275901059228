"""Frames of messages: how buffers lie in them, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gridengine._version import __version__
from gridengine.errors import ProtocolError
from gridengine.serialize.shared_memory import LARGE
from gridengine.wire import framing, messages
from gridengine.wire.framing import (
    MAGIC,
    NUMBER,
    SMALL,
    decode,
    encode,
    foreign_greeting,
    in_protocol,
    rest_of,
)
from gridengine.wire.messages import VERSION, Beat, Define, Pushed, Refuse, Rejoin, Welcome
from gridengine.wire.session_server import SessionServer


def header(sizes: list[int], message: object) -> bytes:
    return MAGIC + msgspec.msgpack.encode((sizes, message))


def test_small_buffers_share_one_frame() -> None:
    frames = encode(Define(b"digest", [], b"/", buffers=3), [b"a", b"bb", b""])
    assert [bytes(frame) for frame in frames[1:]] == [b"abb"]


def test_a_large_buffer_is_not_copied_on_either_side() -> None:
    large = bytearray(SMALL + 1)
    frames = encode(Pushed(run=1), [large])
    assert frames[1] is large
    assert decode(frames)[1][0] is large


def test_small_and_large_buffers_keep_their_order() -> None:
    sent = [b"first", b"L" * (SMALL + 1), b"", b"x" * SMALL, b"M" * (SMALL + 2), b"last"]
    message, buffers = decode(
        encode(Define(function=b"digest", path=[b"/home"], directory=b"/", buffers=6), sent)
    )
    assert [bytes(buffer) for buffer in buffers] == sent
    assert message == Define(function=b"digest", path=[b"/home"], directory=b"/", buffers=6)


def test_large_buffers_go_beside_the_message_if_they_can_be_put_there() -> None:
    beside: dict[bytes, object] = {}

    def put(buffer: object) -> bytes:
        if len(beside) == 2:
            return b""
        beside[NUMBER.pack(len(beside))] = buffer
        return list(beside)[-1]

    sent = [b"s", bytes(LARGE), b"L" * (LARGE - 1), b"M" * LARGE, b"", b"N" * LARGE]
    frames = encode(Pushed(1, buffers=6), sent, put)
    assert list(beside.values()) == [sent[1], sent[3]]
    assert [len(one) for one in frames[1:]] == [1, 8, LARGE - 1, 8, LARGE]
    assert rest_of(frames[0], sum(map(len, frames[1:]))) == sum(map(len, frames[1:]))
    taken: list[int] = []

    def take(number: bytes, size: int) -> bytes:
        taken.append(size)
        return beside[number]  # type: ignore[return-value]

    assert [bytes(one) for one in decode(frames, take)[1]] == sent
    assert taken == [LARGE, LARGE]
    assert decode(encode(Pushed(1), sent[1:2], put=lambda _: NUMBER.pack(0)), take)[1] == sent[1:2]
    with pytest.raises(ProtocolError, match="out of range"):
        decode(frames)


def test_a_buffer_of_wide_items_is_measured_in_bytes() -> None:
    words = memoryview(bytearray(8 * SMALL)).cast("Q")
    _, buffers = decode(encode(Pushed(run=1), [words]))
    assert memoryview(buffers[0]).nbytes == 8 * SMALL


WELCOME = encode(Welcome())[0]


MALFORMED = {
    "an empty frame": [b""],
    "half of the magic": [MAGIC[:2]],
    "magic alone": [MAGIC],
    "bytes after the header": [bytes(WELCOME) + b"\0"],
    "an unknown message": [header([], ["Obey"])],
    "a header of another shape": [header([], {"type": "Welcome"})],
    "a field of another type": [header([], ["Goodbye", 3])],
    "a field too few": [header([], ["Started", 3])],
    "text that is not UTF-8": [MAGIC + b"\x92\x90\x92\xa7Goodbye\xa2\xff\xfe"],
    "a number beyond 64 bits for a size": [
        MAGIC + b"\x92\x91\xcb" + bytes(8) + bytes(WELCOME)[-9:]
    ],
    "a deep nest": [MAGIC + b"\x91" * 100_000],
    "a negative size": [header([-1], ["Welcome"]), b""],
    "a huge size without a frame": [header([2**62], ["Pushed", 1])],
    "a small frame too short": [header([3], ["Pushed", 1]), b"ab"],
    "a large frame too short": [header([SMALL + 1], ["Pushed", 1]), bytes(SMALL)],
    "a buffer too few": [header([1], ["Define", b"digest", [], "/", 2]), b"x"],
    "a negative count": [header([], ["Define", b"digest", [], "/", -1])],
    "counts that cancel out": [
        header([1], ["Results", [[1, 0, 1, 0, 0.0, 2], [1, 1, 2, 0, 0.0, -1]]]),
        b"x",
    ],
    "more sizes than allowed": [header([0] * (framing.MOST_BUFFERS + 1), ["Welcome"]), b""],
}


@pytest.mark.parametrize("frames", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_frames_are_a_protocol_error(frames: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        decode(frames)


def test_the_error_about_another_version_names_ours() -> None:
    with pytest.raises(ProtocolError, match=f"version {messages.VERSION}"):
        decode([b"other"])


# ---------------------------------------------------------------- foreign greeting


def greeting(kind: str, protocol: int, *more: object) -> list[bytes]:
    header = msgspec.msgpack.encode([[], [kind, protocol, *more]])
    return [MAGIC[:3] + bytes([protocol]) + header]


def answered(frames: list[bytes], content: list[bytes], epoch: int = 0) -> list[Any]:
    """Return what a dispatcher answers to a first message."""
    server: Any = SimpleNamespace(_epoch=epoch)
    return SessionServer._refusal(server, content, frames)


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("content", ["known", "out of order"])
def test_any_other_message_of_another_protocol_is_answered_in_it_too(
    epoch: int, content: str
) -> None:
    frames = in_protocol(VERSION - 1, encode(Beat()))
    answer = answered([b"an envelope", *frames], frames if content == "known" else [], epoch)
    assert bytes(answer[0])[:4] == MAGIC[:3] + bytes([VERSION - 1])
    refusal, _ = decode(in_protocol(VERSION, answer))
    assert isinstance(refusal, Refuse)
    assert refusal.mismatch
    assert f"speaks protocol {VERSION - 1}" in refusal.reason


def test_an_unknown_end_of_this_protocol_is_asked_to_rejoin_or_refused() -> None:
    frames: list[Any] = encode(Beat())
    assert decode(answered([b"an envelope", *frames], frames, 3))[0] == Rejoin(3)
    refusal, _ = decode(answered([b"an envelope", *frames], frames))
    assert isinstance(refusal, Refuse)
    assert not refusal.mismatch


@pytest.mark.parametrize("kind", ["Hello", "ClientHello"])
@pytest.mark.parametrize("protocol", [1, VERSION - 1, VERSION + 1, 200])
def test_a_greeting_of_another_protocol_is_answered_in_it(kind: str, protocol: int) -> None:
    frames = greeting(kind, protocol, "8.8.8", "whatever", 7, None)
    answer = answered([b"an envelope", *frames], frames)
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
