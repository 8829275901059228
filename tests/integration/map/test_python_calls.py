"""How many Python calls one warm call takes, in the caller, the I/O thread and the runner together:
what a round trip costs beside the system's own share of it. And how many modules its reader passes.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine import Executor, ProcessScheduler
from tests.support.processes import completed

SCRIPT = Path(__file__).parents[2] / "support" / "python_calls.py"
MOST = {"map": 168, "submit": 166}
MODULES = {"map": 49, "submit": 47}
WAYS_BACK = {"map": 81, "submit": 79}
"""It took 150 and 146 to 151 when this was written, and some four more since it is counted how many
calls of each function wait and run. Two came when the state of a call got a class that needs no
msgspec, which a script then imports later, and the core a function for each of its steps. Two came
with a lock that forks take, two when one function alone said which workers are given calls, and
four of a map with seeds, generators and a queue that can be closed. Where calls are long in coming
back, as under load, each thread takes a few more. The call ran through 48 and 46 modules of the
package, and came back to one that it had left 77 and 75 times.
"""
RUNS = 8
CALLS = 300


def measured() -> Iterator[tuple[str, dict[str, int]]]:
    """Yield for each way to call the least number of Python calls by thread."""
    done = completed([sys.executable, SCRIPT], check=True)
    for line in done.stdout.splitlines():
        yield from json.loads(line).items()


def test_one_warm_call_takes_no_more_python_calls_and_modules_than_it_did() -> None:
    taken: dict[str, dict[str, int]] = {}
    for _ in range(RUNS):  # the least of several: a busy machine has quiet moments
        for name, calls in measured():
            known = taken.setdefault(name, calls)
            taken[name] = {thread: min(count, known[thread]) for thread, count in calls.items()}
        above = {name for name, least in taken.items() if takes_more(name, **least)}
        if not above:
            break
    assert taken.keys() == MOST.keys()
    assert above == set(), taken


def takes_more(name: str, *, modules: int, ways_back: int, **calls: int) -> bool:
    """Return whether a call takes more than it may."""
    return (
        sum(calls.values()) > MOST[name] or modules > MODULES[name] or ways_back > WAYS_BACK[name]
    )


def sleeps(value: int) -> int:
    """Return how often this process has slept so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


@pytest.mark.linux
def test_a_runner_sleeps_once_for_each_call() -> None:
    with ProcessScheduler(1) as scheduler, Executor(scheduler=scheduler) as executor:
        counts = [executor.submit(sleeps, number).result() for number in range(CALLS)]
    assert counts[-1] - counts[0] < 1.2 * CALLS
