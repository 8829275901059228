"""Graphs on a batch system: handed in at once, computed by its workers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


def test_graphs_and_dasks_collections_are_computed_by_the_workers(cluster: Cluster) -> None:
    told = play(
        cluster,
        """
import concurrent.futures
import functools
import dask
import dask.array
import dask.bag

def node(*inputs):
    return [sum(value for value, _ in inputs) + 1, first_of(JOB)]

def invert(x):
    return 1 / x

def die(x):
    os.kill(os.getpid(), signal.SIGKILL)

def notes_of(future):
    try:
        future.result()
    except (gridengine.WorkerCrashed, concurrent.futures.CancelledError) as error:
        return [type(error).__name__, *error.__notes__]

with CLUSTER(max_workers=2) as scheduler:
    with gridengine.Executor(scheduler=scheduler) as executor:
        graph = {f"0-{n}": (node,) for n in range(8)}
        for layer in range(1, 10):
            for n in range(8):
                graph[f"{layer}-{n}"] = (node, f"{layer-1}-{n}", f"{layer-1}-{(n+1) % 8}")
        graph |= {"zero": 0, "bad": (invert, "zero"), "worse": [["bad"], "0-0"]}
        futures = executor.submit_graph(graph, [*(f"9-{n}" for n in range(8)), "worse"])
        *nodes, worse = futures
        values, jobs = zip(*(one.result() for one in nodes))
        error = facts_of(worse.result)
        graph = {"one": 1, "a": (abs, "one"), "died": (die, "a"), "b": (abs, "died")}
        [died] = executor.with_options(retries=0).submit_graph(graph, ["b"])
        waiting = executor.submit(abs, concurrent.futures.Future())
        cancelled = executor.submit(max, 1, waiting)
        waiting.cancel()
        ends = notes_of(died), notes_of(cancelled)
    get = functools.partial(gridengine.dask_get, scheduler=scheduler)
    x = dask.array.ones((300, 300), chunks=(100, 100))
    words = dask.bag.from_sequence("abcab", npartitions=3)
    with dask.config.set(scheduler=get):
        mean, counts = dask.compute((x @ x.T).mean(), words.frequencies())
        job = dask.delayed(first_of)(JOB).compute()
tell(
    values=values,
    jobs=[*jobs, job],
    error=error,
    ends=ends,
    mean=float(mean),
    counts=sorted(counts),
)
""",
    ).result()
    assert told["values"] == [2**10 - 1] * 8
    assert None not in told["jobs"]
    assert told["error"]["kind"] == "ZeroDivisionError"
    assert told["ends"] == [
        ["WorkerCrashed", "in node 'died'"],
        ["CancelledError", "the call of abs was cancelled, and with it max"],
    ]
    assert told["mean"] == 300
    assert told["counts"] == [["a", 2], ["b", 2], ["c", 1]]
