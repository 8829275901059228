"""The calls that have not ended, a window of them at a time: for who scrolls through a million."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from gridengine.dispatcher.core.calls import OpenTask
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.status import CallStatus
from gridengine.dispatcher.core.status_views import MOST_LOOKED_AT, call_status


def call_window(
    state: CoreState, first: int, most: int, now: float
) -> tuple[list[CallStatus], int]:
    """Return so many calls from the `first` on, counted from 0 as they were submitted, and how many
    there are in all.

    Of very many tasks those before are not counted one by one, but taken to have equally many
    calls: then a window that is far down may begin some calls off.
    """
    tasks, count = state.open_tasks, sum(one.unsettled for one in state.clients.values())
    first, passed = max(0, min(first, count - most)), 0
    if len(tasks) > MOST_LOOKED_AT:
        passed, first = first * len(tasks) // count, 0
    calls = _calls(islice(tasks.values(), passed, None), first)
    return [call_status(state, one, index, now) for one, index in islice(calls, most)], count


def _calls(tasks: Iterable[OpenTask], first: int) -> Iterator[tuple[OpenTask, int]]:
    """Yield the calls that have not ended, without so many of the first."""
    for one in tasks:
        if first >= one.unsettled:
            first -= one.unsettled
            continue
        for start, stop in _gaps(one):
            begin = min(start + first, stop)
            first -= begin - start
            for index in range(begin, stop):
                yield one, index


def _gaps(one: OpenTask) -> Iterator[tuple[int, int]]:
    """Yield the calls of a task that are not settled, as ranges."""
    start = 0
    for settled, stop in sorted(one.settled or ()):
        if start < settled:
            yield start, settled
        start = stop
    if start < one.task.count:
        yield start, one.task.count
