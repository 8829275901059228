"""Our classes in the place of the standard library's, on processes of this machine: a shim of
signatures, and of nothing else.
"""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import re
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any

import gridengine

WORKERS = 8
ROOT = Path(__file__).parents[2]


class ProcessPoolExecutor(gridengine.Executor):
    """`gridengine.Executor`, with the signature of `concurrent.futures.ProcessPoolExecutor`. How
    processes are started is ours to say.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: object = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        **options: Any,
    ) -> None:
        super().__init__(
            scheduler=gridengine.ProcessScheduler,
            max_workers=max_workers,
            initializer=initializer,
            initargs=initargs,
            **options,
        )


class Pool(gridengine.Pool):
    """`gridengine.Pool` on this machine's processes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, scheduler=gridengine.ProcessScheduler)


@functools.cache
def scheduler() -> gridengine.ProcessScheduler:
    """Return what runs all processes of this one."""
    return gridengine.ProcessScheduler(WORKERS)


class Process(gridengine.Job):
    """`gridengine.Job` on this machine's processes."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        super().__init__(group, target, name, args, kwargs, daemon=daemon, scheduler=scheduler())


@functools.cache
def manager() -> SyncManager:
    """Return the process that holds what jobs share."""
    return multiprocessing.Manager()


def from_manager(name: str) -> Callable[..., Any]:
    """Return what makes a lock, a queue and the like that jobs can share."""
    return lambda *arguments, **options: getattr(manager(), name)(*arguments, **options)


def install() -> None:
    """Have this process, a script's, find ours by the standard library's names."""
    vars(concurrent.futures)["ProcessPoolExecutor"] = ProcessPoolExecutor
    vars(multiprocessing)["Pool"] = Pool


def run_with_ours(flag: str, code: str) -> tuple[int, bytes, bytes]:
    """Run `python -c code` as `assert_python_ok` does, with ours in the standard library's
    place.
    """
    from test.support import script_helper

    code = re.sub(r"test\.test_concurrent_futures(\.\w+)?", "tests.conformance.futures_suite", code)
    begin = "from tests.conformance import standard; standard.install()\n"
    done: tuple[int, bytes, bytes] = script_helper.assert_python_ok(
        flag, begin + code, PYTHONPATH=str(ROOT)
    )
    return done
