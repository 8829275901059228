"""`dask_get`: a scheduler for dask whose tasks run on this package's workers."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from gridengine.api.progress import ProgressSpec, check_progress, show_progress
from gridengine.arguments import Seconds
from gridengine.client.keywords_and_arguments import Raisable, unexpected_keyword
from gridengine.client.options import CallOptions
from gridengine.client.submitter import Submitter
from gridengine.resources.base import Resource
from gridengine.schedulers.base import SchedulerSpec

OF_OTHERS = frozenset(
    [
        "cache",
        "callbacks",
        "chunksize",
        "dumps",
        "func_dumps",
        "func_loads",
        "get_id",
        "initializer",
        "loads",
        "num_workers",
        "optimize_graph",
        "pack_exception",
        "pool",
        "raise_exception",
        "rerun_exceptions_locally",
    ]
)
"""Keywords of `dask.threaded.get`, `dask.multiprocessing.get` and `dask.local.get_async`, which
`compute` passes on to any scheduler.
"""


def dask_get(
    dsk: Any,
    keys: Any,
    *,
    scheduler: SchedulerSpec = None,
    retries: int = 2,
    timeout: Seconds | None = None,
    retry_on: Raisable = (),
    escalate_memory: float = 1,
    resources: Resource | None = None,
    priority: int = 0,
    forward_logging: bool | None = None,
    progress: ProgressSpec = None,
    **ignored: object,
) -> Any:
    """Compute keys of a dask graph on a scheduler's workers. The whole graph is handed in at once.

        dask.compute(x, scheduler=gridengine.dask_get, resources=gridengine.Memory(2))
        dask.config.set(scheduler=functools.partial(gridengine.dask_get, scheduler="slurm"))

    Args:
        dsk: a graph, or an object that dask makes one of.
        keys: a key, or a list of keys and lists of such.
        scheduler, retries, timeout, retry_on, escalate_memory, resources, priority,
            forward_logging, progress: as for `gridengine.map`, for each of its tasks. Give
            `scheduler` by `functools.partial`, because `dask.compute` uses that keyword for this
            function.
        ignored: keywords of dask's own schedulers, such as `num_workers`, which have no effect
            here.

    Returns: the value of the key; for a list, a tuple of its members' values.

    Raises:
        TypeError: there is no such keyword, neither here nor in dask's own schedulers.
        KeyError: there is no such key.
        Exception: the exception of a task. The remaining tasks are ended.
    """
    for name in ignored.keys() - OF_OTHERS:
        own = dask_get.__kwdefaults__ or {}
        raise unexpected_keyword("dask_get", name, own, f"it takes {', '.join(own)}")
    graph = dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__()
    options = CallOptions(
        retries=retries,
        timeout=timeout,
        retry_on=retry_on,
        escalate_memory=escalate_memory,
        resources=resources,
        priority=priority,
        forward_logging=forward_logging,
    )
    check_progress(progress)
    submitter = Submitter(scheduler, None, initializer=None, options=options)
    show_progress(submitter, progress, "dask")
    wanted = list(_flat(keys))
    try:
        futures = submitter.submit_graph(graph, wanted, strict=False, fuses=True)
        concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
        for future in futures:
            if future.done():
                future.result()
        values = {key: future.result() for key, future in zip(wanted, futures, strict=True)}
    except BaseException:
        submitter.batcher.kill_all()
        raise
    finally:
        submitter.batcher.close(wait=False)
    return _in_place(keys, values)


def _flat(keys: Any) -> Iterator[Hashable]:
    if isinstance(keys, list):
        for one in keys:
            yield from _flat(one)
    else:
        yield keys


def _in_place(keys: Any, values: Mapping[Any, Any]) -> Any:
    if isinstance(keys, list):
        return tuple(_in_place(one, values) for one in keys)
    return values[keys]
