"""`Pool`: the methods of `multiprocessing.Pool`, for code that wants a pool."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import TimeoutError
from typing import Any, Generic, Self, TypeVar

from gridengine.errors import ConfigurationError
from gridengine.gathering import Results, length_of, zipped
from gridengine.initial import initial_of
from gridengine.limits import Limits, Raisable
from gridengine.line import Line, results_of
from gridengine.promise import Promise, Stretch
from gridengine.protocol import SINGLE, STAR
from gridengine.resources import Resource
from gridengine.schedulers.base import Place

T = TypeVar("T")
Callback = Callable[[Any], object]
log = logging.getLogger("gridengine")


class Pool:
    """Runs calls on a scheduler's workers, with the methods of `multiprocessing.Pool`.

    Leaving its `with`, or the interpreter's exit, ends what still runs, as there. Nothing is inherited: no memory, no locks.

    Args:
        processes: how many calls run at a time. With it a scheduler is made for this pool alone.
        initializer, initargs: as in `Executor`.
        maxtasksperchild: has no effect; a process that runs calls is kept, and replaced when it dies.
        scheduler: as in `Executor`: an instance (left open), or what gives one; None is the process's own.
        retries, timeout, retry_on, escalate_memory, resources: as for `gridengine.map`.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        *,
        scheduler: Place = None,
        retries: int = 2,
        timeout: float | None = None,
        retry_on: Raisable = (),
        escalate_memory: float = 1,
        resources: Resource | None = None,
    ) -> None:
        if maxtasksperchild is not None:
            if not isinstance(maxtasksperchild, int) or maxtasksperchild < 1:
                raise ConfigurationError(f"maxtasksperchild must be a positive whole number or None, not {maxtasksperchild!r}")
            log.warning("maxtasksperchild=%r has no effect on a gridengine.Pool", maxtasksperchild)
        limits = Limits(retries, timeout, retry_on, escalate_memory, resources)
        self._line = Line(scheduler, processes, initial=initial_of(initializer, initargs), limits=limits, daemon=True)
        self._iterators: weakref.WeakSet[PoolIterator[Any]] = weakref.WeakSet()
        self._closed = False
        weakref.finalize(self, self._line.intake.close, wait=False).atexit = False

    # ---------------------------------------------------------------- calls

    def apply(self, func: Callable[..., T], args: Iterable[Any] = (), kwds: Mapping[str, Any] | None = None) -> T:
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
        """Have `func(*args, **kwds)` called. A callback gets its result, or the other its exception, in a thread of this process."""
        self._check_running()
        return AsyncResult(self._line.submit(func, tuple(args), dict(kwds) if kwds else {}), callback, error_callback)

    def map(self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int | None = None) -> list[T]:
        """Return `[func(x) for x in iterable]`, or raise what the first call that failed raised."""
        return self.map_async(func, iterable, chunksize).get()

    def starmap(self, func: Callable[..., T], iterable: Iterable[Iterable[Any]], chunksize: int | None = None) -> list[T]:
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
        stretches = self._line.stretches(func, SINGLE, iter(iterable), length_of([iterable]), chunksize)
        return MapResult(self._line, stretches, callback, error_callback)

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
        return MapResult(self._line, stretches, callback, error_callback)

    def imap(self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int = 1) -> PoolIterator[T]:
        """Return an iterator over the results in order, each as soon as it is there. Arguments are taken as results are, some ahead."""
        return self._imap(func, iterable, chunksize, ordered=True)

    def imap_unordered(self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int = 1) -> PoolIterator[T]:
        """As `imap`, in the order in which results come."""
        return self._imap(func, iterable, chunksize, ordered=False)

    def _imap(self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int, *, ordered: bool) -> PoolIterator[T]:
        self._check_running()
        form, calls = zipped(func, [iterable])
        made: PoolIterator[T] = PoolIterator(self._line.plan(func, form, chunksize), calls, ordered=ordered)
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
        self._line.intake.kill_all()
        self._line.intake.close(wait=True)

    def join(self) -> None:
        """Wait until all calls have ended, and end the workers that were started for this pool.

        Raises:
            ValueError: the pool was neither closed nor terminated.
        """
        if not self._closed:
            raise ValueError("Pool is still running")
        for iterator in list(self._iterators):
            iterator.finish()
        self._line.intake.close(wait=True)

    def _check_running(self) -> None:
        if self._closed:
            raise ValueError("Pool not running")

    def __enter__(self) -> Self:
        self._check_running()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.terminate()


class AsyncResult(Generic[T]):
    """What becomes of an `apply_async`."""

    __slots__ = ("_promise",)

    def __init__(self, promise: Promise, callback: Callback | None, error_callback: Callback | None) -> None:
        self._promise = promise
        if callback is not None or error_callback is not None:
            promise.add_done_callback(lambda _: call_back(promise.exception(), promise.result, callback, error_callback))

    def get(self, timeout: float | None = None) -> T:
        """Return the result, or raise what the call raised.

        Raises:
            multiprocessing.TimeoutError: it has not ended within `timeout` seconds.
        """
        if not self._promise.await_end(timeout):
            raise TimeoutError
        return self._promise.result()  # type: ignore[no-any-return]

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end, up to `timeout` seconds."""
        self._promise.await_end(timeout)

    def ready(self) -> bool:
        """Return whether it has ended."""
        return self._promise.done()

    def successful(self) -> bool:
        """Return whether it has ended without an exception.

        Raises:
            ValueError: it has not ended.
        """
        if not self._promise.done():
            raise ValueError(f"{self!r} not ready")
        return self._promise.exception() is None


class MapResult(Generic[T]):
    """What becomes of a `map_async`: as an `AsyncResult`, of a list."""

    def __init__(self, line: Line, stretches: list[Stretch], callback: Callback | None, error_callback: Callback | None) -> None:
        self._line = line
        self._stretches = stretches
        self._reading = threading.Lock()
        self._read: tuple[list[T], BaseException | None] | None = None
        if callback is not None or error_callback is not None:
            left = itertools.count(len(stretches) - 1, -1)
            for stretch in stretches:
                stretch.add_done_callback(lambda _: None if next(left) else self._call_back(callback, error_callback))

    def _call_back(self, callback: Callback | None, error_callback: Callback | None) -> None:
        values, error = self._outcome()
        call_back(error, lambda: values, callback, error_callback)

    def _outcome(self) -> tuple[list[T], BaseException | None]:
        with self._reading:
            if self._read is None:
                try:
                    self._read = list(results_of(self._line, self._stretches, lambda: None)), None
                except Exception as error:
                    self._read = [], error
                self._stretches = []
            return self._read

    def get(self, timeout: float | None = None) -> list[T]:
        """Return the results, or raise what the first call that failed raised.

        Raises:
            multiprocessing.TimeoutError: not all have ended within `timeout` seconds.
        """
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        values, error = self._outcome()
        if error is not None:
            raise error
        return values

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of all calls, up to `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        for stretch in self._stretches:
            if not stretch.await_end(None if until is None else until - time.monotonic()):
                return

    def ready(self) -> bool:
        """Return whether all calls have ended."""
        return all(stretch.done() for stretch in self._stretches)

    def successful(self) -> bool:
        """Return whether all calls have ended without an exception.

        Raises:
            ValueError: not all have ended.
        """
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._outcome()[1] is None


def call_back(error: BaseException | None, value: Callable[[], Any], callback: Callback | None, error_callback: Callback | None) -> None:
    """Call the one that fits, if there is one."""
    if error is None and callback is not None:
        callback(value())
    elif error is not None and error_callback is not None:
        error_callback(error)


class PoolIterator(Results[T]):
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
        """Submit what is left of the arguments, and wait for all results; they are kept until they are taken."""
        with self._taking:
            while not self._closed and (block := list(itertools.islice(self._calls, self._chunksize))):
                self._submit(block)
            while not self._flight.empty:
                self._take(None)

    def abort(self) -> None:
        """End the calls, whoever waits for one of them: each then fails with `Cancelled`."""
        self._closed = True
        self._flight.cancel_after(-1)
