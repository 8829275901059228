"""The calls that wait in one queue, and whose turn it is.

Clients take turns by weight, and the submitters of one client take turns. Next is the submitter
with the smallest share of the workers; of equal shares, the one that has waited longest.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain, islice
from operator import attrgetter
from typing import TypeAlias

from gridengine.dispatcher.core.calls import CoreClient, CoreSubmitter, OpenTask, Span

MOST_COMPARED = 16
"""The shares of this many submitters are compared, those that have waited longest: a turn costs
the same however many wait.
"""
MOST_CLIENTS = 64
"""The same for clients."""


Spans: TypeAlias = deque[Span]
"""The waiting spans of one submitter."""
Waiting = OrderedDict[CoreSubmitter, Spans]
"""The spans of each submitter. Ordered: a plain dictionary takes longer to find its first item, the
more items before it were removed.
"""
Level: TypeAlias = tuple[int, int]
"""The nesting depth of calls and their priority, both negated: the smallest level is first."""
PLAIN: Level = (0, 0)


def level_of(one: OpenTask) -> Level:
    """Return the level at which the calls of a task wait."""
    return -one.submitter.depth, -one.options.priority


class _Levels(dict[Level, Waiting]):
    """The spans of one client by level; no level is empty."""

    def __init__(self) -> None:
        super().__init__()
        self._order: list[Level] = []
        """A heap of all levels; it may also have levels that were removed."""

    def make(self, level: Level) -> Waiting:
        """Return a new level."""
        heappush(self._order, level)
        found = self[level] = Waiting()
        return found

    @property
    def first(self) -> Level:
        """The level that comes first."""
        while self._order[0] not in self:
            heappop(self._order)
        return self._order[0]


class FairQueue:
    """The waiting spans. The next client is the one with the smallest share of the workers for its
    weight. Of its calls, the most deeply nested come first, then the calls of the highest priority.
    At one level its submitters take turns, and for each submitter it is first in, first out.

    `spans`: the plain spans, which are of the dispatcher's own process, not nested, and without
    priority. Nearly all spans are plain, so they have a place of their own, quick to reach.
    `alone`: whether the last turn was that of the only submitter with spans.
    """

    def __init__(self) -> None:
        self.spans = Waiting()
        self.alone = False
        self._others: OrderedDict[CoreClient, _Levels] = OrderedDict()
        self._depths: dict[int, int] = {}
        """How many levels there are of each depth."""

    def level(self, submitter: CoreSubmitter, priority: int) -> Waiting:
        """Return the level at which calls of a submitter and priority wait. A missing level is
        made; the caller must add a call to it at once.
        """
        if submitter.plain and not priority:
            return self.spans
        levels = self._others.get(submitter.client)
        if levels is None:
            levels = self._others[submitter.client] = _Levels()
        level = -submitter.depth, -priority
        found = levels.get(level)
        if found is None:
            found = levels.make(level)
            self._depths[submitter.depth] = self._depths.get(submitter.depth, 0) + 1
        return found

    @property
    def deepest(self) -> int:
        """The greatest nesting depth of the waiting calls."""
        return max(self._depths, default=0)

    @property
    def nested_calls(self) -> int:
        """How many of the waiting calls are nested. The price grows with their number."""
        levels = (level for its in self._others.values() for level in its.items() if level[0][0])
        return sum(span.calls for _, one in levels for spans in one.values() for span in spans)

    def __iter__(self) -> Iterator[Span]:
        """Yield the waiting spans."""
        levels = (levels.values() for levels in self._others.values())
        waiting = chain((self.spans,), chain.from_iterable(levels))
        return chain.from_iterable(spans for level in waiting for spans in level.values())

    def first(self, floor: int = -1) -> Span:
        """Return the first span of the submitter whose turn it is; see `begin_turn`."""
        return self.begin_turn(floor)[0]

    def begin_turn(self, floor: int = -1) -> Spans:
        """Return the spans of the next submitter, to be taken from the left until `end_turn`. Only
        spans deeper than `floor` count, and there must be some.
        """
        others = self._others
        waiting = self._first_level(floor) if others else self.spans
        if len(waiting) == 1:
            self.alone = not others
            [spans] = waiting.values()
            return spans
        self.alone = False
        return waiting[min(islice(waiting, MOST_COMPARED), key=_share)]

    def _first_level(self, floor: int) -> Waiting:
        others, own = self._others, None
        clients: Iterable[CoreClient] = others
        if floor >= 0:
            clients = (one for one, its in others.items() if -its.first[0] > floor)
        compared: Iterable[CoreClient] = islice(clients, MOST_CLIENTS)
        if self.spans and floor < 0:
            own = next(iter(self.spans)).client
            compared = chain((own,), compared)
        client = min(compared, key=_client_share)
        levels = others.get(client)
        if levels is None or (client is own and levels.first > PLAIN):
            return self.spans
        return levels[levels.first]

    def end_turn(self, one: OpenTask) -> None:
        """Put the submitter and the client of a served task behind the others."""
        submitter = one.submitter
        plain = submitter.plain and not one.options.priority
        waiting = self.spans if plain else self._others[submitter.client][level_of(one)]
        if not waiting[submitter]:
            del waiting[submitter]
            if not plain and not waiting:
                self._drop(submitter.client, level_of(one))
        elif len(waiting) > 1:
            waiting.move_to_end(submitter)
        if not plain and submitter.client in self._others:
            self._others.move_to_end(submitter.client)

    def _drop(self, client: CoreClient, level: Level) -> None:
        """Forget an empty level."""
        levels, depth = self._others[client], -level[0]
        del levels[level]
        if not levels:
            del self._others[client]
        self._depths[depth] -= 1
        if not self._depths[depth]:
            del self._depths[depth]

    def take_out(
        self,
        split: Callable[[Span], tuple[Iterable[Span], Iterable[Span]]],
        tasks: Iterable[OpenTask] | None = None,
    ) -> list[Span]:
        """Take parts of the waiting spans out, and return them. `split` divides a span into the
        parts that stay and the parts that go.

        With `tasks` only the spans at the levels of these tasks are divided; otherwise all are.
        """
        found = (span.open_task for span in self) if tasks is None else tasks
        taken: list[Span] = []
        for submitter, level in dict.fromkeys((one.submitter, level_of(one)) for one in found):
            plain, levels = submitter.plain and level == PLAIN, self._others.get(submitter.client)
            waiting = self.spans if plain else levels.get(level) if levels else None
            if waiting is None or submitter not in waiting:
                continue
            kept: Spans = deque()
            for span in waiting[submitter]:
                stays, goes = split(span)
                kept.extend(stays)
                taken.extend(goes)
            waiting[submitter] = kept
            if not kept:
                del waiting[submitter]
                if not plain and not waiting:
                    self._drop(submitter.client, level)
        return taken


def _share(submitter: CoreSubmitter) -> tuple[int, int]:
    return submitter.load, submitter.last_run


_client_share = attrgetter("share", "last_turn")
