"""Where functions and arguments become calls of an intake: what an `Executor` and a `Pool` have in
common.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from gridengine.client.batcher import Batcher
from gridengine.client.chunking import LARGE_BLOCK, SHARES, next_size
from gridengine.client.connect import connect
from gridengine.client.functions import CallTemplate, FunctionCache
from gridengine.client.future import CallFuture, ChunkFuture
from gridengine.client.initializer import Initializer, Prepared
from gridengine.client.options import CallOptions
from gridengine.client.submission import MapRequest, Outcome
from gridengine.errors import ConfigurationError
from gridengine.resources.demand import ANY
from gridengine.resources.units import whole
from gridengine.schedulers.base import Scheduler, SchedulerSpec
from gridengine.serialize import pickling
from gridengine.serialize.payload import FULL, SINGLE, STAR, size_of
from gridengine.serialize.snapshot import ATOMS, frozen
from gridengine.worker.call_context import GVAR

if TYPE_CHECKING:
    from gridengine.dispatcher.interface import Dispatcher

PLAIN = ATOMS - {str, bytes}
"""Types whose values are small and never change: by far the most frequent arguments are not looked
at any closer.
"""


class Submitter:
    """Submits calls to a scheduler's hub.

    Args:
        place, max_workers: where they run, and how many at a time; see `place_for`.
        initial: what runs in each process before the first of them.
        limits: of all its calls.
        most: how many calls that are submitted singly are handed to the workers at a time; None is
            for the intake to decide.
        daemon: the interpreter's exit ends the calls instead of waiting for them.
    """

    def __init__(
        self,
        place: SchedulerSpec,
        max_workers: int | None,
        *,
        initial: Initializer | None,
        limits: CallOptions,
        most: int | None = None,
        daemon: bool = False,
    ) -> None:
        dispatcher, self._scheduler, ours = connect(place_for(place, max_workers))
        try:
            _check(dispatcher, limits)
        except BaseException:
            if ours:
                self._scheduler.close()
            raise
        self._dispatcher = dispatcher
        # The intake alone may outlive its users: what they submitted still runs, and then their
        # workers end.
        self.batcher = Batcher(
            dispatcher,
            self._scheduler.close if ours else _Keep(self._scheduler),
            most=most,
            daemon=daemon,
        )
        self._initial = initial
        self.limits = limits
        self._wares = FunctionCache(limits, self._prepared)

    def with_limits(self, limits: CallOptions) -> Submitter:
        """Return a line that has other limits and shares all else with this one.

        Raises:
            ConfigurationError: no worker can ever hold what they ask for.
        """
        _check(self._dispatcher, limits)
        other = object.__new__(Submitter)
        vars(other).update(vars(self), limits=limits, _wares=FunctionCache(limits, self._prepared))
        return other

    def _prepared(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return f if self._initial is None else Prepared(f, self._initial)

    def submit(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CallFuture:
        """Have one call made. What of it cannot travel is its promise's exception.

        Raises:
            RuntimeError: the line is closed.
        """
        batcher = self.batcher
        try:
            works = self._wares.find(f).works
            if kwargs:
                work = works[FULL]
                call: Any = frozen((args, kwargs), FULL, work.function.name)
            elif len(args) == 1:
                work = works[SINGLE]
                call = args[0]
                if type(call) not in PLAIN:
                    call = frozen(call, SINGLE, work.function.name)
            else:
                work = works[STAR]
                call = frozen(args, STAR, work.function.name)
        except Exception as error:
            batcher.check()
            return CallFuture.failed(batcher, error)
        promise = CallFuture(batcher, work, call)
        batcher.add(promise)
        return promise

    def stretches(
        self,
        f: Callable[..., Any],
        form: int,
        calls: Iterator[Any],
        total: int | None,
        chunksize: int | None,
    ) -> list[ChunkFuture]:
        """Have many calls made; those of one stretch travel together, and the stretches grow as
        those of `gridengine.map` do.

        Raises:
            RuntimeError: the line is closed.
            PicklingError: the function or an argument cannot travel; what was submitted before is
                withdrawn.
        """
        self.batcher.check()
        if chunksize is not None:
            whole("chunksize", chunksize, most=sys.maxsize)
        made: list[ChunkFuture] = []
        try:
            self._stretch(made, f, form, calls, (total, chunksize))
        except BaseException:
            self.drop(made)
            raise
        return made

    def _stretch(
        self,
        made: list[ChunkFuture],
        f: Callable[..., Any],
        form: int,
        calls: Iterator[Any],
        sizes: tuple[int | None, int | None],
    ) -> None:
        total, chunksize = sizes
        most = LARGE_BLOCK if total is None else -(-total // (SHARES * self.batcher.slots))
        size, first = chunksize or 1, 0
        work: CallTemplate | None = None
        while block := list(itertools.islice(calls, size)):
            work = work or self._wares.find(f).works[form]
            payload = pickling.dump_calls(block, form=form, describe=_names_from(first))
            made.append(ChunkFuture(self.batcher, work, payload, len(block), first))
            self.batcher.add(made[-1])
            first += len(block)
            if chunksize is None:
                size = next_size(size, size_of(payload), most)

    def plan(self, f: Callable[..., Any], form: int, chunksize: int) -> MapRequest:
        """Return a plan for calls that are submitted as their results are taken, beside this line,
        on its workers.
        """
        return MapRequest(self._prepared(f), form, self._scheduler, True, chunksize, self.limits)

    def drop(self, stretches: Iterable[ChunkFuture]) -> None:
        """End the calls of these stretches that have not ended."""
        for stretch in stretches:
            if not stretch.cancel():
                self.batcher.drop(stretch)


def _check(dispatcher: Dispatcher, limits: CallOptions) -> None:
    if limits.demand is not ANY:
        dispatcher.check(limits.demand)


class _Keep:
    """Called at the end of a line whose scheduler is another's: until then it keeps that alive."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Scheduler | None = scheduler

    def __call__(self) -> None:
        """Let it go."""
        self._scheduler = None


def place_for(place: SchedulerSpec, max_workers: int | None) -> SchedulerSpec:
    """Return where calls run, given how many may at a time: with that, a scheduler of their own.

    Raises:
        ConfigurationError: the scheduler is there already, and has its own number.
    """
    if max_workers is None:
        return place
    whole("max_workers", max_workers)
    if isinstance(place, Scheduler):
        raise ConfigurationError(
            "a scheduler instance has its own max_workers", hint="give max_workers to the scheduler"
        )

    if place is None and GVAR.inside:
        # calls inside a call run in its process, one after the other, whatever they would do
        # elsewhere
        return None

    def make() -> Scheduler:
        from gridengine.schedulers import best_available

        kind: Any = type(best_available()) if place is None else place
        made: Scheduler = kind(max_workers=max_workers)
        return made

    return make


def results_of(
    line: Submitter, stretches: list[ChunkFuture], seconds_left: Callable[[], float | None]
) -> Iterator[Any]:
    """Yield results one after the other; whatever ends the iteration ends the calls that are left.

    Raises, when its turn comes:
        TimeoutError: a result is not there within what `seconds_left` gives.
        Exception: what a call raised.
    """
    left = list(reversed(stretches))
    try:
        while left:
            while left[-1].taken < left[-1].count:
                piece: Outcome | None = left[-1].piece(left[-1].taken, seconds_left())
                assert piece is not None
                left[-1].take(piece)
                if piece.error is not None:
                    raise piece.error
                coming, piece = list(reversed(piece.values)), None
                while coming:  # what has been given is not held here
                    yield coming.pop()
            left.pop()
    finally:
        line.drop(left)


def _names_from(first: int) -> Callable[[int], str]:
    return lambda place: f"call {first + place}"
