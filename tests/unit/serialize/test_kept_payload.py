"""A payload that has stayed at the worker which made it."""

from __future__ import annotations

from gridengine.serialize import pickling
from gridengine.serialize.kept_payload import KeptPayload


def test_it_is_empty_until_it_is_fetched() -> None:
    payload = KeptPayload(7, 1000, b"w")
    assert (list(payload), payload.reference, payload.size, payload.worker) == ([], 7, 1000, b"w")
    payload.load = lambda: pickling.dump_values([5])
    assert pickling.load(payload.fetch()) == [5]
