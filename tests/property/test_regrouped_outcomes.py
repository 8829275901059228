"""Outcomes that come a second time, of a dispatcher that was started again, in other groups."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gridengine.calls.remote import RemoteDispatcher
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.requests import CallsFinished
from gridengine.serialize import pickling
from gridengine.wire.messages import Finished, FinishedItem
from tests.support.tasks import make_task

COUNT = 12
TASK = 7
cuts = st.sets(st.integers(1, COUNT - 1)).map(
    lambda found: list(itertools.pairwise([0, *sorted(found), COUNT]))
)


class Client:
    """A client of which one task is at a dispatcher."""

    daemon = True

    def __init__(self) -> None:
        self.events: list[CallsFinished] = []
        self.unsettled = UnsettledTasks()
        self.unsettled.add([make_task(TASK, [b""], COUNT)], self)  # type: ignore[arg-type]
        self.dispatcher: Any = object.__new__(RemoteDispatcher)
        self.dispatcher._limits, self.dispatcher._unsettled = None, self.unsettled
        self.dispatcher._ended, self.dispatcher._number = [], 0

    def settled(self, event: CallsFinished) -> None:
        self.events.append(event)

    def hear(self, start: int, stop: int, *, last: bool) -> None:
        values = [(n, b"x" * n) for n in range(start, stop)]
        payload = pickling.dump_values(values)
        item = FinishedItem(TASK, start, stop, len(payload), last=last)
        self.dispatcher._finished(Finished(0, [item]), payload)


@given(st.data(), cuts, cuts)
def test_each_call_is_settled_once_with_its_own_value(
    data: st.DataObject, before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    client = Client()
    told = data.draw(st.lists(st.sampled_from(before), unique=True, max_size=len(before) - 1))
    for start, stop in told:
        client.hear(start, stop, last=False)
    client.dispatcher._repeats = True
    for start, stop in [*told, *data.draw(st.permutations(after))]:
        client.hear(start, stop, last=False)
    values = {}
    for event in client.events:
        assert event.payload is not None
        found = pickling.load_values(event.payload)[0]
        assert len(found) == event.stop - event.start
        for index, value in enumerate(found, event.start):
            assert index not in values
            values[index] = value
    assert values == {n: (n, b"x" * n) for n in range(COUNT)}
    assert [event.last for event in client.events] == [False] * (len(client.events) - 1) + [True]
    assert not client.unsettled.ids()
