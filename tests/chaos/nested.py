"""Calls that make calls: each outer call has some of the calls made, which ask for other resources
than itself, and than the next ones.
"""

from __future__ import annotations

import random
from typing import Any

from call_log import RETRIES, Tally
from maps import result_of, work

import gridengine
from gridengine import Cores, Memory
from gridengine.resources import ZERO, Resource

INSIDE = 4
"""How many calls an outer call makes."""
DEMANDS: list[Resource] = [ZERO, Cores(1), Memory(0.05), Cores(1) & Memory(0.05)]


def make_calls(
    scheduler: Any, calls: list[tuple[int, float, str]], tally: Tally, seed: int
) -> None:
    """Make them all, and check each result."""
    chance = random.Random(seed)
    tally.expected.update(index for index, *_ in calls)
    groups = [calls[place : place + INSIDE] for place in range(0, len(calls), INSIDE)]
    with gridengine.Executor(scheduler=scheduler, retries=RETRIES) as executor:
        futures = [
            executor.with_options(resources=chance.choice(DEMANDS)).submit(
                outer, group, chance.choice(DEMANDS)
            )
            for group in groups
        ]
        for future in futures:
            for index, result in future.result():
                tally.count(index)
                if result != result_of(index):
                    tally.wrong.append(f"call {index} returned {result!r:.80}")


def outer(calls: list[tuple[int, float, str]], resources: Resource) -> list[tuple[int, Any]]:
    """Have these calls made, each with these resources."""
    return gridengine.starmap(work, calls, resources=resources, retries=RETRIES, progress=False)
