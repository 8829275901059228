"""The size of a payload, and a payload that has stayed at the worker that made it."""

from __future__ import annotations

from gridengine.serialize import pickling
from gridengine.serialize.payload import PayloadAtWorker, size_of


def test_all_buffers_count_and_in_bytes_whatever_their_items_are() -> None:
    words = memoryview(bytearray(16)).cast("Q")
    assert size_of([b"abc", bytearray(4), words, memoryview(b"")]) == 3 + 4 + 16
    assert size_of([]) == 0


def test_a_payload_is_empty_until_fetched() -> None:
    payload = PayloadAtWorker(7, 1000, b"w")
    assert (list(payload), payload.reference, payload.size, payload.worker) == ([], 7, 1000, b"w")
    payload.load = lambda: pickling.dump_values([5])
    assert pickling.load(payload.fetch()) == [5]
