"""`Pool`: the methods of `multiprocessing.Pool`, for code that wants a pool."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from multiprocessing import TimeoutError
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from gridengine.api.map_results import ResultIterator
from gridengine.api.progress import ProgressSpec, check_progress, show_progress
from gridengine.calls.interface import Dispatcher
from gridengine.client.dependencies import Found, pickled
from gridengine.client.future import CallFuture, CallSource, call_safely
from gridengine.client.initializer import initializer_of
from gridengine.client.keywords_and_arguments import (
    SeededKeywords,
    argument_tuples,
    length_of,
    takes,
    zipped,
)
from gridengine.client.map_run import MapRun
from gridengine.client.options import options_of
from gridengine.client.submitter import Submitter
from gridengine.errors import trim, trimmed
from gridengine.requests import ResultData
from gridengine.schedulers.base import SchedulerSpec
from gridengine.serialize.payload import SINGLE, STAR
from gridengine.serialize.references import Reference, ResultHolder
from gridengine.threads import LiveObjects, in_pieces

T = TypeVar("T")
Callback = Callable[[Any], object]


class Pool:
    """Runs calls on a scheduler's workers, with the methods of `multiprocessing.Pool`.

    Running calls end when its `with` is left and at the interpreter's exit, as with
    `multiprocessing.Pool`. Processes inherit nothing: no memory, no locks.

    Args:
        processes: how many calls run at a time. If it is given, a scheduler is made for this pool
            alone.
        initializer, initargs: as in `Executor`.
        maxtasksperchild: how many calls a process makes before another takes its place, as
            `max_tasks_per_child` of `Executor`.
        scheduler: as in `Executor`: an instance (left open), a callable that returns one, a name,
            such as "slurm", or None.
        retries, timeout, retry_on, escalate_memory, resources, priority, forward_logging: as for
            `gridengine.map`.
        seed: as for `Executor`.
        progress: as for `Executor`; each iterator of `imap` has a bar of its own.
        run: with `name="night"` results are stored on disk, as for `Executor`.
    """

    @takes(SeededKeywords)
    @trimmed
    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        *,
        scheduler: SchedulerSpec = None,
        progress: ProgressSpec = None,
        **keywords: Unpack[SeededKeywords],
    ) -> None:
        if not isinstance(maxtasksperchild, int | None):
            raise ValueError(f"maxtasksperchild must be a whole number, not {maxtasksperchild!r}")
        options, named_run = options_of(type(self), keywords)
        check_progress(progress)
        self._submitter = Submitter(
            scheduler,
            processes,
            initializer=initializer_of(initializer, initargs, maxtasksperchild=maxtasksperchild),
            options=options,
            daemon=True,
            word="processes",
            named_run=named_run,
        )
        show_progress(self._submitter, progress, "pool")
        self._iterators = LiveObjects[PoolIterator[Any]]()
        self._progress = progress
        self._closed = False
        weakref.finalize(self, self._submitter.batcher.close, wait=False).atexit = False

    # ---------------------------------------------------------------- calls

    @trimmed
    def apply(
        self,
        func: Callable[..., T],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
    ) -> T:
        """Return `func(*args, **kwds)`, called by a worker."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., T],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult[T]:
        """Call `func(*args, **kwds)` on a worker. `callback` gets the result, or `error_callback`
        the exception, in a thread of this process.
        """
        self._check_running()
        return AsyncResult(
            self._submitter.submit(func, tuple(args), dict(kwds) if kwds else {}),
            callback,
            error_callback,
        )

    @trimmed
    def map(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int | None = None
    ) -> list[T]:
        """Return `[func(x) for x in iterable]`, or raise the exception of the first failed call."""
        return self.map_async(func, iterable, chunksize).get()

    @trimmed
    def starmap(
        self,
        func: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
    ) -> list[T]:
        """Return `[func(*args) for args in iterable]`; all else is as for `map`."""
        return self.starmap_async(func, iterable, chunksize).get()

    def map_async(
        self,
        func: Callable[[Any], T],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> MapResult[T]:
        """Return at once an object that gives the list of results later. If the arguments have more
        than 256 MB, this returns when all but the last 256 MB of them have begun.
        """
        self._check_running()
        run, end = self._submitter.map(
            func, SINGLE, iter(iterable), length_of([iterable]), chunksize
        )
        return MapResult(run, end, callback, error_callback)

    def starmap_async(
        self,
        func: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> MapResult[T]:
        """The same as `map_async`, but for `starmap`."""
        self._check_running()
        calls, total = argument_tuples(iterable), length_of([iterable])
        run, end = self._submitter.map(func, STAR, calls, total, chunksize)
        return MapResult(run, end, callback, error_callback)

    def imap(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int = 1
    ) -> PoolIterator[T]:
        """Return an iterator over the results in order, each as soon as it is there. Arguments are
        taken as results are, some ahead.
        """
        return self._imap(func, iterable, chunksize, ordered=True)

    @overload
    def imap_unordered(
        self,
        func: Callable[[Any], T],
        iterable: Iterable[Any],
        chunksize: int = 1,
        *,
        with_index: Literal[True],
    ) -> PoolIterator[tuple[int, T]]: ...

    @overload
    def imap_unordered(
        self,
        func: Callable[[Any], T],
        iterable: Iterable[Any],
        chunksize: int = 1,
        *,
        with_index: Literal[False] = False,
    ) -> PoolIterator[T]: ...

    def imap_unordered(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int = 1,
        *,
        with_index: bool = False,
    ) -> PoolIterator[Any]:
        """Return an iterator over the results in the order in which they come; with `with_index`,
        over `(number of the call, result)`.
        """
        return self._imap(func, iterable, chunksize, ordered=False, with_index=with_index)

    def _imap(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int, **how: bool
    ) -> PoolIterator[T]:
        self._check_running()
        form, calls = zipped(func, [iterable])
        made: PoolIterator[T] = PoolIterator(
            self,
            self._submitter.request(func, form, chunksize),
            calls,
            total=length_of([iterable]),
            progress=self._progress,
            **how,
        )
        self._iterators.add(made)
        return made

    # ---------------------------------------------------------------- ends

    def close(self) -> None:
        """Take no more calls."""
        self._closed = True

    def terminate(self) -> None:
        """End all calls, even running ones, and the workers that were started for this pool."""
        self._closed = True
        for iterator in self._iterators:
            iterator.abort()
        self._submitter.batcher.kill_all()
        self._submitter.batcher.close(wait=True)

    @trimmed
    def join(self) -> None:
        """Wait until all calls have ended, and end the workers that were started for this pool.

        Raises:
            ValueError: the pool was neither closed nor terminated.
        """
        if not self._closed:
            raise ValueError("Pool is still running")
        for iterator in self._iterators:
            iterator.finish()
        self._submitter.batcher.close(wait=True)

    def _check_running(self) -> None:
        if self._closed:
            raise ValueError("Pool not running")

    def __enter__(self) -> Self:
        self._check_running()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.terminate()


class AsyncResult(Generic[T], ResultHolder):
    """The outcome of an `apply_async`. As in `multiprocessing`, waiting ends only once its callback
    has returned.
    """

    # Slots, because there may be very many.
    __slots__ = ("__weakref__", "_batcher", "_callback", "_error_callback", "_future", "_returned")

    def __init__(
        self, future: CallFuture, callback: Callback | None, error_callback: Callback | None
    ) -> None:
        self._future = future
        self._batcher = future.template.batcher
        self._callback, self._error_callback = callback, error_callback
        self._returned: threading.Event | None = None
        if callback is not None or error_callback is not None:
            self._returned = threading.Event()
            # The future keeps its callbacks for ever: `pop` frees this object once it is called.
            call = [functools.partial(call_safely, self._call_back, future, BaseException)]
            batcher = self._batcher
            future.add_done_callback(lambda _: batcher.call_back(call.pop()))

    def _call_back(self, _: object) -> None:
        """Call the callback that fits the outcome."""
        assert self._returned is not None
        try:
            value, error = self._outcome()
            if error is None and self._callback is not None:
                self._callback(value)
            elif error is not None and self._error_callback is not None:
                self._error_callback(error)
        finally:
            self._returned.set()

    def _has_returned(self, timeout: float | None) -> bool:
        """Wait until the callback has returned; return whether it has within `timeout` seconds. In
        a callback itself, return True at once.
        """
        return (
            self._returned is None
            or self._batcher.is_callback_thread()
            or in_pieces(self._returned.wait, timeout)
        )

    def _outcome(self) -> tuple[Any, BaseException | None]:
        """Return the result, and the error, of an ended call."""
        error = self._future.exception()
        return (self._future.result() if error is None else None), error

    def _await(self, timeout: float | None) -> bool:
        return self._future.await_end(timeout)

    def _find_source(self) -> Found:
        return self._future, CallSource(self._future)

    def get(self, timeout: float | None = None) -> T:
        """Return the result, or raise the call's exception.

        Raises:
            multiprocessing.TimeoutError: the call has not ended within `timeout` seconds.
        """
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        value, error = self._outcome()
        if error is None:
            return value  # type: ignore[no-any-return]
        try:
            raise error.with_traceback(None)  # drop the traceback of an earlier `get`
        except BaseException as raised:
            trim(raised)
            raise
        finally:
            self = error = None  # type: ignore[assignment]  # the traceback would hold them, and they the exception

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in a task of asyncio or trio for the same value as `get` returns. When the task is
        cancelled, a call that has not begun is withdrawn.
        """
        yield from self._ended().__await__()
        return self.get()

    async def _ended(self) -> None:
        if not self._future.done():
            await self._future.ended()
        while not self._has_returned(0):
            from gridengine.client.loop_tasks import task_waiter

            waiter = task_waiter()
            self._batcher.call_back(waiter.release)  # runs after this result's own callback
            await waiter.wait()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the call has ended, up to `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        if self._await(timeout):
            self._has_returned(None if until is None else max(0.0, until - time.monotonic()))

    def ready(self) -> bool:
        """Return whether the call has ended."""
        return self._future.done() and self._has_returned(0)

    def successful(self) -> bool:
        """Return whether the call has ended without an exception.

        Raises:
            ValueError: the call has not ended.
        """
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._outcome()[1] is None


class MapResult(AsyncResult[list[T]]):
    """The outcome of a `map_async`: an `AsyncResult` of a list, once all calls have ended.

    Args:
        run: collects the results.
        end: a future that is done once all calls have ended.
    """

    def __init__(
        self,
        run: MapRun,
        end: CallFuture,
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> None:
        self._run = run
        self._reading = threading.Lock()
        if not run.results.values:  # as in `multiprocessing`
            callback = error_callback = None
        super().__init__(end, callback, error_callback)

    def _await(self, timeout: float | None) -> bool:
        """Wait for the end. A thread that waits without a limit reads the results as they come."""
        if timeout is None and not self._future.done() and self._reading.acquire(blocking=False):
            try:
                while self._run.results.missing:
                    self._run.take(None)
            finally:
                self._reading.release()
        return super()._await(timeout)

    def _outcome(self) -> tuple[Any, BaseException | None]:
        """Return the values or first error of calls that have all ended; a Ctrl-C loses nothing."""
        results = self._run.results
        with self._reading:
            while results.missing:
                self._run.take(None)
            if results.first_error is None:
                return results.values, None
            results.values = []
            return None, results.errors[results.first_error]

    def _find_source(self) -> Found:
        return self._future, MapSource(self)


class MapSource(CallSource):
    """The list of a `map_async` that other calls need. Its results are here, unpickled."""

    def __init__(self, result: MapResult[Any]) -> None:
        super().__init__(result._future)
        self._result = result

    def bind_reference(self, reference: Reference, dispatcher: Dispatcher) -> bool:
        """Return False: no dispatcher makes this list."""
        return False

    def data(self) -> ResultData:
        value, error = self._result._outcome()
        return pickled(value, error, self._future.template.function.name)


class PoolIterator(ResultIterator[T]):
    """The iterator that `imap` returns; may be used from several threads. It keeps its pool, whose
    processes end with it.
    """

    def __init__(self, pool: Pool, *arguments: Any, **options: Any) -> None:
        self._pool = pool
        self._taking = threading.RLock()
        super().__init__(*arguments, **options)

    def __next__(self) -> T:
        try:
            with self._taking:
                return super().__next__()
        except BaseException as error:
            trim(error)
            raise

    @trimmed
    def next(self, timeout: float | None = None) -> T:
        """Return the next result.

        Raises:
            multiprocessing.TimeoutError: it is not there within `timeout` seconds.
        """
        with self._taking:
            until = time.monotonic() + (timeout or 0.0)
            while timeout is not None and self._or_close(self._fill) and not self._has_next():
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                most = min(left, self._submission.wait_seconds() or left)
                self._or_close(functools.partial(self._take, most))
            return super().__next__()

    def _next_block(self) -> list[Any]:
        """Take the next arguments. Those of a chunk that the iterable does not fill, because it
        raises, are dropped, as `multiprocessing` does.
        """
        block = super()._next_block()
        if block and self._fault is not None:
            self._submission.note_all_sent()
            return []
        return block

    def finish(self) -> None:
        """Submit the remaining arguments, and wait for all results, which stay until they are
        taken.
        """
        with self._taking:
            while not self._closed and (block := self._next_block()):
                self._submit(block)
                while not self._submission.has_room():
                    self._take(self._submission.wait_seconds())
            while self._given + len(self._ready) < self._submitted:
                self._take(None)

    def abort(self) -> None:
        """End the calls with `Cancelled`, even if a thread waits for one of them."""
        self._closed = True
        self._submission.cancel_after(-1)
