"""The messages between a user's process and the one that speaks DRMAA."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from gridengine.schedulers.grid_engine.drmaa_messages import (
    read_content,
    read_size,
    write_message,
)


class Channel:
    """A stream socket on which what was sent arrives in pieces of so many bytes."""

    def __init__(self, most: int = 1 << 20) -> None:
        self.content = b""
        self.most = most
        self.timeouts: list[float] = []

    def sendall(self, data: bytes) -> None:
        self.content += data

    def recv(self, size: int) -> bytes:
        size = min(size, self.most)
        piece, self.content = self.content[:size], self.content[size:]
        return piece

    def settimeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)


@pytest.mark.parametrize("most", [1, 3, 1 << 20])
@pytest.mark.parametrize("message", [None, [1, "run", {"name": "ä\udcff"}], ["x" * 10_000]])
def test_a_message_comes_back_in_whatever_pieces_it_arrives(message: Any, most: int) -> None:
    channel: Any = Channel(most)
    write_message(channel, message)
    write_message(channel, "next")
    assert read_content(channel, read_size(channel)) == message
    assert read_content(channel, read_size(channel)) == "next"


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\0\0\0\5[1,2"])
def test_an_end_in_the_middle_of_a_message_is_the_end_of_the_other(content: bytes) -> None:
    channel: Any = Channel()
    channel.content = content
    with pytest.raises(ConnectionResetError):
        read_content(channel, read_size(channel))


@pytest.mark.parametrize(
    ("content", "error"), [(b"[1,", json.JSONDecodeError), (b"\xff\xfe\xfd", UnicodeDecodeError)]
)
def test_what_is_no_message_is_a_value_error(content: bytes, error: type[ValueError]) -> None:
    channel: Any = Channel()
    channel.content = len(content).to_bytes(4, "big") + content
    with pytest.raises(error):
        read_content(channel, read_size(channel))


def test_only_who_has_a_time_limit_sets_one_and_one_that_is_over_is_no_block() -> None:
    channel: Any = Channel()
    write_message(channel, 1)
    size = read_size(channel)
    assert channel.timeouts == []
    read_content(channel, size, time.monotonic() - 5)
    assert all(seconds > 0 for seconds in channel.timeouts)
    assert channel.timeouts
