"""Calls from tasks of event loops, and calls of coroutine functions, on a batch system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


def test_coroutine_functions_run_there_and_tasks_wait_for_them(cluster: Cluster) -> None:
    told = play(
        cluster,
        """
import asyncio, functools, itertools
import trio

async def double(x):
    await asyncio.sleep(0)
    return os.getpid(), 2 * x

async def first(scheduler):
    found = []
    async with gridengine.aimap(double, itertools.count(), scheduler=scheduler) as results:
        async for _, value in results:
            found.append(value)
            if len(found) == 30:
                return found

async def awaited(scheduler):
    async with gridengine.Executor(scheduler=scheduler) as executor:
        futures = [executor.submit(double, x) for x in range(20)]
        return [(await future)[1] for future in futures]

with CLUSTER(max_workers=1) as scheduler:
    [(there, _)] = gridengine.map(double, [1], scheduler=scheduler)
    runs = {"trio": trio.run, "asyncio": lambda f: asyncio.run(f())}
    found = {
        name: [run(functools.partial(f, scheduler)) for f in (first, awaited)]
        for name, run in runs.items()
    }
tell(found=found, elsewhere=there != os.getpid())
""",
    ).result()
    first, awaited = ([2 * x for x in range(count)] for count in (30, 20))
    assert told["found"] == {"trio": [first, awaited], "asyncio": [first, awaited]}
    assert told["elsewhere"]
