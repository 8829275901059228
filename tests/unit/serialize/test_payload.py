"""What a payload's size is."""

from __future__ import annotations

from gridengine.serialize.payload import size_of


def test_all_buffers_count_and_in_bytes_whatever_their_items_are() -> None:
    words = memoryview(bytearray(16)).cast("Q")
    assert size_of([b"abc", bytearray(4), words, memoryview(b"")]) == 3 + 4 + 16
    assert size_of([]) == 0
