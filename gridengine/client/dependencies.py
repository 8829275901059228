"""Futures that calls are given: a dispatcher is told what the references to their results stand
for.

Of a call that this very dispatcher runs it is told which that is, and the result never comes here
for it. All others (of another scheduler, of `concurrent.futures`, or there already) are waited for
here, and supplied.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

from gridengine.client.future import CANCELLED, MOST_CALLS, CallFuture, Failed, UndecodedResult
from gridengine.client.outcomes import path_from
from gridengine.dispatcher.core.tasks import CallsFinished, ResultData
from gridengine.dispatcher.interface import Dispatcher
from gridengine.errors import Cancelled, GridEngineError
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.serialize.references import (
    NOTHING,
    Reference,
    ResultHolder,
    awaited_in,
    can_go_on,
)


class ResultSource(Protocol):
    """What makes a result, or has it."""

    def keep(self, reference: Reference, dispatcher: Dispatcher) -> bool:
        """Have a dispatcher that makes the result know it by a reference; return False when it does
        not make it, or has made it.
        """
        return False

    def when_done(self, act: Callable[[], object]) -> None:
        """Do something once the call has ended; now if it has."""

    def data(self) -> ResultData:
        """Return what came of the call, which has ended."""
        ...


Found: TypeAlias = tuple[Any, ResultSource]
"""What a result is known by, which may be referred to weakly, and its source."""


class FutureSource(ResultSource):
    """A future of `concurrent.futures`: who settles it is not known."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def when_done(self, act: Callable[[], object]) -> None:
        """Do it in the thread that settles the future."""
        acts = [act]  # which refers to the future, and that keeps its callbacks
        self._future.add_done_callback(lambda _: acts.pop()())

    def data(self) -> ResultData:
        """Return what came of it."""
        if self._future.cancelled():
            return ResultData(cancelled=True)
        error = self._future.exception()
        return pickled(None if error else self._future.result(), error, "")


class CallSource:
    """A call's future."""

    def __init__(self, future: CallFuture) -> None:
        self._future = future

    def keep(self, reference: Reference, dispatcher: Dispatcher) -> bool:
        """Tell the dispatcher which call it is, if it runs it."""
        batcher = self._future.template.batcher
        return batcher.dispatcher is dispatcher and batcher.keep(self._future, reference)

    def when_done(self, act: Callable[[], object]) -> None:
        """Do it in a thread of the batcher's, unless the call has ended."""
        self._future.template.batcher.when_done(self._future, act)

    def data(self) -> ResultData:
        """Return what came of it, as it came if it can go on so."""
        future = self._future
        outcome, name = future.outcome, future.template.function.name
        if outcome is CANCELLED:
            return ResultData(cancelled=True, path=path_from(future.call or (), name))
        event = outcome.event if type(outcome) in (UndecodedResult, Failed) else None
        data = None if event is None else unread(event, future.place % MOST_CALLS, name)
        if data is None:
            error = future.exception()
            data = pickled(future.outcome, error, name)
        return data


def unread(event: CallsFinished, index: int, name: str) -> ResultData | None:
    """Return the outcome of one call of an event as it came; None when it has to be pickled
    again.
    """
    path = path_from(event.path, name)
    if event.recalled:
        return ResultData(cancelled=True, path=path)
    if event.payload is None:
        return _failed(event.error, path)
    if event.raised:
        return ResultData(event.payload, raised=True, path=path)
    payload = pickling.fetched(event.payload)
    if can_go_on(payload, event.stop - event.start):
        return ResultData(payload, index - event.start)
    return None


def pickled(value: Any, error: BaseException | None, name: str) -> ResultData:
    """Return an outcome that is there as an object, of what has this name. A value that cannot be
    pickled is an error.
    """
    path = path_from((), name) if name else ("a future",)
    if error is None:
        try:
            payload = pickling.dump_values(
                [value], describe=lambda _: f"the result of {path[0]}", whole_classes=True
            )
            return ResultData(
                [bytes(one) for one in payload]
            )  # it may be changed before it is sent
        except GridEngineError as failure:
            error = failure
            chain: list[BaseException | None] = [failure]
            while chain:  # tracebacks hold the future, whose end lets go of the result
                if (one := chain.pop()) is not None and one.__traceback__ is not None:
                    chain += one.with_traceback(None).__cause__, one.__context__
    if isinstance(error, GridEngineError):
        return _failed(error, path)
    return ResultData(pickling.dump_exception(error), raised=True, path=path)


def _failed(error: GridEngineError | None, path: tuple[str, ...]) -> ResultData:
    """Return an outcome that is an error of ours. What needs a call that was killed is
    cancelled.
    """
    return ResultData(error=error, cancelled=isinstance(error, Cancelled), path=path)


class _References:
    """The references of this process, by what their results are known by."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the collector may end a future at any point
        self._known: weakref.WeakKeyDictionary[Any, Reference] = weakref.WeakKeyDictionary()

    def find(self, obj: Any) -> tuple[Reference, ResultSource] | None:
        """Return the reference of a future, or of what stands for one, and its source."""
        found: Found | None
        if isinstance(obj, ResultHolder):
            found = obj._find_source()
        else:
            found = obj, CallSource(obj) if isinstance(obj, CallFuture) else FutureSource(obj)
        if found is None:
            return None
        with self._lock:
            reference = self._known.get(found[0])
            if reference is None:
                reference = self._known[found[0]] = Reference()
        return reference, found[1]

    def begin(self, reference: Reference, dispatcher: Dispatcher) -> bool:
        """Note that a dispatcher is told of a reference; return False when it was."""
        with self._lock:
            if reference.is_known_to(dispatcher):
                return False
            reference.add_user(dispatcher)
            return True


@functools.cache
def known_references() -> _References:
    return _References()


def introduce(payload: Payload, dispatcher: Dispatcher) -> tuple[Reference, ...]:
    """Tell a dispatcher that is to get this payload what its references stand for, and return them:
    they must live until it has got it.
    """
    awaits = awaited_in(payload)
    if not awaits:
        return ()
    for reference, source in awaits.items():
        if known_references().begin(reference, dispatcher):
            try:
                if not source.keep(reference, dispatcher):
                    source.when_done(functools.partial(supply, source, reference, dispatcher))
            except BaseException:  # a Ctrl-C, say: who refers to it next is to try again
                reference.remove_user(dispatcher)
                raise
    payload.awaits = NOTHING  # type: ignore[attr-defined]  # it may live longer
    return tuple(awaits)


def supply(source: ResultSource, reference: Reference, dispatcher: Dispatcher) -> None:
    """Tell a dispatcher what came of a call that has ended."""
    dispatcher.supply(reference.number, source.data())
