"""What a worker's messages hold."""

from __future__ import annotations

import pytest

from gridengine.errors import ProtocolError
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import VALUES, Result, Results


def test_a_result_is_ten_bytes_and_a_few_on_the_wire() -> None:
    result = Result(run=1, start=0, stop=1, status=VALUES, seconds=0.0)
    one, two = (len(encode(Results([result] * count), [b""] * count)[0]) for count in (1, 2))
    assert two - one < 20


def test_a_reference_that_a_dispatcher_could_not_work_with_is_malformed() -> None:
    result = Result(1, 0, 1, VALUES, 1.0, buffers=0, held=(-1, 5))
    with pytest.raises(ProtocolError):
        decode(encode(Results([result]), ()))
