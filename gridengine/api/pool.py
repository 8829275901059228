"""`Pool`: the methods of `multiprocessing.Pool`, for code that wants a pool."""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import TimeoutError
from typing import Any, Generic, Self, TypeVar

from gridengine.api.map_results import ResultIterator
from gridengine.client.chunking import length_of, zipped
from gridengine.client.future import CallFuture, ChunkFuture, call_safely
from gridengine.client.initializer import initial_of
from gridengine.client.options import CallOptions, Raisable
from gridengine.client.submitter import Submitter
from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.schedulers.base import SchedulerSpec
from gridengine.serialize.payload import SINGLE, STAR

T = TypeVar("T")
Callback = Callable[[Any], object]
Outcome = Callable[[], tuple[Any, BaseException | None]]
log = logging.getLogger("gridengine")


class Pool:
    """Runs calls on a scheduler's workers, with the methods of `multiprocessing.Pool`.

    Leaving its `with`, or the interpreter's exit, ends what still runs, as there. Nothing is
    inherited: no memory, no locks.

    Args:
        processes: how many calls run at a time. With it a scheduler is made for this pool alone.
        initializer, initargs: as in `Executor`.
        maxtasksperchild: has no effect; a process that runs calls is kept, and replaced when it
            dies.
        scheduler: as in `Executor`: an instance (left open), or what gives one; None is the
            process's own.
        retries, timeout, retry_on, escalate_memory, resources: as for `gridengine.map`.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        *,
        scheduler: SchedulerSpec = None,
        retries: int = 2,
        timeout: float | None = None,
        retry_on: Raisable = (),
        escalate_memory: float = 1,
        resources: Resource | None = None,
    ) -> None:
        if maxtasksperchild is not None:
            if not isinstance(maxtasksperchild, int) or maxtasksperchild < 1:
                raise ConfigurationError(
                    "maxtasksperchild must be a positive whole number or None, not "
                    f"{maxtasksperchild!r}"
                )
            log.warning("maxtasksperchild=%r has no effect on a gridengine.Pool", maxtasksperchild)
        limits = CallOptions(retries, timeout, retry_on, escalate_memory, resources)
        self._line = Submitter(
            scheduler,
            processes,
            initial=initial_of(initializer, initargs),
            limits=limits,
            daemon=True,
        )
        self._iterators: weakref.WeakSet[PoolIterator[Any]] = weakref.WeakSet()
        self._closed = False
        weakref.finalize(self, self._line.batcher.close, wait=False).atexit = False

    # ---------------------------------------------------------------- calls

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
        """Have `func(*args, **kwds)` called. A callback gets its result, or the other its
        exception, in a thread of this process.
        """
        self._check_running()
        return AsyncResult(
            self._line.submit(func, tuple(args), dict(kwds) if kwds else {}),
            callback,
            error_callback,
        )

    def map(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int | None = None
    ) -> list[T]:
        """Return `[func(x) for x in iterable]`, or raise what the first call that failed raised."""
        return self.map_async(func, iterable, chunksize).get()

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
        """Return at once what gives the list of results later."""
        self._check_running()
        stretches = self._line.stretches(
            func, SINGLE, iter(iterable), length_of([iterable]), chunksize
        )
        return MapResult(stretches, callback, error_callback)

    def starmap_async(
        self,
        func: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> MapResult[T]:
        """As `map_async`, for `starmap`."""
        self._check_running()
        calls = (tuple(arguments) for arguments in iterable)
        stretches = self._line.stretches(func, STAR, calls, length_of([iterable]), chunksize)
        return MapResult(stretches, callback, error_callback)

    def imap(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int = 1
    ) -> PoolIterator[T]:
        """Return an iterator over the results in order, each as soon as it is there. Arguments are
        taken as results are, some ahead.
        """
        return self._imap(func, iterable, chunksize, ordered=True)

    def imap_unordered(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int = 1
    ) -> PoolIterator[T]:
        """As `imap`, in the order in which results come."""
        return self._imap(func, iterable, chunksize, ordered=False)

    def _imap(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int, *, ordered: bool
    ) -> PoolIterator[T]:
        self._check_running()
        form, calls = zipped(func, [iterable])
        made: PoolIterator[T] = PoolIterator(
            self._line.plan(func, form, chunksize), calls, ordered=ordered
        )
        self._iterators.add(made)
        return made

    # ---------------------------------------------------------------- ends

    def close(self) -> None:
        """Take no more calls."""
        self._closed = True

    def terminate(self) -> None:
        """End all calls, also those that run, and the workers that were started for this pool."""
        self._closed = True
        for iterator in list(self._iterators):
            iterator.abort()
        self._line.batcher.kill_all()
        self._line.batcher.close(wait=True)

    def join(self) -> None:
        """Wait until all calls have ended, and end the workers that were started for this pool.

        Raises:
            ValueError: the pool was neither closed nor terminated.
        """
        if not self._closed:
            raise ValueError("Pool is still running")
        for iterator in list(self._iterators):
            iterator.finish()
        self._line.batcher.close(wait=True)

    def _check_running(self) -> None:
        if self._closed:
            raise ValueError("Pool not running")

    def __enter__(self) -> Self:
        self._check_running()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.terminate()


class AsyncResult(Generic[T]):
    """What becomes of an `apply_async`. As in `multiprocessing`, it is there for those who wait
    once its callback has returned.
    """

    def __init__(
        self, promise: CallFuture, callback: Callback | None, error_callback: Callback | None
    ) -> None:
        self._promise = promise
        self._callbacks = callbacks_of([promise], self._outcome, callback, error_callback)

    def _outcome(self) -> tuple[Any, BaseException | None]:
        error = self._promise.exception()
        return (self._promise.result() if error is None else None), error

    def _await(self, timeout: float | None) -> bool:
        return self._promise.await_end(timeout)

    def get(self, timeout: float | None = None) -> T:
        """Return the result, or raise what the call raised.

        Raises:
            multiprocessing.TimeoutError: it has not ended within `timeout` seconds.
        """
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        value, error = self._outcome()
        if error is None:
            return value  # type: ignore[no-any-return]
        try:
            raise error
        finally:
            self = error = None  # type: ignore[assignment]  # the traceback would hold them, and they the exception

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end, up to `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        if self._await(timeout) and self._callbacks is not None:
            self._callbacks.wait(None if until is None else max(0.0, until - time.monotonic()))

    def ready(self) -> bool:
        """Return whether it has ended."""
        return self._done() and (self._callbacks is None or self._callbacks.wait(0))

    def _done(self) -> bool:
        return self._promise.done()

    def successful(self) -> bool:
        """Return whether it has ended without an exception.

        Raises:
            ValueError: it has not ended.
        """
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._outcome()[1] is None


class MapResult(AsyncResult[list[T]]):
    """What becomes of a `map_async`: as an `AsyncResult`, of a list, once all calls have ended."""

    def __init__(
        self,
        stretches: list[ChunkFuture],
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> None:
        self._stretches = stretches[::-1]
        self._reading = threading.Lock()
        self._values: list[T | None] = [None] * sum(stretch.count for stretch in stretches)
        self._error: BaseException | None = None
        self._callbacks = callbacks_of(stretches, self._outcome, callback, error_callback)

    def _outcome(self) -> tuple[Any, BaseException | None]:
        """Return the values, or the first error, of calls that have all ended. A Ctrl-C meanwhile
        loses nothing.
        """
        with self._reading:
            while self._stretches and self._error is None:
                self._read(self._stretches[-1])
                self._stretches.pop()
            if self._error is not None:
                self._stretches, self._values = [], []
            return self._values, self._error

    def _read(self, stretch: ChunkFuture) -> None:
        while stretch.taken < stretch.count:
            piece = stretch.piece(stretch.taken, None)
            if piece.error is not None:
                self._error = piece.error
                return
            self._values[stretch.first + piece.start : stretch.first + piece.stop] = piece.values
            stretch.take(piece)

    def _await(self, timeout: float | None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        return all(
            stretch.await_end(None if until is None else until - time.monotonic())
            for stretch in self._stretches
        )

    def _done(self) -> bool:
        return all(stretch.done() for stretch in self._stretches)


class Callbacks:
    """The callbacks of a result: the one that fits is called once the last of its promises has
    ended.
    """

    def __init__(
        self,
        promises: Sequence[CallFuture],
        outcome: Outcome,
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> None:
        self._outcome = outcome
        self._callbacks = callback, error_callback
        self._batcher = promises[0].home
        self._left = itertools.count(len(promises) - 1, -1)
        self._returned = threading.Event()
        for promise in promises:
            promise.add_done_callback(self._ended)  # type: ignore[arg-type]

    def _ended(self, promise: CallFuture) -> None:
        if not next(self._left):
            self._batcher.call_back(
                functools.partial(call_safely, self._call, promise, BaseException)
            )

    def _call(self, _: object) -> None:
        try:
            value, error = self._outcome()
            callback, error_callback = self._callbacks
            if error is None and callback is not None:
                callback(value)
            elif error is not None and error_callback is not None:
                error_callback(error)
        finally:
            self._returned.set()

    def wait(self, timeout: float | None) -> bool:
        """Wait until it has returned; return whether it has within `timeout` seconds. A callback
        itself waits for none.
        """
        return self._batcher.calls_back_here() or self._returned.wait(timeout)


def callbacks_of(
    promises: Sequence[CallFuture],
    outcome: Outcome,
    callback: Callback | None,
    error_callback: Callback | None,
) -> Callbacks | None:
    """Have the callback called that fits; None when there is none, or nothing to wait for."""
    given = promises and (callback is not None or error_callback is not None)
    return Callbacks(promises, outcome, callback, error_callback) if given else None


class PoolIterator(ResultIterator[T]):
    """The iterator that `imap` returns; may be used from several threads."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._taking = threading.RLock()
        super().__init__(*arguments, **options)

    def __next__(self) -> T:
        with self._taking:
            return super().__next__()

    def next(self, timeout: float | None = None) -> T:
        """Return the next result.

        Raises:
            multiprocessing.TimeoutError: it is not there within `timeout` seconds.
        """
        with self._taking:
            if timeout is not None:
                self._await_within(timeout)
            return self.__next__()

    def _await_within(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        self._or_close(self._fill)
        while not self._has_next() and not self._flight.empty:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._take(left)

    def finish(self) -> None:
        """Submit what is left of the arguments, and wait for all results; they are kept until they
        are taken.
        """
        with self._taking:
            while not self._closed and (block := self._next_block()):
                self._submit(block)
            while not self._flight.empty:
                self._take(None)

    def abort(self) -> None:
        """End the calls, whoever waits for one of them: each then fails with `Cancelled`."""
        self._closed = True
        self._flight.cancel_after(-1)
