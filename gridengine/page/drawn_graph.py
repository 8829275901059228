"""A graph as the page draws it: the calls that have not ended, as the dispatcher reports them, and
the ended calls that the page has seen before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.status.rows import FunctionStatus, GraphFunction, GraphNode

MOST_DRAWN = 5000
DONE, FAILED = "done", "failed"


class Drawn(Struct, frozen=True):
    """A node: its call, its state, its layer. The nodes that it needs are in earlier layers."""

    call: str
    state: str
    layer: int
    after: Sequence[int] = ()
    """The positions, in the list of nodes, of the nodes whose results it needs."""


class Graph(Struct, frozen=True):
    """The drawn nodes, and a note about nodes that are not drawn."""

    run: str
    nodes: Sequence[Drawn]
    functions: Sequence[GraphFunction]
    note: str = ""


class GraphMemory:
    """Remembers the ended nodes of a dispatcher's graphs, and the nodes that they needed."""

    def __init__(self) -> None:
        self._run = ""
        self._nodes: dict[str, GraphNode] = {}
        self._functions: dict[str, Counter[str]] = {}

    def update(self, answer: WatchAnswer) -> Graph:
        """Take in an answer, and return the graph to draw."""
        told = answer.graph
        if told is None:
            raise ValueError("this is not an answer about a graph")
        if answer.identity.run_id != self._run:
            self._run, self._nodes, self._functions = answer.identity.run_id, {}, {}
        if told.count > len(told.nodes):
            self._nodes = {}
            note = f"{told.count:,} calls of graphs have not ended: too many to be drawn one by one"
        else:
            self._remember(told.nodes, {one.id for one in answer.status.failures})
            note = (
                "calls that ended before this page was opened are not drawn" if self._nodes else ""
            )
        if told.looked_at < told.tasks:
            note += f"; the first {told.looked_at:,} of {told.tasks:,} tasks were looked at"
        rows = self._rows(told.functions, answer.status.functions)
        return Graph(self._run, laid_out(self._nodes.values()), rows, note)

    def _remember(self, nodes: Sequence[GraphNode], failed: Collection[str]) -> None:
        before, now = self._nodes, {}
        for one in nodes:
            known = before.get(one.id)
            after = dict.fromkeys((*known.after, *one.after)) if known is not None else one.after
            now[one.id] = replace(one, after=tuple(after))
        ended = [
            replace(
                one,
                state=FAILED if one.id in failed else one.state if one.state == FAILED else DONE,
            )
            for one in before.values()
            if one.id not in now
        ]
        left_out = max(0, len(ended) + len(now) - MOST_DRAWN)
        self._nodes = {one.id: one for one in ended[left_out:]} | now

    def _rows(
        self, told: Sequence[GraphFunction], counted: Sequence[FunctionStatus]
    ) -> list[GraphFunction]:
        states = {one.name: one.states for one in told}
        for one in told:
            after = self._functions.setdefault(one.name, Counter())
            after |= Counter(one.after)
        counts = {one.name: {DONE: one.done, FAILED: one.failed + one.cancelled} for one in counted}
        return [
            GraphFunction(name, {**states.get(name, {}), **counts.get(name, {})}, after)
            for name, after in self._functions.items()
        ]


def laid_out(nodes: Iterable[GraphNode]) -> list[Drawn]:
    """Return the nodes with their layers: a node comes in a later layer than the nodes whose
    results it needs. Within a layer, nodes are sorted by the mean position of those nodes.
    """
    known = {one.id: one for one in nodes}
    layers = _layers(known)
    places: dict[str, int] = {}
    for _, names in groupby(sorted(layers, key=layers.__getitem__), layers.__getitem__):
        for name in sorted(names, key=lambda name: _mean_place(known[name], places)):
            places[name] = len(places)
    return [
        Drawn(
            known[name].call,
            known[name].state,
            layers[name],
            [places[other] for other in known[name].after if other in places],
        )
        for name in places
    ]


def _mean_place(one: GraphNode, places: Mapping[str, int]) -> float:
    found = [places[name] for name in one.after if name in places]
    return sum(found) / len(found) if found else 0.0


def _layers(known: Mapping[str, GraphNode]) -> dict[str, int]:
    """Return the length of the longest path to each node."""
    before = {name: [other for other in one.after if other in known] for name, one in known.items()}
    layers: dict[str, int] = {}
    for name in TopologicalSorter(before).static_order():
        layers[name] = 1 + max((layers[other] for other in before[name]), default=-1)
    return {name: layers[name] for name in known}
