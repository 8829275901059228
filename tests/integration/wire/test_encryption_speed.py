"""How fast this installation encrypts, measured."""

from __future__ import annotations

from gridengine.wire.encryption_speed import encrypted_bytes_per_second


def test_what_is_sent_arrives_and_is_timed() -> None:
    assert 0 < encrypted_bytes_per_second(2 * 2**20) < 1e12
