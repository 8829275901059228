"""Calls that need the results of others: trees, chains and layers of tiny ones."""

from __future__ import annotations

import gc
import time

from benchmarks.catalogue import GRAPHS
from benchmarks.dispatch import SECONDS
from benchmarks.figures import Column, Measured, Medians, Row
from benchmarks.peers.base import Graph, Peer
from benchmarks.workloads import add, add_three, inc

WIDTH, INPUTS = 100, 3
"""How many calls a layer has, and how many of the layer before each of them needs."""


def computed(peer: Peer, graph: Graph, key: str, expected: object) -> Measured:
    gc.collect()
    begin = time.perf_counter()
    got = peer.compute(graph, key)
    seconds = time.perf_counter() - begin
    assert got == expected, "wrong result"
    return {"seconds": seconds}


def tree(peer: Peer, leaves: int) -> Measured:
    """Add up so many numbers in pairs."""
    graph: Graph = {f"leaf-{number}": number for number in range(leaves)}
    names = list(graph)
    while len(names) > 1:
        sums = {
            f"sum-{len(names)}-{place}": (add, *names[place : place + 2])
            for place in range(0, len(names) - 1, 2)
        }
        graph |= sums
        names = [*sums, *names[len(sums) * 2 :]]
    return computed(peer, graph, names[0], sum(range(leaves)))


def chain(peer: Peer, links: int) -> Measured:
    """Add one, so many times."""
    graph: Graph = {"link-0": 0}
    graph |= {f"link-{number + 1}": (inc, f"link-{number}") for number in range(links)}
    return computed(peer, graph, f"link-{links}", links)


def layers(peer: Peer, calls: int) -> Measured:
    """Have each call need three of the layer before."""
    graph: Graph = {f"node-0-{place}": 1 for place in range(WIDTH)}
    depth = calls // WIDTH
    for layer in range(1, depth + 1):
        for place in range(WIDTH):
            needs = [f"node-{layer - 1}-{(place + one) % WIDTH}" for one in range(INPUTS)]
            graph[f"node-{layer}-{place}"] = (add_three, *needs)
    return computed(peer, graph, f"node-{depth}-0", INPUTS**depth)


def of_the_best_other(part: float, medians: Medians) -> float:
    return part * min(
        median for peer, median in medians.items() if not peer.startswith("gridengine")
    )


def seconds(want: str, part: float) -> tuple[Column, ...]:
    return (
        Column(
            "seconds",
            "time",
            SECONDS,
            want=want,
            limit=lambda medians: of_the_best_other(part, medians),
            scaled=True,
        ),
    )


ROWS = (
    Row(
        "tree",
        "tree of `add` over 65,536 leaves",
        seconds("half of the best other", 0.5),
        65_536,
        GRAPHS,
        tree,
        warm=1_000,
    ),
    Row(
        "chain",
        "chain of 10,000 calls",
        (
            Column(
                "seconds",
                "time",
                SECONDS,
                want="0.03 ms a link, where links are made as one",
                limit=lambda medians: 0.3,
                scaled=True,
            ),
        ),
        10_000,
        GRAPHS,
        chain,
        warm=1_000,
        remark="Each link by itself is to take 0.2 ms at the most: 2 s.",
    ),
    Row(
        "layers",
        "100 layers of 100 calls, each needing 3 of the layer before",
        seconds("half of the best other", 0.5),
        10_000,
        GRAPHS,
        layers,
        warm=1_000,
    ),
)
