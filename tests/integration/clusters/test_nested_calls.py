"""Calls that make calls on a batch system: on the workers that there are, to any depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


def test_calls_make_calls_on_the_workers_that_run_them(cluster: Cluster) -> None:
    told = play(
        cluster,
        """
def levels(depth):
    jobs = {first_of(JOB)}
    if not depth:
        return 1, jobs
    counts, below = zip(*gridengine.map(levels, [depth - 1] * 2))
    return sum(counts) + 1, jobs.union(*below)

def fib(n):
    if n < 2:
        return n
    with gridengine.Executor() as executor:
        first, second = executor.submit(fib, n - 1), executor.submit(fib, n - 2)
        return first.result() + second.result()

def fails(x):
    return gridengine.map(invert, [x])

def invert(x):
    return 1 / x

with CLUSTER(max_workers=2) as scheduler:
    [(count, jobs)] = gridengine.map(levels, [5], scheduler=scheduler)
    [fibonacci] = gridengine.map(fib, [10], scheduler=scheduler)
    with gridengine.Executor(scheduler=scheduler) as executor:
        error = facts_of(executor.submit(fails, 0).result)
tell(count=count, jobs=sorted(map(str, jobs)), fibonacci=fibonacci, error=error)
""",
    ).result()
    assert told["count"] == 63
    assert "none" not in told["jobs"]
    assert 1 <= len(told["jobs"]) <= 2
    assert told["fibonacci"] == 55
    assert told["error"]["kind"] == "ZeroDivisionError"


def test_calls_of_another_request_have_workers_of_their_own_though_all_others_wait(
    cluster: Cluster,
) -> None:
    told = play(
        cluster,
        """
def outer(x):
    return gridengine.map(inner, [x, x + 1], resources=gridengine.WTime(600))

def inner(x):
    return x, first_of(JOB)

def own(x):
    return first_of(JOB)

with CLUSTER(max_workers=1) as scheduler:
    [mine] = gridengine.map(own, [0], scheduler=scheduler)
    told = gridengine.map(outer, range(4), scheduler=scheduler)
tell(values=[[x for x, _ in one] for one in told], mine=mine,
     jobs=sorted({job for one in told for _, job in one}))
""",
    ).result()
    assert told["values"] == [[x, x + 1] for x in range(4)]
    assert told["mine"] not in told["jobs"]
