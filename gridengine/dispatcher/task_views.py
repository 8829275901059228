"""The tasks that have not ended, for watchers: a window of their calls, and their graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from gridengine.dispatcher.core.calls import AwaitedResult, OpenTask
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.status_views import MOST_LOOKED_AT, call_status
from gridengine.errors import call_words
from gridengine.status.rows import CallStatus, GraphFunction, GraphNode, GraphStatus

MOST_OF_GRAPH = 10_000
"""One answer looks at no more tasks than this."""
MISSING, WAITING, RUNNING = "missing", "waiting", "running"


def graph_of(state: CoreState, most: int) -> GraphStatus:
    """Return the graph of the open tasks. Its nodes are listed only if there are at most `most`."""
    seen = list(islice(state.open_tasks.values(), MOST_OF_GRAPH))
    makers = {awaited: one for one in seen for awaited in _made(one)}
    tasks = [one for one in seen if one.inputs or one.kept]
    states = Counter((one.function.function.name, _state(one)) for one in tasks)
    after = Counter(
        (one.function.function.name, maker.function.function.name)
        for one in tasks
        for maker in _needed(one, makers)
    )
    return GraphStatus(
        [_node(one, makers) for one in tasks] if len(tasks) <= most else (),
        [
            GraphFunction(name, _of(name, states), _of(name, after))
            for name in dict.fromkeys(name for name, _ in states)
        ],
        len(tasks),
        len(seen),
        len(state.open_tasks),
    )


def _of(name: str, counts: Mapping[tuple[str, str], int]) -> dict[str, int]:
    return {what: count for (whose, what), count in counts.items() if whose == name}


def _made(one: OpenTask) -> Collection[AwaitedResult]:
    kept = one.kept
    if isinstance(kept, AwaitedResult):
        return (kept,)
    return kept.values() if kept else ()


def _needed(one: OpenTask, makers: Mapping[AwaitedResult, OpenTask]) -> list[OpenTask]:
    return [makers[needed] for needed in one.inputs if needed.data is None and needed in makers]


def _node(one: OpenTask, makers: Mapping[AwaitedResult, OpenTask]) -> GraphNode:
    name = one.function.function.name
    after = [_id(maker) for maker in _needed(one, makers)]
    call = call_words(name, one.first, 0, one.options.name)
    return GraphNode(_id(one), call, name, _state(one), after)


def _id(one: OpenTask) -> str:
    return f"{one.id}.0"


def _state(one: OpenTask) -> str:
    if one.runs:
        return RUNNING
    return MISSING if one.missing else WAITING


def call_window(
    state: CoreState, first: int, most: int, now: float
) -> tuple[list[CallStatus], int]:
    """Return `most` calls, beginning with number `first` in the order of submission (from 0), and
    how many calls there are in all.

    With very many tasks, the tasks before the window are taken to have equally many calls each:
    then the window may begin some calls off.
    """
    tasks, count = state.open_tasks, sum(one.unsettled for one in state.clients.values())
    first, passed = max(0, min(first, count - most)), 0
    if len(tasks) > MOST_LOOKED_AT:
        passed, first = first * len(tasks) // count, 0
    calls = _calls(islice(tasks.values(), passed, None), first)
    return [call_status(state, one, index, now) for one, index in islice(calls, most)], count


def _calls(tasks: Iterable[OpenTask], first: int) -> Iterator[tuple[OpenTask, int]]:
    """Yield the calls that have not ended, but for the first `first` of them."""
    for one in tasks:
        if first >= one.unsettled:
            first -= one.unsettled
            continue
        for start, stop in one.left:
            begin = min(start + first, stop)
            first -= begin - start
            for index in range(begin, stop):
                yield one, index
