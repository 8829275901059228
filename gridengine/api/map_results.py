"""Return the results of `map` and its kin: all at once, or one after the other."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from gridengine.arguments import flag
from gridengine.calls.interface import WithoutSlot
from gridengine.client.map_run import SHARES, SMALLEST_WINDOW, MapRun
from gridengine.client.outcomes import warn_of_exit
from gridengine.client.submission import MapRequest, Submission, numbered
from gridengine.errors import RemoteTraceback, SchedulerUnavailable, trim
from gridengine.settings.values import settings
from gridengine.threads import Closing

if TYPE_CHECKING:
    from gridengine.api.map_notices import MapNotices
    from gridengine.api.progress import ProgressBar, ProgressSpec

QUICK_SECONDS = 0.25
"""A map that ends within this time shows no progress, and does not import how it is shown."""
T = TypeVar("T")
Value = TypeVar("Value")


def gather(
    request: MapRequest, calls: Iterator[Any], total: int | None, progress: ProgressSpec
) -> list[Any]:
    """Submit all calls while earlier ones run, and return their results in order."""
    head = list(itertools.islice(calls, 1))
    if not head:
        return []
    calls = itertools.chain(head, calls)
    if request.options.seed is not None:
        request, calls = numbered(request, calls)
    submission = Submission.of(request)
    run = WatchedRun(submission, total, request.chunksize, reraise=request.reraise)
    slot, results = submission.dispatcher.call_slot, run.results
    run.progress = progress if slot is None else _shown(progress, submission)
    notify = request.notify or (settings().notify if slot is None else "")
    if notify:
        from gridengine.api.map_notices import MapNotices  # few want messages

        run.notices = MapNotices(notify, submission.name, always=request.notify is not None)
    try:
        submission.warn_of_copies(request.f, total)
        if progress is not None and not isinstance(progress, bool):
            run.bar = run.make_bar()
        run.send(calls, run.watch)
        run.total = len(results.values)
        if request.named_run is not None:
            submission.note_all_sent()
        if results.missing and slot is not None:
            # Give the slot back once for all results, not for each.
            with WithoutSlot(slot):
                while results.missing:
                    run.watch()
        while results.missing:
            run.watch()
        if len(results.errors) == len(results.values):
            _raise_if_of_map(results.errors[0])  # no call began, so raise even without reraise
    except BaseException as error:
        run.stop(error)
        raise
    finally:  # after an error or Ctrl-C too: cancel unfinished calls
        if run.bar is not None:
            run.show()
            run.bar.close()
        submission.close()
        if run.notices is not None:
            run.notices.ended(results, run.total)
    return results.with_errors() if results.errors else results.values


def _raise_if_of_map(error: BaseException) -> None:
    """Raise an error that keeps all calls of the map from being made, namely that there is no batch
    system. The same error from inside a call, which has a `RemoteTraceback`, is that call's outcome
    instead.
    """
    if type(error) is SchedulerUnavailable and not isinstance(error.__cause__, RemoteTraceback):
        raise error


def _shown(progress: ProgressSpec, submission: Submission) -> ProgressSpec:
    """Return whether progress is shown: None follows the setting, but inside a call it is False."""
    inside = submission.dispatcher.call_slot is not None
    return False if inside and progress is None else progress


class WatchedRun(MapRun):
    """A map that shows its progress. Calls that end at once have no bar."""

    progress: ProgressSpec = None
    bar: ProgressBar | None = None
    notices: MapNotices | None = None

    def watch(self, most: float | None = None) -> None:
        """Take outcomes. Wait for the first at most `most` seconds, or until it is time to draw."""
        results, bar = self.results, self.bar
        left = QUICK_SECONDS if bar is None else bar.wait_seconds()
        self.take(left if most is None else min(left or most, most))
        if results.errors and self.notices is not None:
            self.notices.failed(results, self.total)
        if results.missing or bar is not None:
            self.bar = bar or self.make_bar()
            self.show()

    def make_bar(self) -> ProgressBar:
        """Return a new bar."""
        from gridengine.api.progress import ProgressBar  # quick maps need none

        submission = self.submission
        return ProgressBar(submission.snapshot, shown=self.progress, label=submission.name)

    def show(self) -> None:
        """Update the bar."""
        results = self.results
        if self.bar is not None:
            done = len(results.values) - results.missing
            self.bar.update(done, len(results.errors), self.total)


class ResultIterator(Closing, Generic[T]):
    """The iterator that `imap` returns. It has `close()`, is a context manager, and belongs to one
    thread at a time.
    """

    def __init__(
        self,
        request: MapRequest,
        calls: Iterator[Any],
        *,
        ordered: bool,
        with_index: bool = False,
        total: int | None = None,
        progress: ProgressSpec = False,
    ) -> None:
        if request.options.seed is not None:
            request, calls = numbered(request, calls)
        self._reraise = request.reraise
        self._chunksize = request.chunksize or 1
        self._calls = calls
        self._ordered = ordered
        self._with_index = flag("with_index", with_index)
        submission = self._submission = Submission.of(request)
        self._add = submission.adder(reraise=False)
        self._window = max(SMALLEST_WINDOW, SHARES * submission.dispatcher.slots * self._chunksize)
        self._ready: OrderedDict[int, tuple[Any, BaseException | None]] = OrderedDict()
        self._submitted = 0
        self._given = 0
        self._failed = 0
        self._total = total
        # As with `map`, there is no bar for calls in this process.
        shown = _shown(progress, submission)
        if submission.dispatcher.at_once and (shown is None or isinstance(shown, bool)):
            shown = False
        from gridengine.api.progress import ProgressBar  # `map` may need none

        self._bar = ProgressBar(submission.snapshot, shown=shown, label=submission.name)
        self._closed = False
        self._fault: Exception | None = None
        self._at_once = False
        # An iterator that is dropped, or open when the interpreter exits, cancels its calls. It
        # does not wait for workers to end, because the collector may run in any thread.
        self._finalizer = weakref.finalize(self, _abandon, submission, self._bar)
        self._or_close(lambda: submission.warn_of_copies(request.f, total))
        self._or_close(self._fill)

    def close(self) -> None:
        """Cancel the calls that have not ended; the iterator ends. May be called twice."""
        self._closed = True
        self._ready.clear()
        self._given = self._submitted
        self._finalizer.detach()
        self._bar.close()
        self._submission.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        self._or_close(self._await_next)
        try:
            return self._give()
        except BaseException as error:
            trim(error)
            raise

    def _give(self) -> T:
        """Return the next result, or raise the error in its place; at the end raise
        `StopIteration`, or the exception of the iterable.
        """
        if not self._has_next():
            self._show_progress()
            self.close()
            fault, self._fault = self._fault or StopIteration(), None
            try:
                raise fault
            finally:
                del fault
        index = self._given if self._ordered else next(iter(self._ready))
        value, error = self._ready.pop(index)
        self._given += 1
        if error is not None and self._failed == self._given + len(self._ready):
            _raise_if_of_map(error)
        if error is None or not self._reraise:
            value = value if error is None else error
            return (index, value) if self._with_index else value  # type: ignore[return-value]
        try:
            if isinstance(error, StopIteration | StopAsyncIteration):
                # A StopIteration would end the iteration as if all were done: see PEP 479.
                raise RuntimeError(f"a call raised {type(error).__name__}") from error
            warn_of_exit(error)
            raise error
        finally:
            del error  # break the cycle between the error and the traceback's frame

    def _or_close(self, act: Callable[[], Value]) -> Value:
        """Call `act`; after an error or a Ctrl-C, cancel everything."""
        try:
            return act()
        except BaseException:
            self.close()
            raise

    def _await_next(self) -> None:
        with WithoutSlot(None if self._has_next() else self._submission.dispatcher.call_slot):
            for seconds in self._waits():
                self._take(seconds)

    def _waits(self) -> Iterator[float | None]:
        """Yield for how many seconds to wait for outcomes; between two of these the caller takes
        them. Ends once the next result, or the end, is there.
        """
        if not (self._at_once and self._has_next()):
            self._fill()
        while not self._has_next() and self._fill():
            waits = self._bar.wait_seconds(), self._submission.wait_seconds()
            yield min((one for one in waits if one is not None), default=None)
            self._show_progress()

    def _has_next(self) -> bool:
        return self._given in self._ready if self._ordered else bool(self._ready)

    def _fill(self) -> bool:
        """Submit calls while there is room in the window. Return whether any call is under way, or
        a result is there.

        Calls that end at once, as inline ones do, are not run ahead of the taking of their results.
        """
        room = self._window - (self._submitted - self._given)
        if room < self._window // SHARES and not self._submission.finished:
            return True  # submitting a few at a time costs more than it gains
        has_room = self._submission.has_room
        while room > 0 and not self._closed and has_room() and (block := self._next_block()):
            self._submit(block)
            self._take(0)
            self._at_once = self._submission.finished
            room = 0 if self._at_once else room - len(block)
        return self._submitted > self._given

    def _next_block(self) -> list[Any]:
        """Take the next arguments; none when the iterable has ended or raised. Its exception is
        raised after all results.
        """
        block: list[Any] = []
        try:
            block.extend(itertools.islice(self._calls, self._chunksize))
        except Exception as error:
            self._fault = error
        if len(block) < self._chunksize:
            self._calls = iter(())  # who asks an iterator after its end may wait or lose elements
        if not block:
            self._submission.note_all_sent()
        return block

    def _submit(self, block: list[Any]) -> None:
        first = self._submitted
        self._submitted += len(block)
        self._add(block, first)
        self._submission.flush()
        self._show_progress()

    def _show_progress(self) -> None:
        done = self._given + len(self._ready)
        self._bar.update(done, self._failed, self._total)
        if done == self._total:  # now, because the last results may be taken much later
            self._bar.close()

    def _take(self, timeout: float | None) -> None:
        for outcome in self._submission.outcomes(timeout):
            if outcome.error is not None:
                self._failed += outcome.stop - outcome.start
            for index in range(outcome.start, outcome.stop):
                value = outcome.values[index - outcome.start] if outcome.error is None else None
                self._ready[index] = (value, outcome.error)


class AsyncResultIterator(Generic[T]):
    """The asynchronous iterator that `aimap` returns. It has `aclose()`, is an asynchronous context
    manager, and belongs to one task at a time.
    """

    def __init__(self, results: ResultIterator[T]) -> None:
        self._results = results

    async def aclose(self) -> None:
        """Cancel the calls that have not ended; the iterator ends. May be called twice."""
        from gridengine.client.loop_tasks import in_thread

        await in_thread(self._results.close, lambda: None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        from gridengine.client.loop_tasks import checkpoint

        results = self._results
        try:
            await checkpoint()
            for seconds in results._waits():
                await results._submission.wait(seconds)
                results._take(0)
        except GeneratorExit:  # the loop is gone, so nothing can be awaited
            results._submission.cancel()
            raise
        except BaseException:
            await self.aclose()
            raise
        if not results._has_next():
            await self.aclose()
        try:
            return results._give()
        except StopIteration:
            raise StopAsyncIteration from None
        except BaseException as error:
            trim(error)
            raise


def _abandon(submission: Submission, bar: ProgressBar) -> None:
    submission.cancel()
    bar.close()
