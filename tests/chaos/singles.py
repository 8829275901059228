"""Calls by `submit` and by `map`, some of which may run only once: these have a result, or it is
known that their worker was lost.
"""

from __future__ import annotations

import random
from concurrent.futures import Future, wait
from typing import Any

from call_log import RETRIES, Tally
from maps import result_of, work

import gridengine
from gridengine.errors import JobDeleted, WorkerCrashed, WorkerLost

LOST_SECONDS = 1200.0
CALLS_AT_A_TIME = 40
SHARED = bytes(range(250)) * 2000
ONCE = ".once"
"""How the name of a log ends that has the calls which may run only once."""


def make_calls(
    scheduler: Any, calls: list[tuple[int, float, str]], tally: Tally, seed: int
) -> None:
    """Make them all, some at a time, and check each result."""
    chance = random.Random(seed)
    tally.expected.update(index for index, *_ in calls)
    for place in range(0, len(calls), CALLS_AT_A_TIME):
        some, once = calls[place : place + CALLS_AT_A_TIME], chance.random() < 0.5
        if once:
            some = [(index, seconds, path + ONCE) for index, seconds, path in some]
        retries = 0 if once else RETRIES
        if chance.random() < 0.3:
            given = gridengine.starmap(
                work, some, scheduler=scheduler, retries=retries, reraise=False, progress=False
            )
            for (index, *_), result in zip(some, given, strict=True):
                tally.count(index)
                _check(index, result, tally, once=once)
        else:
            _submit(scheduler, some, tally, retries=retries, flushes=chance.random() < 0.3)


def work_with(shared: bytes, index: int, seconds: float, path: str) -> tuple[int, Any]:
    """As `work`, with an object that others use too."""
    assert shared == SHARED
    return work(index, seconds, path)


def _submit(
    client: gridengine.Client,
    calls: list[tuple[int, float, str]],
    tally: Tally,
    *,
    retries: int,
    flushes: bool,
) -> None:
    with gridengine.Executor(scheduler=client, retries=retries) as executor:
        futures: dict[int, Future[Any]] = {}
        shared = gridengine.share(SHARED)
        for place, call in enumerate(calls):
            index = call[0]
            if place % 3:
                futures[index] = executor.submit(work, *call)
            else:
                futures[index] = executor.submit(work_with, shared, *call)
            futures[index].add_done_callback(lambda _, index=index: tally.count(index))
        if flushes and not client.flush(LOST_SECONDS):
            tally.wrong.append("calls that were not to be durable")
        late = wait(futures.values(), LOST_SECONDS).not_done
    for index, future in futures.items():
        if future not in late:
            _check(index, future.exception() or future.result(), tally, once=not retries)


def _check(index: int, result: Any, tally: Tally, *, once: bool) -> None:
    if once and isinstance(result, WorkerLost | WorkerCrashed | JobDeleted):
        tally.failed += 1
    elif result != (index, result_of(index)):
        tally.wrong.append(f"call {index} gave {result!r:.200}")
