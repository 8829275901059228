"""The calls of one map, sent in blocks that grow, while results of earlier calls are collected."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from gridengine.calls.interface import WithoutSlot
from gridengine.client.outcomes import Outcome, warn_of_exit
from gridengine.client.submission import LOOK_SECONDS, Submission
from gridengine.errors import Cancelled, trim
from gridengine.serialize.exceptions import PartialResults, copy_without_traceback, note_on

GATHER_SECONDS = 0.001
"""Blocks are gathered for this long before they are sent."""

MOST_UNSENT = 10_000_000
"""When a map fails early, its results have entries for unsent calls up to this total."""

SMALL_BLOCK, LARGE_BLOCK = 64 * 1024, 256 * 1024
"""Blocks of calls grow until their pickle has at least `SMALL_BLOCK` bytes, and shrink when it has
more than `LARGE_BLOCK`.
"""
TINY_BLOCK = 2 * 1024
"""A block up to this size may as well be sent again for each of its parts that goes to another
worker.
"""
GROWTH = 8
MODEST_BLOCK = 8 * 1024
SHARES, SMALL_SHARES = 4, 16
"""A map of known length is cut into at least `SHARES` blocks for each slot, unless the blocks are
tiny; and into `SMALL_SHARES`, unless the blocks have less than `MODEST_BLOCK` bytes. Each worker
that gets a part of a block loads the whole of it, so blocks that are not divided save time.
"""
SMALLEST_WINDOW = 16
"""An `imap` may always have this many calls handed over, however few the slots."""


class MapResults:
    """The results of a map, filled in as they arrive."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.errors: dict[int, BaseException] = {}
        self.first_error: int | None = None
        self.missing = 0
        """How many of the expected calls have no outcome here yet."""
        self._settled = bytearray()
        self._frontier = 0

    def expect(self, count: int) -> None:
        """Make room for the results of `count` more calls."""
        self.missing += count
        self.values.extend(itertools.repeat(None, count))
        self._settled.extend(bytes(count))

    def put(self, outcome: Outcome) -> None:
        """Take an outcome. Taking it again changes nothing."""
        if not self._settled[outcome.start]:
            self.missing -= outcome.stop - outcome.start
        self._settled[outcome.start : outcome.stop] = b"\1" * (outcome.stop - outcome.start)
        if outcome.error is None:
            self.values[outcome.start : outcome.stop] = outcome.values
            return
        self.errors.update(dict.fromkeys(range(outcome.start, outcome.stop), outcome.error))
        if self.first_error is None or outcome.start < self.first_error:
            self.first_error = outcome.start

    def settled_from_start(self) -> int:
        """Return the number of the first call that has not ended: all calls before it have."""
        if self._frontier < len(self._settled):
            unsettled = self._settled.find(0, self._frontier)
            self._frontier = len(self._settled) if unsettled < 0 else unsettled
        return self._frontier

    def raise_first_error(self) -> None:
        """Raise the first call's error as soon as all calls before it have succeeded. From then on
        a copy without a traceback stands in its place here: the traceback refers to this object,
        and the results would live until the garbage collector runs.
        """
        if self.first_error is not None and self.settled_from_start() > self.first_error:
            error = self.errors[self.first_error]
            twin = copy_without_traceback(error)
            self.errors = {
                index: twin if one is error else one for index, one in self.errors.items()
            }
            warn_of_exit(error)
            try:
                raise error
            finally:
                del error

    def with_errors(self) -> list[Any]:
        """Return the results, with each error in its call's place."""
        for index, error in self.errors.items():
            self.values[index] = error
        return self.values

    def so_far(self, total: int | None) -> PartialResults:
        """Return the results, with each error in its call's place, and `Cancelled` for each call
        that has not ended. `total` is the number of calls, if known; some of them may not have been
        sent.
        """
        made, index = PartialResults(self.with_errors()), -1
        cancelled = Cancelled("the call was ended before it was done")
        while (index := self._settled.find(0, index + 1)) >= 0:
            made[index] = cancelled
        made.extend(itertools.repeat(cancelled, min(total or 0, MOST_UNSENT) - len(made)))
        return made


class MapRun:
    """One map: `send` all its calls, and `take` outcomes until all have arrived.

    Args:
        total: how many calls there are; None if that is unknown.
        chunksize: how many of them travel together; None lets this class decide.
        reraise: whether the map ends with the first call that fails, in the order of the calls; a
            call that cannot be pickled raises at once. Otherwise each error is its call's outcome.
    """

    def __init__(
        self,
        submission: Submission,
        total: int | None,
        chunksize: int | None,
        *,
        reraise: bool = False,
    ) -> None:
        self.submission = submission
        self.results = MapResults()
        self.total = total
        self._chunksize = chunksize
        self._reraise = reraise
        self.add = submission.adder(reraise=reraise)

    def send(self, calls: Iterator[Any], wait: Callable[[float], object] | None = None) -> None:
        """Send all calls in blocks. The first block is small, so that work begins soon; later
        blocks grow to a good size for travelling.

        Waking the I/O thread costs more than pickling a small block. So blocks gather for a moment,
        unless the next call may take long to arrive. When many bytes wait for workers, this waits
        until workers have taken some, by `wait` (default: `take`).
        """
        submission = self.submission
        total, dispatcher = self.total, submission.dispatcher
        gather_seconds = 0.0 if total is None or dispatcher.at_once else GATHER_SECONDS
        size, flush_at = self._chunksize or 1, time.monotonic() + gather_seconds
        while block := list(itertools.islice(calls, size)):
            first = len(self.results.values)
            self.results.expect(len(block))
            weight = self.add(block, first)
            if time.monotonic() >= flush_at or not submission.has_room():
                submission.flush()
                if not self.proceed(wait or self.take):
                    return
                flush_at = time.monotonic() + gather_seconds
            if self._chunksize is None and len(self.results.values) != total:
                size = next_size(size, weight, total, dispatcher.slots)
        submission.flush()

    def proceed(self, wait: Callable[[float], object]) -> bool:
        """Collect outcomes, and wait until there is room for calls; return whether to send more."""
        self.take(0)
        while not self.submission.has_room():
            wait(LOOK_SECONDS)
        return not self._reraise or self.results.first_error is None

    def take(self, timeout: float | None) -> bool:
        """Collect the outcomes that have arrived, waiting up to `timeout` seconds for the first;
        return whether there were any. With `reraise`, cancel the calls after the first error, and
        raise it once all calls before it have succeeded.
        """
        results, taken = self.results, False
        known = results.first_error
        for outcome in self.submission.outcomes(timeout):
            results.put(outcome)
            taken = True
            del outcome  # breaks a cycle of the outcome with an error that is raised
        if self._reraise and results.first_error is not None:
            results.raise_first_error()
            if results.first_error != known:
                self.submission.cancel_after(results.first_error)
        return taken

    def stop(self, error: BaseException) -> None:
        """Cancel the calls that have not ended, and attach the results so far to an error; see
        `MapResults.so_far`.
        """
        self.submission.cancel()
        for outcome in self.submission.outcomes(0):  # those that have arrived and were not read
            self.results.put(outcome)
            del outcome
        results = self.results.so_far(self.total)
        results.attach(error)
        if isinstance(error, KeyboardInterrupt):
            ended = len(self.results.values) - self.results.missing
            lines = [
                f"`results` of this exception has the results of {ended} of {len(results)} calls; "
                "at a prompt, `sys.last_value.results`"
            ]
            if name := self.submission.run_name:
                again = "when the script is run again, it makes only the other calls"
                lines.append(f"they are on disk in the run {name!r}: {again}")
            note_on(error, lines)

    def _await_next(self, position: int, seconds_left: Callable[[], float | None]) -> int:
        """Wait for the result at this position; return the end of the results that are there."""
        while (stop := self.results.settled_from_start()) == position:
            left = seconds_left()
            if not self.take(left if left is None else max(left, 0.0)):
                raise TimeoutError
        return stop

    def in_order(self, seconds_left: Callable[[], float | None]) -> Iterator[Any]:
        """Yield the results in order. Whatever ends the iteration cancels the remaining calls.

        Raises, when its turn comes:
            TimeoutError: a result is not there within the seconds that `seconds_left` returns.
            Exception: a call raised it.
        """
        results, position = self.results, 0
        try:
            while position < len(results.values):
                stop = results.settled_from_start()
                if stop == position:
                    with WithoutSlot(self.submission.dispatcher.call_slot):
                        stop = self._await_next(position, seconds_left)
                error = results.first_error
                if error is not None and error < stop:
                    stop = error
                coming = results.values[position:stop]
                results.values[position:stop] = itertools.repeat(None, stop - position)
                coming.reverse()
                # Results are popped as they are yielded, so that this list does not keep them.
                yield from map(list.pop, itertools.repeat(coming, len(coming)))
                results.raise_first_error()
                position = stop
        except BaseException as error:
            trim(error)
            raise
        finally:
            self.submission.cancel()


def next_size(size: int, pickled: int, total: int | None, slots: int) -> int:
    """Return how many calls the next block gets, after a block of `size` calls with `pickled`
    bytes. Blocks grow only so far that every slot gets some.
    """
    if pickled < TINY_BLOCK:
        return GROWTH * size
    if pickled < SMALL_BLOCK:
        most = LARGE_BLOCK
        if total is not None:
            modest = min(size * MODEST_BLOCK // pickled, -(-total // (SHARES * slots)))
            most = max(modest, -(-total // (SMALL_SHARES * slots)), 1)
        return min(GROWTH * size, most)
    return max(size // 2, 1) if pickled > LARGE_BLOCK else size
