"""Looks for random walks that go far, from a task of asyncio: while calls run, other tasks do.

Shows `aimap` over arguments without end, left when enough is known, and calls that are awaited many
at once:

    python examples/event_loop.py
    python examples/event_loop.py --scheduler slurm
"""

import argparse
import asyncio
import itertools
import random

import gridengine

STEPS = 10_000
FAR = 150


def walk(seed: int, steps: int = STEPS) -> tuple[int, int]:
    """Return how far from its start a walk gets at most; and its seed."""
    steps_of = random.Random(seed).choices((-1, 1), k=steps)
    return max(map(abs, itertools.accumulate(steps_of))), seed


async def far_walks(count: int, scheduler: str | None) -> list[int]:
    """Return the first so many seeds whose walks go far."""
    found: list[int] = []
    async with gridengine.aimap(walk, itertools.count(), scheduler=scheduler) as walks:
        async for distance, seed in walks:
            if distance > FAR:
                found.append(seed)
            if len(found) == count:
                break
    return found


async def main(scheduler: str | None) -> None:
    seeds = await far_walks(5, scheduler)
    print(f"they go farther than {FAR}: {seeds}")
    async with gridengine.Executor(scheduler=scheduler) as executor:
        longer = [executor.submit(walk, seed, 10 * STEPS) for seed in seeds]
        distance, seed = max(await asyncio.gather(*longer))
    print(f"with ten times the steps the farthest is {seed}: {distance}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scheduler", help="processes, grid_engine, slurm or inline")
    asyncio.run(main(parser.parse_args().scheduler))
