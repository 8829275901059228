"""Large arguments and large results."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable
from typing import Any

from benchmarks.catalogue import BY_TCP, ENCRYPTED, LOCAL, OVER_TCP
from benchmarks.figures import Column, Measured, Row
from benchmarks.peers.base import Peer
from benchmarks.workloads import (
    BLOCK_BYTES,
    SHARES,
    block,
    double_block,
    last_of,
    random_array,
    share_of,
)


def bound_array(peer: Peer, calls: int) -> Measured:
    return with_array(lambda array: peer.map(functools.partial(share_of, array), range(calls)))


def shared_array(peer: Peer, calls: int) -> Measured:
    return with_array(lambda array: peer.map_shared(share_of, array, range(calls)))


def with_array(use: Callable[[Any], list[Any]]) -> Measured:
    array = random_array()
    gc.collect()
    begin = time.perf_counter()
    got = use(array)
    seconds = time.perf_counter() - begin
    assert sum(got) == array.sum(), "wrong results"
    return {"seconds": seconds}


def results(peer: Peer, calls: int) -> Measured:
    gc.collect()
    begin = time.perf_counter()
    got: list[Any] = peer.map(block, range(calls))
    seconds = time.perf_counter() - begin
    assert [(len(one) * 8, one[-1]) for one in got] == [
        (BLOCK_BYTES, number) for number in range(calls)
    ], "wrong results"
    return {"seconds": seconds}


def double_results(peer: Peer, calls: int) -> Measured:
    gc.collect()
    begin = time.perf_counter()
    got: list[Any] = peer.map(double_block, range(calls))
    seconds = time.perf_counter() - begin
    assert list(map(last_of, got)) == list(range(calls)), "wrong results"
    return {"seconds": seconds}


def double_arguments(peer: Peer, calls: int) -> Measured:
    arrays = list(map(double_block, range(calls)))
    gc.collect()
    begin = time.perf_counter()
    got = peer.map(last_of, arrays)
    seconds = time.perf_counter() - begin
    assert got == list(range(calls)), "wrong results"
    return {"seconds": seconds}


DASK = "dask.distributed"
OF_DASK = Column(
    "seconds",
    "time",
    "s",
    want="at most 0.9 x dask's, unencrypted",
    limit=lambda medians: 0.9 * medians[DASK],
)


def time_and_memory(best: str) -> tuple[Column, ...]:
    """Return the columns of a row whose time is to be at most this peer's."""
    memory = Column(
        "pss", "peak memory", "MB", 1e-6, want="at most 200 MB", limit=lambda medians: 200e6
    )
    seconds = Column(
        "seconds", "time", "s", want=f"at most {best}'s", limit=lambda medians: medians[best]
    )
    return seconds, memory


ROWS = (
    Row(
        "array",
        "one 100 MB array used by 20 calls (`partial`)",
        time_and_memory("joblib"),
        SHARES,
        ("serial", *LOCAL),
        bound_array,
        sampled=True,
        remark="Each call reads a twentieth of it. Memory is the proportional set size of all "
        "processes, the caller's own array included.",
    ),
    Row(
        "share",
        "the same, told to share",
        time_and_memory("mpire"),
        SHARES,
        ("gridengine", "mpire", "dask.distributed", "ray"),
        shared_array,
        sampled=True,
        remark="`gridengine.share`, mpire's `shared_objects`, dask's `scatter`, `ray.put`.",
    ),
    Row(
        "results",
        "20 results of 10 MB",
        (
            Column(
                "seconds", "time", "s", want="at most loky's", limit=lambda medians: medians["loky"]
            ),
        ),
        20,
        LOCAL,
        results,
    ),
    Row(
        "tcp-results",
        "20 results of 20 MB over TCP",
        (OF_DASK,),
        20,
        (*BY_TCP, DASK, *ENCRYPTED),
        double_results,
        remark="Ours send what they have encrypted.",
    ),
    Row(
        "tcp-arguments",
        "20 arguments of 20 MB over TCP",
        (OF_DASK,),
        20,
        (*BY_TCP, DASK, *ENCRYPTED),
        double_arguments,
    ),
    Row(
        "grid-engine-results",
        "real Grid Engine, 4 slots: 20 results of 10 MB",
        (Column("seconds", "time", "s"),),
        20,
        OVER_TCP,
        results,
        on="grid-engine",
        remark="Workers are warm. Ours send what they have encrypted, dask's do not.",
    ),
)
