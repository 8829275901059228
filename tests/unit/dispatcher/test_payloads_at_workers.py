"""What the caller has in the place of a result that stays at its worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gridengine.dispatcher.core.events import ResultFetched, ResultStays
from gridengine.dispatcher.core.tasks import ResultData
from gridengine.dispatcher.io_loop import PayloadsAtWorkers
from gridengine.errors import Cancelled
from gridengine.serialize import pickling
from gridengine.serialize.payload import PayloadAtWorker


def kept(
    answer: Callable[[PayloadsAtWorkers, int], Any],
) -> tuple[PayloadsAtWorkers, PayloadAtWorker, list[Any]]:
    """Return all payloads, one of them, and what is asked for and released; a request is answered
    so.
    """
    said: list[Any] = []

    def ask(reference: int) -> None:
        said.append(reference)
        answer(payloads, reference)

    payloads = PayloadsAtWorkers(ask, said.append)
    payload = PayloadAtWorker(7, 100, b"w")
    payloads.add(ResultStays(payload))
    return payloads, payload, said


def fill(data: ResultData) -> Callable[[PayloadsAtWorkers, int], Any]:
    return lambda payloads, reference: payloads.fill(ResultFetched(reference, data))


def test_a_payload_is_asked_for_once_and_released_when_nobody_has_it() -> None:
    _, payload, said = kept(fill(ResultData([b"bytes"])))
    assert payload.fetch() == pickling.fetched(payload) == [b"bytes"]
    assert said == [7]
    del payload
    assert said == [7, (7,)]


def test_the_error_of_making_a_payload_again_is_raised() -> None:
    raised = ResultData(pickling.dump_exception(OSError("once")), raised=True)
    _, payload, _ = kept(fill(raised))
    with pytest.raises(OSError, match="once"):
        payload.fetch()
    _, payload, _ = kept(fill(ResultData(error=Cancelled("ended"))))
    with pytest.raises(Cancelled, match="ended"):
        payload.fetch()


def test_the_arrival_of_a_payload_can_be_awaited() -> None:
    payloads, payload, said = kept(lambda payloads, reference: None)
    assert payload.when_here is not None
    assert payload.when_here(lambda: said.append("here"))
    assert said == [7]
    fill(ResultData([b"bytes"]))(payloads, 7)
    assert said == [7, "here"]
    assert not payload.when_here(lambda: said.append("again"))
    assert said == [7, "here"]


def test_when_all_is_closed_what_has_come_is_there_and_nobody_waits() -> None:
    payloads, payload, said = kept(lambda payloads, reference: None)
    fill(ResultData([b"bytes"]))(payloads, 7)
    payloads.close(Cancelled("closed"))
    assert payload.fetch() == [b"bytes"]
    payloads, payload, said = kept(lambda payloads, reference: None)
    payloads.close(Cancelled("closed"))
    with pytest.raises(Cancelled, match="closed"):
        payload.fetch()
    del payload
    assert said == []
