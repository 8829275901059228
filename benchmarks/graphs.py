"""Calls that need the results of others: trees, chains and layers of tiny ones, stages over large
arrays, and dask's arrays.
"""

from __future__ import annotations

import gc
import os
import time

from benchmarks.catalogue import BY_TCP, ENCRYPTED, GRAPHS, OF_DASK
from benchmarks.dispatch import SECONDS
from benchmarks.figures import Column, Measured, Medians, Row
from benchmarks.peers.base import Graph, Peer
from benchmarks.scale import private_bytes
from benchmarks.workloads import (
    add,
    add_three,
    double_block,
    doubled,
    inc,
    large_array,
    last_of,
    mean_of,
    sum_of,
)

WIDTH, INPUTS = 100, 3
"""How many calls a layer has, and how many of the layer before each of them needs."""
BLOCK = 500
"""The side of a block of a matrix."""
NEAR = 2_000
"""Tasks whose inputs are near need results of this many before them at most."""


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


def stages(peer: Peer, arrays: int) -> Measured:
    """Make large arrays, double each, and take the sum of their means."""
    graph: Graph = {f"number-{place}": place for place in range(arrays)}
    for place in range(arrays):
        graph[f"made-{place}"] = (large_array, f"number-{place}")
        graph[f"doubled-{place}"] = (doubled, f"made-{place}")
        graph[f"mean-{place}"] = (mean_of, f"doubled-{place}")
    graph["sum"] = (sum_of, *(f"mean-{place}" for place in range(arrays)))
    return computed(peer, graph, "sum", 2 * sum(range(arrays)))


def sums(peer: Peer, arrays: int) -> Measured:
    """Make large arrays, and twice add up each with its neighbour."""
    graph: Graph = {f"number-{place}": place for place in range(arrays)}
    for place in range(arrays):
        graph[f"sum-0-{place}"] = (double_block, f"number-{place}")
        for stage in (1, 2):
            pair = [f"sum-{stage - 1}-{(place + one) % arrays}" for one in range(2)]
            graph[f"sum-{stage}-{place}"] = (add, *pair)
        graph[f"last-{place}"] = (last_of, f"sum-2-{place}")
    graph["sum"] = (sum_of, *(f"last-{place}" for place in range(arrays)))
    return computed(peer, graph, "sum", 4 * sum(range(arrays)))


def dask_array(peer: Peer, blocks: int) -> Measured:
    """Multiply a matrix of so many blocks a side by its transpose, and take the mean."""
    import dask.array

    side = blocks * BLOCK
    x = dask.array.random.default_rng(1).random((side, side), chunks=BLOCK)
    mean = (x @ x.T).mean()
    gc.collect()
    begin = time.perf_counter()
    got = peer.compute_collection(mean)
    seconds = time.perf_counter() - begin
    assert isinstance(got, float)
    assert abs(got - side / 4) < side / 100, "wrong result"
    return {"seconds": seconds}


def in_the_core(peer: Peer, tasks: int) -> Measured:
    """Measure the core's seconds for each task of a random graph on simulated workers: with a
    hundredth of the tasks, with all of them, and with all where each needs results of the latest
    ones. And the memory of a task that waits. The peer's own workers stay idle.
    """
    from benchmarks.core import Cluster, RandomGraph

    cluster, before = Cluster(1_000), private_bytes(os.getpid())
    for submission in RandomGraph("", tasks // 10, 1e-5).submissions():
        cluster.play(submission)
    taken = {"memory": (private_bytes(os.getpid()) - before) / (tasks // 10)}
    for key, count, near in (("few", tasks // 100, 0), ("near", tasks, NEAR), ("all", tasks, 0)):
        cluster = Cluster(1_000)
        cluster.run(RandomGraph("", count, 1e-5, near))
        taken[key] = cluster.core_seconds / count
    return taken


def of_the_best_other(part: float, medians: Medians) -> float:
    others = [
        median
        for peer, median in medians.items()
        if not (peer.startswith("gridengine") or "/" in peer)  # nor of other rows
    ]
    if not others:
        raise KeyError("any other")
    return part * min(others)


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
    Row(
        "stages",
        "three stages over 20 arrays of 100 MB",
        (
            *seconds("at most the best other's", 1.0),
            Column(
                "pss", "peak memory", "MB", 1e-6, want="under 2.5 GB", limit=lambda medians: 2.5e9
            ),
        ),
        20,
        tuple(peer for peer in GRAPHS if peer not in ("scaled", "parsl")),
        stages,
        sampled=True,
        remark="Each array is made, doubled, and its mean taken. Memory is the proportional set "
        "size of all processes. Where links of a chain are made as one no array travels.",
    ),
    Row(
        "tcp-sums",
        "three stages over 20 arrays of 20 MB over TCP, each a sum of two",
        seconds("at most the best other's", 1.0),
        20,
        (*BY_TCP, "dask.distributed", *ENCRYPTED),
        sums,
        remark="Arrays go from worker to worker. Ours send what they have encrypted.",
    ),
    Row(
        "dask-array",
        "dask.array: (x @ x.T).mean() of 4,000 x 4,000 in blocks of 500 x 500",
        (
            Column(
                "seconds",
                "time",
                SECONDS,
                want="at most dask.distributed's",
                limit=lambda medians: medians["dask.distributed"],
            ),
        ),
        8,
        ("gridengine", "dask.distributed", *OF_DASK),
        dask_array,
        warm=4,  # each worker has dask then
    ),
    Row(
        "core-graph",
        "the core alone: a random graph of 1,000,000 tasks with two inputs each",
        (
            *(
                Column(
                    key,
                    title,
                    "us a task",
                    1e6,
                    want="at most 20 us a task: 50,000 a second",
                    limit=lambda medians: 20e-6,
                )
                for key, title in (
                    ("all", "1,000,000"),
                    ("near", f"1,000,000, inputs of the latest {NEAR:,}"),
                    ("few", "10,000"),
                )
            ),
            Column(
                "memory",
                "a task that waits",
                "bytes",
                want="at most 600",
                limit=lambda medians: 600,
            ),
        ),
        1_000_000,
        ("gridengine",),
        in_the_core,
    ),
)
