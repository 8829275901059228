"""How `map` and its kin send calls and gather their results: all at once, or one after the
other.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Generic, Self, TypeVar

from gridengine.api.progress import ProgressBar
from gridengine.client.chunking import LARGE_BLOCK, SHARES, SMALLEST_WINDOW, next_size
from gridengine.client.submission import MapRequest, Outcome, Submission

T = TypeVar("T")

GATHER_SECONDS = 0.001
"""How long blocks gather for."""


# ------------------------------------------------------------------ all results at once


class _Results:
    """The results of a map, filled in as they come."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.errors: dict[int, BaseException] = {}
        self.first_error: int | None = None
        self.done = 0
        self._settled = bytearray()
        self._frontier = 0

    def expect(self, count: int) -> None:
        self.values.extend(itertools.repeat(None, count))
        self._settled.extend(bytes(count))

    def put(self, outcome: Outcome) -> None:
        count = outcome.stop - outcome.start
        self.done += count
        self._settled[outcome.start : outcome.stop] = b"\1" * count
        if outcome.error is None:
            self.values[outcome.start : outcome.stop] = outcome.values
            return
        self.errors.update(dict.fromkeys(range(outcome.start, outcome.stop), outcome.error))
        if self.first_error is None or outcome.start < self.first_error:
            self.first_error = outcome.start

    def raise_first_error(self) -> None:
        """Raise the first call's error as soon as all the calls before it have succeeded."""
        if self.first_error is None:
            return
        unsettled = self._settled.find(0, self._frontier)
        if unsettled < 0 or unsettled > self.first_error:
            raise self.errors[self.first_error]
        self._frontier = unsettled

    def with_errors(self) -> list[Any]:
        """Return the results, each error in its call's place."""
        for index, error in self.errors.items():
            self.values[index] = error
        return self.values


def gather(
    plan: MapRequest, calls: Iterator[Any], total: int | None, progress: bool | None
) -> list[Any]:
    """Submit all calls while earlier ones run, and return their results in order."""
    head = list(itertools.islice(calls, 1))
    if not head:
        return []
    results = _Results()
    with Submission(plan) as flight, ProgressBar(flight.snapshot, shown=progress) as bar:
        _send_all(plan, flight, itertools.chain(head, calls), total, results)
        while not flight.empty:
            _take(plan, flight, results, bar.patience())
            bar.update(results.done, len(results.errors), len(results.values))
    return results.with_errors()


def _send_all(
    plan: MapRequest, flight: Submission, calls: Iterator[Any], total: int | None, results: _Results
) -> None:
    """Send blocks of calls: the first is small, so that work begins soon, the later ones grow to a
    good size for travelling.

    To wake the I/O thread costs more than to pickle a small block. So blocks gather for a moment,
    unless the next may be long in coming.
    """
    most = LARGE_BLOCK if total is None else -(-total // (SHARES * flight.dispatcher.slots))
    gather_seconds = 0.0 if total is None or flight.dispatcher.at_once else GATHER_SECONDS
    size, depart_at = plan.chunksize or 1, time.monotonic() + gather_seconds
    while block := list(itertools.islice(calls, size)):
        pickled = _load(plan, flight, block, results)
        if time.monotonic() >= depart_at:
            flight.depart()
            _take(plan, flight, results, 0)
            if plan.reraise and results.first_error is not None:
                return
            depart_at = time.monotonic() + gather_seconds
        if plan.chunksize is None:
            size = next_size(size, pickled, most)
    flight.depart()


def _load(plan: MapRequest, flight: Submission, block: list[Any], results: _Results) -> int:
    """Have a block wait for its departure; return the size of its pickle in bytes."""
    first = len(results.values)
    results.expect(len(block))
    if plan.reraise:
        return flight.load(block, first)
    pickled, failed = flight.load_what_can_travel(block, first)
    for outcome in failed:
        results.put(outcome)
    return pickled


def _take(plan: MapRequest, flight: Submission, results: _Results, timeout: float | None) -> None:
    """Put by what has settled. The first error ends what comes after it, and is raised once all
    before it have succeeded.
    """
    known = results.first_error
    for outcome in flight.outcomes(timeout):
        results.put(outcome)
    if plan.reraise and results.first_error is not None:
        results.raise_first_error()
        if results.first_error != known:
            flight.cancel_after(results.first_error)


# ------------------------------------------------------------------ one result after the other


class ResultIterator(Generic[T]):
    """The iterator that `imap` returns. It has `close()`, is a context manager, and belongs to one
    thread at a time.
    """

    def __init__(self, plan: MapRequest, calls: Iterator[Any], *, ordered: bool) -> None:
        self._reraise = plan.reraise
        self._chunksize = plan.chunksize or 1
        self._calls = calls
        self._ordered = ordered
        self._flight = flight = Submission(plan)
        self._window = max(SMALLEST_WINDOW, SHARES * flight.dispatcher.slots * self._chunksize)
        self._ready: OrderedDict[int, tuple[Any, BaseException | None]] = OrderedDict()
        self._submitted = 0
        self._given = 0
        self._closed = False
        self._fault: Exception | None = None
        self._at_once = False
        # An abandoned iterator ends its calls, and so does one still open when the interpreter
        # exits. No more than that: the collector may run in any thread, and must not wait there for
        # workers to end.
        self._finalizer = weakref.finalize(self, flight.cancel)
        self._or_close(self._fill)

    def close(self) -> None:
        """Cancel the calls that have not ended; the iterator ends. May be called twice."""
        self._closed = True
        self._ready.clear()
        self._given = self._submitted
        self._finalizer.detach()
        self._flight.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if not self._or_close(self._await_next):
            self.close()
            fault, self._fault = self._fault, None
            raise StopIteration if fault is None else fault
        value, error = (
            self._ready.pop(self._given) if self._ordered else self._ready.popitem(last=False)[1]
        )
        self._given += 1
        if error is None:
            return value  # type: ignore[no-any-return]
        if self._reraise and isinstance(
            error, StopIteration
        ):  # it would end the iteration as if all were done: see PEP 479
            raise RuntimeError("a call raised StopIteration") from error
        if self._reraise:
            raise error
        return error  # type: ignore[return-value]

    def _or_close(self, act: Callable[[], bool]) -> bool:
        """Do it; an error, or a Ctrl-C, cancels everything."""
        try:
            return act()
        except BaseException:
            self.close()
            raise

    def _await_next(self) -> bool:
        """Wait for the next result; return False when there is none to come."""
        if not (self._at_once and self._has_next()):
            self._fill()
        while not self._has_next():
            if self._given == self._submitted and not self._fill():
                return False
            self._take(None)
        return True

    def _has_next(self) -> bool:
        return self._given in self._ready if self._ordered else bool(self._ready)

    def _fill(self) -> bool:
        """Submit calls while few enough are on their way; return whether any is, or a result is
        there.

        Calls that end at once, as inline ones do, are not run ahead of those who take their
        results.
        """
        room = self._window - (self._submitted - self._given)
        if room < self._window // SHARES and not self._flight.empty:
            return True  # a little at a time would cost more than it gains
        while room > 0 and not self._closed and (block := self._next_block()):
            self._submit(block)
            self._take(0)
            self._at_once = self._flight.empty
            room = 0 if self._at_once else room - len(block)
        return self._submitted > self._given

    def _next_block(self) -> list[Any]:
        """Take the next arguments; none when the iterable has ended, or raised: that is raised once
        all results have been given.
        """
        try:
            return list(itertools.islice(self._calls, self._chunksize))
        except Exception as error:
            self._calls, self._fault = iter(()), error
            return []

    def _submit(self, block: list[Any]) -> None:
        first = self._submitted
        self._submitted += len(block)
        for outcome in self._flight.load_what_can_travel(block, first)[1]:
            self._put(outcome)
        self._flight.depart()

    def _take(self, timeout: float | None) -> None:
        for outcome in self._flight.outcomes(timeout):
            self._put(outcome)

    def _put(self, outcome: Outcome) -> None:
        if outcome.error is None:
            for index, value in enumerate(outcome.values, outcome.start):
                self._ready[index] = (value, None)
        else:
            for index in range(outcome.start, outcome.stop):
                self._ready[index] = (None, outcome.error)
