"""The protocol's test vectors, which other languages' programs are tried by."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from gridengine.errors import ProtocolError
from gridengine.serialize.codecs import CODECS
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import Message
from gridengine.wire.session import Session
from tools.protocol_vectors import (
    EXAMPLE,
    FOLDER,
    PAGE,
    WAYS,
    example,
    hexes,
    page,
    readable,
    text_of,
    vectors,
)

FILES = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}


def frames_of(texts: list[str]) -> list[bytes]:
    pairs = [text.partition("*") for text in texts]
    return [bytes.fromhex(digits) * int(count or 1) for digits, _, count in pairs]


def named(one: dict[str, Any]) -> str:
    return str(one["name"])


def test_the_vectors_are_those_of_this_version() -> None:
    """If not: python tools/protocol_vectors.py."""
    assert {name: text_of(found) for name, found in vectors().items()} == {
        name: (FOLDER / f"{name}.json").read_text() for name in FILES
    }


def test_the_list_of_messages_and_the_example_are_those_of_this_version() -> None:
    assert PAGE.read_text() == page()
    assert EXAMPLE.read_text() == example(EXAMPLE.read_text())


def test_each_message_has_a_sender() -> None:
    assert set(get_args(Message)) <= set().union(*WAYS.values())


def test_each_message_has_a_vector() -> None:
    assert {one["name"] for one in FILES["messages"]} == {
        kind.__struct_config__.tag for kind in get_args(Message)
    }


@pytest.mark.parametrize("vector", FILES["messages"] + FILES["framing"], ids=named)
def test_a_message_is_made_of_its_frames_and_they_of_it(vector: dict[str, Any]) -> None:
    message, buffers = decode(frames_of(vector["frames"]))
    assert readable(message) == vector["message"]
    assert hexes(buffers) == vector["buffers"]
    assert hexes(encode(message, buffers)) == vector["frames"]


@pytest.mark.parametrize("vector", FILES["malformed"], ids=named)
def test_malformed_frames_are_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        decode(frames_of(vector["frames"]))


def test_two_ends_exchange_the_messages_of_the_session_vectors() -> None:
    ends = {"a": Session(8), "b": Session(8)}
    for step in FILES["session"]:
        end = ends[step["end"]]
        if "send" in step:
            assert [hexes(one) for one in end.number(frames_of(step["send"]))] == step["gives"]
        elif "send_unnumbered" in step:
            sent = end.unnumbered(frames_of(step["send_unnumbered"]))
            assert [hexes(sent)] == step["gives"]
        else:
            whole, answers = end.receive(frames_of(step["receive"]))
            assert (None if whole is None else hexes(whole)) == step["message"]
            assert [hexes(one) for one in answers] == step["answers"]
            assert end.unacknowledged == step["unacknowledged"]


@pytest.mark.parametrize("vector", FILES["codecs"], ids=lambda one: f"{one['codec']}: {named(one)}")
def test_values_are_decoded_from_their_bytes(vector: dict[str, Any]) -> None:
    codec = CODECS[vector["codec"]]
    assert codec.decode(bytes.fromhex(vector["hex"])) == vector["value"]
    assert codec.encode(vector["value"]).hex() == vector["hex"]
