"""`Executor`: the `concurrent.futures.Executor` whose calls run on a scheduler's workers."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import logging
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

import msgspec

from gridengine.api.progress import ProgressSpec, check_progress, show_progress
from gridengine.arguments import flag
from gridengine.client.executor_lifetime import WithBlock
from gridengine.client.future import CallFuture
from gridengine.client.initializer import initializer_of
from gridengine.client.keywords_and_arguments import (
    SeededChanges,
    SeededKeywords,
    length_of,
    takes,
    zipped,
)
from gridengine.client.options import given, options_of
from gridengine.client.submitter import Submitter
from gridengine.errors import trimmed
from gridengine.schedulers.base import SchedulerSpec

T = TypeVar("T")

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    class AwaitableFuture(concurrent.futures.Future[T], Awaitable[T]):
        """The type of a `CallFuture`, for type checkers."""


log = logging.getLogger("gridengine")


class Executor(WithBlock, concurrent.futures.Executor):
    """Runs calls on a scheduler's workers, with the interface of `concurrent.futures`.

    Args:
        max_workers: how many calls run at a time. If it is given, a scheduler is made for this
            executor alone; a scheduler instance has its own limit.
        mp_context: accepted because `ProcessPoolExecutor` has it. It has no effect: workers start
            processes that inherit nothing, as with "spawn"; for "fork" a warning is logged.
        initializer, initargs: `initializer(*initargs)` is called once in each process that runs
            calls, before the first. If it raises, the calls of that process, and all later calls,
            fail with `concurrent.futures.process.BrokenProcessPool`.
        max_tasks_per_child: how many calls a process makes before another takes its place; None is
            no limit. Calls in this very process (`InlineScheduler`) have none.
        scheduler: an instance (left open at shutdown), or a class or callable that returns one
            (closed at shutdown); a name, such as "slurm", or None is as for `gridengine.map`.
        retries, timeout, retry_on, escalate_memory, resources, priority, forward_logging: as for
            `gridengine.map`; `with_options` sets others for some calls.
        seed: as for `gridengine.map`. Each `submit`, and each map, takes the next number, from 0:
            the call of submission 5 has the stream `SeedSequence(seed, spawn_key=(5,))`, call 2 of
            a map that is number 6 has `spawn_key=(6, 2)`. Graphs take no seed.
        progress: as for `gridengine.map`, for all calls of the executor together: a bar is shown
            while calls are open. A bar of your own is used for the executor's whole life.
        run: with `name="night"` the results are stored on disk, and calls that are submitted again
            are not run again, as for `gridengine.map`; `shutdown` releases the run for others.
        detach: inside a call: these calls do not end with the call that submits them. They are
            handed over as they are submitted, and nobody need wait for them.

    Raises:
        TypeError, ConfigurationError: an argument is of another type, or out of its range; or
        `max_workers` is given beside a scheduler instance, which has its own.
    """

    @takes(SeededKeywords)
    @trimmed
    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: BaseContext | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        scheduler: SchedulerSpec = None,
        progress: ProgressSpec = None,
        detach: bool = False,
        **keywords: Unpack[SeededKeywords],
    ) -> None:
        if mp_context is not None and mp_context.get_start_method() == "fork":
            log.warning("processes of a gridengine.Executor inherit nothing, as with 'spawn'")
        options, named_run = options_of(type(self), keywords)
        check_progress(progress)
        self._submitter = Submitter(
            scheduler,
            max_workers,
            initializer=initializer_of(
                initializer, initargs, max_tasks_per_child=max_tasks_per_child
            ),
            options=options,
            detach=flag("detach", detach),
            named_run=named_run,
        )
        self._lifetime = self._submitter.batcher
        show_progress(self._submitter, progress, "executor")
        self._max_workers = self._submitter.slots
        # When the executor is collected, submitted calls still run, and then its workers end.
        weakref.finalize(self, self._submitter.batcher.close, wait=False).atexit = False

    @overload
    def submit(
        self, fn: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any
    ) -> AwaitableFuture[T]: ...

    @overload
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> AwaitableFuture[T]: ...

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` on a worker, and return its future. If a part of the call
        cannot be pickled, the future has the exception. In a task of asyncio or trio, `await` the
        future: see `docs/async.md`.

        The function and the arguments are taken as they are now: later changes to them do not
        arrive. A future among the arguments, or inside one, stands for its result: the call is made
        when the result is there.

        Raises:
            RuntimeError: the executor was shut down, or is broken: its initializer has failed.
        """
        return self._submitter.submit(fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Return an iterator over the results of the calls, in order. Without `buffersize`, the
        iterables are read and the calls submitted at once; if the arguments have more than 256 MB,
        `map` returns when all but the last 256 MB of them have begun.

        Args:
            timeout: the seconds from now within which each result must be there.
            chunksize: how many calls travel together; None: the shorter the calls, the more. Each
                of them is still a call of its own.
            buffersize: how many calls are submitted whose results nobody has taken yet; the
                iterables are read as results are taken. Such calls travel as those of `submit` do.

        Raises:
            TypeError, ValueError: `buffersize` is neither None nor a whole number from 1 on.

        Raises, when its turn comes:
            TimeoutError: a result is not there in time.
            PicklingError: the function or an argument cannot be pickled.
            Exception: the exception of a call. The remaining calls are ended.
        """
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError(f"buffersize must be an integer or None, not {buffersize!r}")
        if buffersize is not None and buffersize < 1:
            raise ValueError(f"buffersize must be None or > 0, not {buffersize!r}")
        if not iterables:
            return iter(())
        until = None if timeout is None else time.monotonic() + timeout
        if buffersize is not None:
            given, numbers = zip(*iterables, strict=False), self._submitter.numbers_of_map()
            numbered = zip(given, numbers, strict=False)
            return self._map_buffered(fn, numbered, buffersize, until)
        form, calls = zipped(fn, iterables)
        run, _ = self._submitter.map(fn, form, calls, length_of(iterables), chunksize)
        return run.in_order(lambda: None if until is None else until - time.monotonic())

    def _map_buffered(
        self,
        fn: Callable[..., T],
        calls: Iterator[tuple[tuple[Any, ...], Any]],
        size: int,
        until: float | None,
    ) -> Iterator[T]:
        submit = functools.partial(self._submitter.submit, fn, kwargs={})
        submitted = (submit(args, number=number) for args, number in calls)
        futures = deque(itertools.islice(submitted, size))

        def results() -> Iterator[T]:
            try:
                while futures:
                    futures.extend(itertools.islice(submitted, 1))
                    futures[0].exception(None if until is None else until - time.monotonic())
                    yield futures.popleft().result()
            finally:
                for future in futures:
                    self.kill(future)

        return results()

    def submit_graph(
        self, graph: Mapping[Any, Any], keys: Iterable[Hashable], *, fuse: bool = True
    ) -> list[concurrent.futures.Future[Any]]:
        """Compute these keys of a graph, and return a future for each, in their order. All calls
        are handed in at once. Each begins when its inputs are there, without any help from this
        process.

            graph = {"a": 2, "b": (inc, "a"), "c": (sum, ["a", "b", 5])}
            [future] = executor.submit_graph(graph, ["c"])

        Args:
            graph: maps keys to data, to tasks, or to other keys. A task is a tuple that begins with
                a callable. Its arguments are keys, tasks, lists and tuples of these, or data. A
                string is always a key: a string that is data needs a key of its own. dask's nodes
                may stand for any of these.
            keys: the requested keys; one may occur twice. Calls that they do not need are not run.
            fuse: whether a call may be made together with the only call that needs it, if that one
                needs no other call: the two share a process, and are retried together. Calls that
                have a `timeout`, `WTime` or `retry_on` are never fused.

        An exception in a call is the outcome of each key that needs the call, and of no other key.
        When all remaining keys are cancelled, calls that have not begun are withdrawn.

        Raises:
            KeyError: a requested key, or one that a task needs, is not there.
            graphlib.CycleError: a node needs itself; its `args[1]` is the cycle.
            RuntimeError: as `submit`.
        """
        return [*self._submitter.submit_graph(graph, keys, strict=True, fuses=flag("fuse", fuse))]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. Once the calls have ended, end the workers that were started for this
        executor.

        Args:
            wait: return only when the calls have ended.
            cancel_futures: withdraw calls that have not begun.
        """
        wait, cancels = flag("wait", wait), flag("cancel_futures", cancel_futures)
        self._submitter.batcher.stop()
        if cancels:
            self._submitter.batcher.cancel_waiting()
        self._submitter.batcher.close(wait=wait)

    def terminate_workers(self) -> None:
        """Shut down at once, as `kill_workers` does: calls are killed, not asked to end."""
        self.kill_workers()

    def kill_workers(self) -> None:
        """Shut down at once: waiting calls are withdrawn, and running calls are killed. Their
        futures raise `Cancelled`.
        """
        self._submitter.batcher.kill_all()
        self.shutdown(wait=False)

    def kill(self, future: concurrent.futures.Future[Any]) -> bool:
        """End a call, even a running one: its future then has the exception `Cancelled`. Return
        False if the call had ended already.

        Raises:
            ValueError: the future is not of this executor.
        """
        if (
            not isinstance(future, CallFuture)
            or future.template.batcher is not self._submitter.batcher
        ):
            raise ValueError(f"{future!r} is not a future of this executor")
        return self._submitter.batcher.kill(future)

    @takes(SeededChanges, {})
    @trimmed
    def with_options(self, **options: Unpack[SeededChanges]) -> Self:
        """Return an executor with other options for its calls; it shares everything else with this
        one. Options that are not given stay. With another `seed`, its numbers begin at 0.
        """
        changed = given(Executor.with_options, options, SeededChanges)
        present = msgspec.structs.replace(self._submitter.options, **changed)
        other = object.__new__(type(self))
        # `_origin` keeps this executor alive as long as the other.
        vars(other).update(
            vars(self), _submitter=self._submitter.with_options(present), _origin=self
        )
        return other
