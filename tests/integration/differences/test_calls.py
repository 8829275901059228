"""Maps and futures, beside those of the standard library."""

from __future__ import annotations

import pytest

from tests.integration.differences.conftest import Compare


@pytest.mark.promise
def test_a_map_takes_several_iterables_and_a_pool_s_map_a_chunksize(compare: Compare) -> None:
    assert compare("""
with fork.Pool(1) as pool, Pool(1) as ours:
    tell(theirs=pool.map(abs, [-1], 10), ours=ours.map(abs, [-1], 10))
scheduler = ProcessScheduler(1)
tell(
    zipped=gridengine.map(pow, [2, 3], [3, 2], scheduler=scheduler),
    number=tried(gridengine.map, abs, [-1], 10, scheduler=scheduler),
)
""") == {"theirs": [1], "ours": [1], "zipped": [8, 9], "number": "TypeError"}


@pytest.mark.promise
def test_a_call_that_fails_costs_the_others_of_its_chunk_nothing(compare: Compare) -> None:
    assert compare("""
def taken(results):
    "Take results until there are no more, whatever some raise."
    found, results = [], iter(results)
    while len(found) < 9:
        try:
            found.append(next(results))
        except StopIteration:
            return found
        except ZeroDivisionError:
            found.append("failed")
def fail_at_3(x):
    if x == 3:
        raise ZeroDivisionError
    return x
with fork.Pool(1) as pool, ProcessPoolExecutor(1) as executor:
    tell(
        executor=taken(executor.map(fail_at_3, range(6), chunksize=6)),
        imap=taken(pool.imap(fail_at_3, range(6), 3)),
    )
with Pool(1) as pool, Executor(max_workers=1) as executor:
    tell(
        ours=taken(executor.map(fail_at_3, range(6), chunksize=6)),
        our_imap=taken(pool.imap(fail_at_3, range(6), 3)),
    )
""") == {
        "executor": ["failed"],
        "imap": [0, 1, 2, "failed"],
        "ours": [0, 1, 2, "failed"],
        "our_imap": [0, 1, 2, "failed", 4, 5],
    }


def test_a_failed_map_ends_its_later_calls(compare: Compare) -> None:
    assert compare("""
import functools
def run(path, x):
    if x == 0:
        raise ValueError(x)
    time.sleep(0.01)
    print(x, file=open(path, "a"))
for name, pool in ("theirs", fork.Pool(1)), ("pool", Pool(1)):
    with pool:
        tried(pool.map, functools.partial(run, name), range(10), 1)
    tell(**{name: lines(name)})
with ProcessScheduler(1) as scheduler:
    ours = functools.partial(run, "ours")
    tried(gridengine.map, ours, range(1000), chunksize=1, scheduler=scheduler)
tell(ours=lines("ours") < 900)
""") == {"theirs": 9, "pool": 9, "ours": True}


@pytest.mark.promise
def test_imap_takes_its_arguments_as_its_results_are_taken(compare: Compare) -> None:
    told = compare("""
import itertools
def counted(taken):
    for number in range(20_000):
        taken.append(number)
        yield number
for name, pool in ("theirs", fork.Pool(1)), ("ours", Pool(1)):
    taken = []
    with pool:
        results = pool.imap(abs, counted(taken))
        next(results)
        while name == "theirs" and len(taken) < 20_000:
            time.sleep(0.01)
        tell(**{name: len(taken)})
with Executor(max_workers=1) as executor:
    executor.map(abs, counted(taken := []))
    tell(executor=len(taken))
tell(endless=next(gridengine.imap(abs, itertools.count(1), scheduler=ProcessScheduler(1))))
""")
    assert told.pop("ours") < 10_000
    assert told == {"theirs": 20_000, "executor": 20_000, "endless": 1}


@pytest.mark.promise
def test_futures_are_awaited(compare: Compare) -> None:
    assert compare("""
import asyncio
async def awaited(executor):
    try:
        return await executor.submit(abs, -2)
    except TypeError as error:
        return type(error).__name__
with ProcessPoolExecutor(1) as theirs, Executor(1) as ours:
    for name, executor in {"theirs": theirs, "ours": ours}.items():
        tell(**{name: asyncio.run(awaited(executor))})
""") == {"theirs": "TypeError", "ours": 2}
