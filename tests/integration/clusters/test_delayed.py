"""Delayed functions and programs of coroutine functions, on a batch system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


def test_a_program_calculates_with_results_and_says_how_it_fails(cluster: Cluster) -> None:
    told = play(
        cluster,
        """
from gridengine import delayed, each, exec1, open_waitgroup, run

@delayed(nout=2)
def bounds(values):
    return min(values), max(values)

@delayed
def tenfold(x):
    return 10 * x

@delayed
async def hundredfold(x):
    return await tenfold(await tenfold(x))

async def main():
    low, high = bounds([tenfold(1) + 1, tenfold(3), hundredfold(5)])
    async with open_waitgroup() as group:
        for x in range(4):
            group.submit(None, pow, x, 2)
    try:
        await tenfold([tenfold(None) + 1])
    except TypeError as error:
        notes = error.__notes__
    return await each(low, high - low), group.results, await exec1(None, pow, 2, 8), notes

if __name__ == "__main__":
    with CLUSTER(max_workers=2) as scheduler:
        *results, notes = run(main, scheduler=scheduler)
    tell(results=results, notes=notes)
""",
    ).result()
    assert told["results"] == [[11, 489], [0, 1, 4, 9], 256]
    assert "tenfold" in told["notes"][0]
