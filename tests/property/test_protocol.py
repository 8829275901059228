"""Whatever comes over the wire, it is a message or a ProtocolError, and costs no more than its own
size.
"""

from __future__ import annotations

import dataclasses
import tracemalloc
import types
import typing
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridengine.errors import ProtocolError
from gridengine.wire import messages
from gridengine.wire.framing import MAGIC, SMALL, decode, encode

MESSAGES = typing.get_args(messages.Message)
BUFFERS = st.one_of(
    st.binary(max_size=40),
    st.integers(SMALL - 1, SMALL + 3).map(bytes),
    st.binary(max_size=9).map(bytearray),
    st.binary(max_size=9).map(memoryview),
)


@dataclasses.dataclass(frozen=True)
class Sent:
    message: Any
    buffers: list[Any]


NUMBERS = st.integers(-(2**63), 2**64 - 1)
FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    int: NUMBERS,
    float: st.floats(allow_nan=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
    Any: NUMBERS,
    type(None): st.none(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return what a field may be, by what its annotation says of that."""
    arguments, origin = typing.get_args(hint), typing.get_origin(hint)
    if hint in FIELDS:
        return FIELDS[hint]
    if origin is typing.Annotated:
        kind, meta = arguments
        if kind is str:
            named = meta.pattern is not None
            return st.from_regex(meta.pattern) if named else st.text(max_size=meta.max_length)
        least, most = meta.ge, 2**64 - 1 if meta.le is None else meta.le
        if kind is float:
            return st.floats(meta.gt if least is None else least, most, exclude_min=least is None)
        return st.integers(least, most)
    if origin in (list, Sequence):
        return st.lists(values(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(*map(values, arguments), max_size=2)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(values, arguments))
    return structs(hint)


def structs(kind: type[Any], **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = {
        name: hint
        for name, hint in typing.get_type_hints(kind, include_extras=True).items()
        if not name.startswith("__") and typing.get_origin(hint) is not typing.ClassVar
    }
    assert set(hints) == set(kind.__struct_fields__)
    given_ = {"buffers": st.integers(0, 3), **fixed}
    return st.builds(
        kind,
        **{name: given_[name] if name in given_ else values(hint) for name, hint in hints.items()},
    )


SECONDS = st.floats(0, 1e12)
RESULTS = st.one_of(
    structs(
        messages.Result, status=st.just(messages.VALUES), seconds=SECONDS, buffers=st.integers(2, 4)
    ),
    structs(
        messages.Result,
        start=st.just(3),
        stop=st.just(4),
        status=st.sampled_from([messages.RAISED, messages.RETRYABLE]),
        seconds=SECONDS,
        buffers=st.integers(0, 1),
        output=st.just(False),
    ),
)
REASONS = st.sampled_from([messages.CRASH, messages.TIMEOUT, messages.CANCELLED, messages.MEMORY])


@st.composite
def sent(draw: st.DrawFn) -> Sent:
    kind = draw(st.sampled_from(MESSAGES))
    if kind is messages.Results:
        message = kind(draw(st.lists(RESULTS, max_size=3)))
    elif kind is messages.Crashed:
        message = draw(structs(kind, reason=REASONS))
    elif kind is messages.Returned:
        message = kind(draw(st.lists(NUMBERS, max_size=3, unique=True)))
    else:
        message = draw(structs(kind))
    needed = message.count_buffers()
    return Sent(message, draw(st.lists(BUFFERS, min_size=needed, max_size=needed)))


@given(sent())
def test_encoded_messages_are_decoded_unchanged_from_views_of_one_block_too(given_: Sent) -> None:
    frames = encode(given_.message, given_.buffers)
    for received in (frames, [memoryview(b"?" + bytes(frame))[1:] for frame in frames]):
        message, buffers = decode(received)
        assert message == given_.message
        assert [bytes(one) for one in buffers] == [bytes(one) for one in given_.buffers]


@st.composite
def mutated(draw: st.DrawFn) -> list[bytes]:
    """Return the frames of a message, damaged: bytes overwritten, cut, added, frames dropped,
    doubled or swapped.
    """
    original = draw(sent())
    frames = [bytearray(frame) for frame in encode(original.message, original.buffers)]
    for _ in range(draw(st.integers(1, 4))):
        if not frames:
            break
        index = draw(st.integers(0, len(frames) - 1))
        frame = frames[index]
        at = draw(st.integers(0, len(frame)))
        match draw(st.sampled_from(["write", "cut", "add", "drop", "double", "swap"])):
            case "write":
                new = draw(st.binary(min_size=1, max_size=9))
                frame[at : at + len(new)] = new
            case "cut":
                del frame[at:]
            case "add":
                frame[at:at] = draw(st.binary(min_size=1, max_size=9))
            case "drop":
                del frames[index]
            case "double":
                frames.insert(index, frame[:])
            case "swap":
                frames[index], frames[0] = frames[0], frames[index]
    return [bytes(frame) for frame in frames]


def decode_or_refuse(frames: list[bytes]) -> None:
    """Decode; whatever is accepted must be a whole message, with the buffers that it announces."""
    try:
        message, buffers = decode(frames)
    except ProtocolError:
        return
    assert isinstance(message, MESSAGES)
    assert len(buffers) == message.count_buffers()
    assert sum(memoryview(buffer).nbytes for buffer in buffers) == sum(
        len(frame) for frame in frames[1:]
    )


@given(
    mutated()
    | st.lists(st.binary(max_size=60) | st.binary(max_size=60).map(MAGIC.__add__), max_size=4)
)
def test_damaged_or_random_frames_are_a_whole_message_or_a_protocol_error(
    frames: list[bytes],
) -> None:
    decode_or_refuse(frames)


ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
NAMES = st.sampled_from([kind.__name__ for kind in MESSAGES])


@given(
    st.lists(NUMBERS, max_size=4) | ANYTHING,
    st.tuples(NAMES, st.lists(ANYTHING, max_size=6)).map(lambda pair: [pair[0], *pair[1]]),
    st.lists(st.binary(max_size=9), max_size=3),
)
def test_well_formed_headers_of_wrong_content_are_a_protocol_error_or_a_message(
    sizes: Any, body: Any, rest: list[bytes]
) -> None:
    decode_or_refuse([MAGIC + msgspec.msgpack.encode([sizes, body]), *rest])


LENGTHS = {
    "text": b"\xdb",
    "bytes": b"\xc6",
    "array": b"\xdd",
    "map": b"\xdf",
    "extension": b"\xc9",
}
"""The first byte, in msgpack, of each kind of value whose length is given in four bytes."""

BEGINNINGS = {
    "header": b"",
    "sizes": b"\x92",
    "message": b"\x92\x90",
    "assignments": b"\x92\x90\x92\xa6Assign",
    "assignment": b"\x92\x90\x92\xa6Assign\x91",
    "reason": b"\x92\x90\x92\xa7Goodbye",
    "functions": b"\x92\x90\x92\xa6Forget",
}
"""The header up to the place where each of these would stand."""


@pytest.mark.parametrize("mark", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("announced", [2**20, 2**27, 2**32 - 1])
@pytest.mark.parametrize("before", BEGINNINGS.values(), ids=BEGINNINGS.keys())
def test_a_huge_announced_length_costs_nothing(before: bytes, announced: int, mark: bytes) -> None:
    frame = MAGIC + before + mark + announced.to_bytes(4, "big")
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode([frame])
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


GOOD = messages.Result(run=1, start=4, stop=5, status=messages.VALUES, seconds=0.5, buffers=2)
WRONG = {
    "a status that is none": {"status": 5},
    "a negative status": {"status": -1},
    "a negative duration": {"seconds": -0.1},
    "an endless duration": {"seconds": float("inf")},
    "a duration that is no number": {"seconds": float("nan")},
    "an exception of several calls": {"status": messages.RAISED, "stop": 6},
    "an exception of no call": {"status": messages.RETRYABLE, "stop": 4},
    "output without its buffers": {"output": True, "buffers": 1},
    "a negative count of buffers": {"buffers": -2},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_a_result_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    result = msgspec.structs.replace(GOOD, **change)
    buffers = [b"x"] * max(result.buffers, 0)
    with pytest.raises(ProtocolError):
        decode(encode(messages.Results([result]), buffers))
    assert decode(encode(messages.Results([GOOD]), [b"x", b"y"]))[0] == messages.Results([GOOD])


@pytest.mark.parametrize("reason", ["", "crashed", "crash\n", "CRASH"])
def test_a_crash_for_an_unknown_reason_is_refused(reason: str) -> None:
    with pytest.raises(ProtocolError):
        decode(encode(messages.Crashed(1, 0, -9, reason, 1), [b"", b""]))


def test_a_run_that_is_given_back_twice_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode(encode(messages.Returned([4, 5, 4])))
