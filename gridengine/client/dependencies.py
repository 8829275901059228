"""Futures among the arguments of calls: a dispatcher is told for which result each reference
stands.

If this dispatcher runs the future's call, it is told which call that is, and the result need not
pass through this process. The results of all other futures (of another scheduler, of
`concurrent.futures`, or already settled) are waited for here, and supplied to the dispatcher.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

from gridengine.calls.interface import Dispatcher
from gridengine.client.outcomes import path_from
from gridengine.errors import Cancelled, GridEngineError
from gridengine.requests import CallsFinished, ResultData
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.serialize.references import NOTHING, Reference, ResultHolder, awaited_in, can_go_on
from gridengine.threads import once


class ResultSource(Protocol):
    """The maker, or the owner, of a result."""

    def bind_reference(self, reference: Reference, dispatcher: Dispatcher) -> bool:
        """If this dispatcher runs the call and has not settled it, bind its result to a reference.
        Return whether it did.
        """
        return False

    def when_done(self, act: Callable[[], object]) -> None:
        """Call a function once the call has ended; now if it has."""

    def data(self) -> ResultData:
        """Return the outcome of the call, which has ended."""
        ...


Found: TypeAlias = tuple[Any, ResultSource]
"""The object that identifies a result, which must support weak references, and the result's
source.
"""


class FutureSource(ResultSource):
    """A future of `concurrent.futures`, which may be settled by anybody."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def when_done(self, act: Callable[[], object]) -> None:
        """Call the function in the thread that settles the future."""
        acts = [act]  # popped: `act` refers to the future, which never drops its callbacks
        self._future.add_done_callback(lambda _: acts.pop()())

    def data(self) -> ResultData:
        """Return the outcome of the future."""
        if self._future.cancelled():
            return ResultData(cancelled=True)
        error = self._future.exception()
        return pickled(None if error else self._future.result(), error, "")


def unread(event: CallsFinished, index: int, name: str) -> ResultData | None:
    """Return the outcome of one call of an event, still pickled; None if it must be re-pickled."""
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
    """Pickle the outcome of a call or future of this name; what cannot be pickled is an error."""
    path = path_from((), name) if name else ("a future",)
    if error is None:
        try:
            payload = pickling.dump_values(
                [value], describe=lambda _: f"the result of {path[0]}", whole_classes=True
            )
            return ResultData(
                [bytes(one) for one in payload]
            )  # copied: an array may change before it is sent
        except GridEngineError as failure:
            error = failure
            chain: list[BaseException | None] = [failure]
            while chain:  # without tracebacks, which would keep the future and its result alive
                if (one := chain.pop()) is not None and one.__traceback__ is not None:
                    chain += one.with_traceback(None).__cause__, one.__context__
    if isinstance(error, GridEngineError):
        return _failed(error, path)
    return ResultData(pickling.dump_exception(error), raised=True, path=path)


def _failed(error: GridEngineError | None, path: tuple[str, ...]) -> ResultData:
    """Return the outcome of a call that has an error of the package. If the call was killed, calls
    that need it are cancelled.
    """
    return ResultData(error=error, cancelled=isinstance(error, Cancelled), path=path)


class _References:
    """The references of this process, by the objects that identify their results."""

    def __init__(self) -> None:
        # Reentrant: the garbage collector may delete a future at any point.
        self._lock = threading.RLock()
        self._known: weakref.WeakKeyDictionary[Any, Reference] = weakref.WeakKeyDictionary()

    def find(self, obj: Any) -> tuple[Reference, ResultSource] | None:
        """Return the reference of a future, or of an object that stands for one, and its source;
        None if the object stands for no result now.
        """
        found: Found | None = obj, FutureSource(obj)
        if isinstance(obj, ResultHolder):
            found = obj._find_source()
        if found is None:
            return None
        with self._lock:
            reference = self._known.get(found[0])
            if reference is None:
                reference = self._known[found[0]] = Reference()
        return reference, found[1]

    def begin(self, reference: Reference, dispatcher: Dispatcher) -> bool:
        """Note that a dispatcher is told of a reference; return False if it was told before."""
        with self._lock:
            if reference.is_known_to(dispatcher):
                return False
            reference.add_user(dispatcher)
            return True


@once
def known_references() -> _References:
    return _References()


def introduce(payload: Payload, dispatcher: Dispatcher) -> tuple[Reference, ...]:
    """Tell a dispatcher for which results the references in a payload stand, and return the
    references. The caller must keep them alive until the payload is submitted.
    """
    awaits = awaited_in(payload)
    if not awaits:
        return ()
    for reference, source in awaits.items():
        if known_references().begin(reference, dispatcher):
            try:
                if not source.bind_reference(reference, dispatcher):
                    source.when_done(functools.partial(supply, source, reference, dispatcher))
            # After a Ctrl-C, for example, the next payload with this reference tries again.
            except BaseException:
                reference.remove_user(dispatcher)
                raise
    payload.awaits = NOTHING  # type: ignore[attr-defined]  # the payload may outlive the references
    return tuple(awaits)


def supply(source: ResultSource, reference: Reference, dispatcher: Dispatcher) -> None:
    """Supply a dispatcher with the outcome of a call that has ended."""
    dispatcher.supply(reference.number, source.data())
