"""A backend for joblib: calls made under `joblib.parallel_config("gridengine")` run on a
scheduler's workers.

Importing this module registers the backend, which is the only way that joblib offers. joblib is not
installed with this package.

    import gridengine.joblib_backend
    with joblib.parallel_config("gridengine", scheduler=gridengine.GridEngineScheduler()):
        search.fit(X, y)
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import joblib
from joblib._parallel_backends import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
)

from gridengine.call_context.coroutines import synchronous
from gridengine.call_context.environment import own_variables, set_variables
from gridengine.call_context.process_resources import THREADS
from gridengine.calls.interface import WithoutSlot
from gridengine.client.connect import connect
from gridengine.client.options import CallOptions
from gridengine.client.submitter import Submitter
from gridengine.errors import ConfigurationError
from gridengine.schedulers.base import Scheduler, SchedulerSpec
from gridengine.serialize.argument_snapshot import HiddenArguments, given_words
from gridengine.serialize.exceptions import note_on
from gridengine.serialize.payload import FULL
from gridengine.serialize.unpicklable import name_of


class GridEngineBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs joblib's batches of calls on a scheduler's workers, which stay for the next ones.

    Args:
        scheduler: as in `Executor`; one that is made here is closed at the end of each `Parallel`
            call, or of its `with`.
        options: `retries`, `timeout` and the other options of `gridengine.map`, for each batch of
            calls that joblib makes. (joblib's own `timeout` is how long it waits.)
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    default_n_jobs = -1

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        *,
        scheduler: SchedulerSpec = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._place = scheduler
        self._made: Scheduler | None = None
        if "seed" in options:
            raise ConfigurationError(
                "joblib takes no seed=: it puts calls together by their duration",
                hint="give each call a number or a generator, as an argument",
            )
        self._options = CallOptions(**options)
        self._submitter: Submitter | None = None
        self._waiting = contextlib.ExitStack()
        self._runners: dict[str, functools.partial[Any]] = {}

    def _scheduler(self) -> Scheduler:
        if self._made is None:
            _, scheduler, ours = connect(self._place)
            if not ours:
                return scheduler
            self._made = scheduler
        return self._made

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls run at a time: -1 is as many as the scheduler's workers may, -2 one
        less, and so on.
        """
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        slots = connect(self._scheduler())[0].slots
        return min(n_jobs, slots) if n_jobs > 0 else max(slots + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **ignored: Any) -> int:
        """Prepare for a `Parallel`; return how many calls run at a time."""
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        jobs = self.effective_n_jobs(n_jobs)
        self._submitter = Submitter(
            self._scheduler(),
            None,
            initializer=None,
            options=self._options,
            most=jobs,
            daemon=True,
        )
        return jobs

    def submit(
        self, func: Any, callback: Callable[[Future[Any]], object] | None = None
    ) -> Future[Any]:
        """Submit a batch of calls, under the name of the first call's function."""
        assert self._submitter is not None
        name = name_of(func.items[0][0])
        run = self._runners.get(name)
        if run is None:
            threads = self.inner_max_num_threads
            batches = run_batch if threads is None else LimitedBatches(threads)
            run = self._runners[name] = functools.partial(batches)
            run.__qualname__ = name  # type: ignore[attr-defined]
        future = self._submitter.submit(run, (HiddenArguments([func]),), {})
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, future: Future[Any]) -> Any:
        """Return the results of a batch."""
        return future.result()

    def start_call(self) -> None:
        """Give back the slot of the call that submits these calls, if there is one: from here on
        joblib waits for them.
        """
        self._waiting.enter_context(WithoutSlot(connect(self._scheduler())[0].call_slot))

    def stop_call(self) -> None:
        """Take the slot again."""
        self._waiting.close()

    def terminate(self) -> None:
        """Release everything that was made for a `Parallel`."""
        self._let_go()
        if self._made is not None:
            self._made.close()
            self._made = None
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """End all batches, because one has failed."""
        if self._submitter is not None:
            self._submitter.batcher.kill_all()
        self._let_go()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)

    def _let_go(self) -> None:
        if self._submitter is not None:
            self._submitter.batcher.close(wait=False)
            self._submitter = None


class LimitedBatches:
    """Makes the calls of batches with a limit for the threads of BLAS, OpenMP and the like.
    Variables limit libraries that are loaded later; threadpoolctl, where it is installed, limits
    libraries that the process has loaded already.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._before: dict[bytes, bytes | None] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._set()  # here, so that it holds for modules that the first batch's arguments import

    def _set(self) -> None:
        names = list(map(os.fsencode, THREADS))
        self._before = {name: own_variables().get(name) for name in names}
        set_variables(dict.fromkeys(names, b"%d" % self.threads))

    def __call__(self, given: HiddenArguments) -> Any:
        if not self._before:
            self._set()
        try:
            with _limited_pools(self.threads):
                return run_batch(given)
        finally:
            set_variables(self._before)
            self._before = {}


def _limited_pools(threads: int) -> contextlib.AbstractContextManager[Any]:
    try:
        limits = importlib.import_module("threadpoolctl").threadpool_limits
    except ImportError:
        return contextlib.nullcontext()
    limited: contextlib.AbstractContextManager[Any] = limits(threads)
    return limited


def run_batch(given: HiddenArguments) -> Any:
    """Make the calls of a batch, on a worker. An exception gets a note that names its call."""
    [calls] = given
    noted = copy.copy(calls)
    noted.items = [(_noted, call, {}) for call in calls.items]
    return noted()


def _noted(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return synchronous(f)(*args, **kwargs)
    except BaseException as error:
        note_on(error, [f"the call of {name_of(f)}, {given_words((args, kwargs), FULL)}"])
        raise


joblib.register_parallel_backend("gridengine", GridEngineBackend)
