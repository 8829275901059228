"""`Executor`: the `concurrent.futures.Executor` whose calls run on a scheduler's workers."""

from __future__ import annotations

import concurrent.futures
import itertools
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeVar

from gridengine import pickling
from gridengine.errors import ConfigurationError
from gridengine.flight import check_limits, hub_at
from gridengine.functional import _length, _next_size, _zipped
from gridengine.initial import Initial, Prepared
from gridengine.intake import Intake, frozen
from gridengine.promise import Promise, Stretch
from gridengine.schedulers.base import Place, Scheduler, positive
from gridengine.wares import ATOMS, Wares, Work

T = TypeVar("T")
SHARES = 4
"""Into how many blocks for each slot the calls of a `map` are cut at least."""
MOST_BLOCK = 65_536


class Executor(concurrent.futures.Executor):
    """Runs calls on a scheduler's workers, with the interface of `concurrent.futures`.

    Args:
        scheduler: an instance (left open at shutdown), or a class or callable that gives one (closed at shutdown); None is the
            process's own, made once by `schedulers.best_available`.
        max_workers: how many calls run at a time. With it a scheduler is made for this executor alone; an instance has its own.
        initializer, initargs: `initializer(*initargs)` is called once in each process that runs calls, before the first. When it raises,
            the calls fail with `concurrent.futures.BrokenExecutor`.
        retries: how often a call whose process died is run again.
        timeout: the seconds that each call may take; None is no limit.

    Raises:
        ConfigurationError: `max_workers` beside a scheduler instance, which has its own.
    """

    def __init__(
        self,
        scheduler: Place = None,
        *,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        retries: int = 2,
        timeout: float | None = None,
    ) -> None:
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        check_limits(retries, timeout)
        self._initial = None if initializer is None else Initial(initializer, tuple(initargs))
        hub, scheduler, ours = hub_at(place_for(scheduler, max_workers))
        # The intake does not refer to this executor: when that is collected, what it was given still runs, and then its workers end.
        self._intake = Intake(hub, scheduler.close if ours else _Keep(scheduler))
        self._max_workers = hub.slots
        self._set_limits(retries, timeout)
        self._finalizer = weakref.finalize(self, self._intake.close, wait=False)
        self._finalizer.atexit = False

    def _set_limits(self, retries: int, timeout: float | None) -> None:
        check_limits(retries, timeout)
        self._limits = retries, timeout
        self._wares = Wares(retries, timeout, None if self._initial is None else self._prepared)

    def _prepared(self, f: Callable[..., Any]) -> Callable[..., Any]:
        assert self._initial is not None
        return Prepared(f, self._initial)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        """Have `fn(*args, **kwargs)` called, and return its future. What of it cannot travel is the future's exception.

        Arguments are taken as they are now: what is changed later does not arrive changed.

        Raises:
            RuntimeError: the executor was shut down.
        """
        intake = self._intake
        try:
            ware = self._wares.find(fn)
            if kwargs:
                work = ware.works[2]
                call: Any = frozen((args, kwargs), work)
            elif len(args) == 1:
                work = ware.works[0]
                call = args[0]
                if type(call) not in QUICK:
                    call = frozen(call, work)
            else:
                work = ware.works[1]
                call = frozen(args, work)
        except Exception as error:
            intake.check()
            return self._failed(error)
        promise = Promise(intake, work, call)
        intake.add(promise)
        return promise

    def _failed(self, error: Exception) -> Promise:
        promise = Promise(self._intake, None, None)  # type: ignore[arg-type]
        promise.fail_at_once(error)
        return promise

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int | None = None
    ) -> Iterator[T]:
        """Return an iterator over the results of the calls, in order; the iterables are read, and the calls submitted, at once.

        Args:
            timeout: the seconds from now within which each result must be there.
            chunksize: how many calls travel together; None grows with what they take. Each is still a call of its own, that may run beside
                the others.

        Raises, when its turn comes:
            TimeoutError: a result is not there in time.
            Exception: what a call raised. The calls that are left are cancelled.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if chunksize is not None:
            positive("chunksize", chunksize)
        self._intake.check()
        stretches = list(self._stretches(fn, iterables, chunksize))
        return _results(self._intake, stretches, until)

    def _stretches(self, fn: Callable[..., Any], iterables: tuple[Iterable[Any], ...], chunksize: int | None) -> Iterator[Stretch]:
        form, calls = _zipped(fn, iterables) if iterables else (1, iter(()))
        total = _length(iterables)
        most = MOST_BLOCK if total is None else -(-total // (SHARES * self._intake.slots))
        size, first = chunksize or 1, 0
        work: Work | None = None
        while block := list(itertools.islice(calls, size)):
            work = work or self._wares.find(fn).works[form]
            payload = pickling.dump_calls(block, form=form, describe=lambda place, first=first: f"call {first + place}")  # type: ignore[misc]
            stretch = Stretch(self._intake, work, payload, len(block))
            self._intake.add(stretch)
            yield stretch
            first += len(block)
            if chunksize is None:
                size = _next_size(size, sum(memoryview(buffer).nbytes for buffer in payload), most)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and end the workers that were started for this executor once its calls have ended.

        Args:
            wait: return when they have.
            cancel_futures: withdraw those that have not been handed to the workers.
        """
        self._intake.stop()
        if cancel_futures:
            self._intake.cancel_waiting()
        self._intake.close(wait=wait)

    def kill(self, future: concurrent.futures.Future[Any]) -> bool:
        """End a call, even one that runs: its future's exception is then `Cancelled`. Return False when it has ended already.

        Raises:
            ValueError: the future is not of this executor.
        """
        if not isinstance(future, Promise) or future.home is not self._intake:
            raise ValueError(f"{future!r} is not a future of this executor")
        return self._intake.kill(future)

    def with_options(self, *, retries: int | None = None, timeout: float | None = None) -> Self:
        """Return an executor whose calls have other limits and that shares all else with this one; what is left out stays."""
        other = object.__new__(type(self))
        vars(other).update(vars(self), _parent=self)  # it must not be collected before its own time
        other._set_limits(self._limits[0] if retries is None else retries, self._limits[1] if timeout is None else timeout)
        return other


QUICK = ATOMS - {str, bytes}


class _Keep:
    """Called at the end of an executor whose scheduler is another's: until then it keeps that alive."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __call__(self) -> None:
        """Let it go."""
        del self._scheduler


def place_for(place: Place, max_workers: int | None) -> Place:
    """Return where calls run, given how many may at a time.

    Raises:
        ConfigurationError: the scheduler is there already, and has its own number.
    """
    if max_workers is None:
        return place
    positive("max_workers", max_workers)
    if isinstance(place, Scheduler):
        raise ConfigurationError("a scheduler instance has its own max_workers", hint="give max_workers to the scheduler")

    def make() -> Scheduler:
        from gridengine.schedulers import best_available

        kind: Any = place if place is not None else type(best_available())
        made: Scheduler = kind(max_workers=max_workers)
        return made

    return make


def _results(intake: Intake, stretches: list[Stretch], until: float | None) -> Iterator[Any]:
    """Yield results one after the other; whatever ends the iteration cancels what is left."""
    stretches.reverse()
    try:
        while stretches:
            start = 0
            while start < stretches[-1].count:
                start, values, error = stretches[-1].piece(start, None if until is None else until - time.monotonic())
                if error is not None:
                    raise error
                yield from values
            stretches.pop()
    finally:
        for stretch in stretches:
            if not stretch.cancel():
                intake.drop(stretch)
