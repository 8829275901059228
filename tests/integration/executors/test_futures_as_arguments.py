"""Calls that are given futures, on workers of this machine."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import gridengine
from tests.integration.conftest import MakeScript
from tests.support.waiting import wait_until

LINKS, LINK_BYTES = 2000, 1_100_000
QUICK_LINKS = 400


def first(x: Any, *more: Any) -> Any:
    return x


def add(*numbers: int) -> int:
    return sum(numbers)


def after(path: Path, value: Any = None) -> Any:
    wait_until(path.exists)
    return value


def count(path: Path, act: str, number: int) -> int:
    """Return the next number; at the middle of a chain something happens, once."""
    if number == QUICK_LINKS // 2 and not path.exists():
        path.touch()
        if act == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("the middle")
    return number + 1


@pytest.mark.promise
def test_futures_jobs_and_pool_results_are_arguments_of_each_interface(
    scheduler: gridengine.ProcessScheduler, executor: gridengine.Executor, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    future = executor.submit(after, go, 1)
    pool = gridengine.Pool(scheduler=scheduler)
    single = pool.apply_async(add, (future, 1))
    several = pool.starmap_async(add, [(single, 1), (10, 1)])
    job = gridengine.Job(target=add, args=(future,), kwargs={}, scheduler=scheduler)
    job.start()
    last = gridengine.Job(target=first, args=([future, single, several, job],), scheduler=scheduler)
    last.start()
    mapped = executor.map(add, [future, 5, single])
    go.touch()
    assert last.result() == [1, 2, [3, 11], 1]
    assert list(mapped) == [1, 5, 2]
    assert gridengine.map(add, [job, several, 3], [1, [], 0], scheduler=scheduler, reraise=False)[
        ::2
    ] == [2, 3]
    pool.terminate()


CHAIN = """
    import json, os, resource, sys, time
    from pathlib import Path
    import numpy

    LINKS, SIZE = int(sys.argv[1]), int(sys.argv[2])

    def grow(array):
        return array + 1

    def peak_memory(array=None):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return peak if array is None else (float(array[0]), peak)

    def blocks():
        found = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.exists()]
        return sum("gridengine-block" in one for one in found)

    with gridengine.ProcessScheduler(1) as scheduler:
        executor = gridengine.Executor(scheduler=scheduler)
        before = executor.submit(peak_memory, numpy.zeros(SIZE)).result()
        here = peak_memory()
        last = executor.submit(numpy.zeros, SIZE)
        for _ in range(LINKS):
            last = executor.submit(grow, last)
        count, peak = executor.submit(peak_memory, last).result()
        facts = dict(count=count, worker=peak - before[1], caller=peak_memory() - here)
        facts["blocks"] = blocks()
        del last
        state = executor._submitter.batcher.dispatcher._core.state
        while state.awaited:
            time.sleep(0.01)
        print(json.dumps(facts))
"""


def test_unneeded_results_of_a_long_chain_are_freed(script: MakeScript) -> None:
    made = script(CHAIN)
    made.command.extend([str(LINKS), str(LINK_BYTES // 8)])
    done = made.run(seconds=280)
    assert done.stderr == ""
    facts = json.loads(done.stdout)
    assert facts["count"] == LINKS
    most = LINKS * LINK_BYTES / 10  # where all is kept it is ten times that
    assert {name: facts[name] for name in ("caller", "worker") if facts[name] > most} == {}
    assert facts["blocks"] < 10


HELD = """
    import os
    from pathlib import Path
    import numpy

    with gridengine.Executor(max_workers=1) as executor:
        tables = [executor.submit(numpy.ones, 150_000) for _ in range(300)]
        sums = [executor.submit(numpy.sum, table) for table in tables]
        assert [one.result() for one in sums] == [150_000] * 300
        found = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.exists()]
        print(sum("gridengine-block" in one for one in found))
"""


def test_large_results_that_are_held_do_not_use_up_the_descriptors(script: MakeScript) -> None:
    done = script(HELD).run()
    assert done.stderr == ""
    assert int(done.stdout) < 280
