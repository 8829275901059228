"""The maps, single calls and jobs of a named run.

Each of them asks the run (`named_run`) which calls have a result. Calls with a result are not
submitted. The outcomes of all other calls are written to the run's file as they arrive.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from gridengine.calls.interface import Dispatcher
from gridengine.client.batch import Batch
from gridengine.client.batcher import Batcher
from gridengine.client.future import (
    CallFuture,
    CallTemplate,
    UndecodedResult,
)
from gridengine.client.named_run import OpenRun, RunFunction, RunUser
from gridengine.client.named_run_graph import RunGraph
from gridengine.client.options import RunOptions
from gridengine.client.outcomes import Outcome, outcomes_of
from gridengine.client.submission import MapRequest, Submission
from gridengine.client.tracked_submission import TrackedSubmission
from gridengine.dispatcher.core.tasks import CallsFinished, Function, Task
from gridengine.dispatcher.unsettled import Listener
from gridengine.journal.call_keys import is_plain
from gridengine.journal.known_calls import Piece
from gridengine.schedulers.base import SchedulerSpec
from gridengine.serialize import pickling
from gridengine.serialize.payload import FULL, Payload
from gridengine.serialize.references import Reference

Add: TypeAlias = Callable[[Sequence[Any], int], int]


class RunSubmission(Submission):
    """A submission whose results are recorded in a named run. Call `record_in` first."""

    _run_function: RunFunction
    _run: OpenRun | None = None
    """The use of the run to close with this submission."""

    @classmethod
    def of(cls, request: MapRequest) -> Self:
        """Return a submission for a user's request, like `Submission.of`.

        Raises:
            JournalError: another process has the run, or its file cannot be read.
        """
        assert request.named_run is not None
        run = OpenRun(request.named_run, request.scheduler)
        try:
            made = super().of(replace(request, scheduler=run.place))
            made._run = run
            made.run_name = request.named_run.name
            made.record_in(run.function(request.f, made._function), run.first)
        except BaseException:
            run.close()
            raise
        return made

    def record_in(self, run_function: RunFunction, first: int) -> None:
        """Record the outcomes of these calls. The first of them is number `first` of the run."""
        self._run_function = run_function
        self._first = first
        self._places: dict[int, tuple[int, int]] = {}
        """For each task: the block of its calls, and the place of its first call there."""
        self._is_adding = False

    def add(self, calls: Sequence[Any], first: int) -> int:
        """Add the calls that are not known as tasks; the others get their outcomes at once."""
        return self._add_unknown(calls, first, super().add)

    def add_what_can_travel(self, calls: Sequence[Any], first: int) -> int:
        return self._add_unknown(calls, first, super().add_what_can_travel)

    def _add_unknown(self, calls: Sequence[Any], first: int, add: Add) -> int:
        """Look up calls, put the outcomes of known ones into the queue, and add the others. Return
        the size of the calls in bytes.
        """
        run_function = self._run_function
        pieces = (
            None if self._is_adding else run_function.take(calls, self._form, self._first + first)
        )
        if pieces is None:
            return add(calls, first) if self._is_adding else self._add_halves(calls, first, add)
        size = 0
        for piece in pieces:
            outcomes = self._outcomes(piece, first)
            if outcomes is None:
                size += self._add_new(calls[piece.start : piece.stop], first, piece, add)
            else:
                for outcome in outcomes:
                    self._events.put(outcome)
        return size or run_function.pickled

    def _add_halves(self, calls: Sequence[Any], first: int, add: Add) -> int:
        """Add calls of which some have no key; those are not recorded. Halving finds them."""
        if len(calls) > 1:
            half = len(calls) // 2
            size = self._add_unknown(calls[:half], first, add)
            return size + self._add_unknown(calls[half:], first + half, add)
        return self._add(calls, first, add)

    def _add(self, calls: Sequence[Any], first: int, add: Add) -> int:
        self._is_adding = True
        try:
            return add(calls, first)
        finally:
            self._is_adding = False

    def _outcomes(self, piece: Piece, first: int) -> list[Outcome] | None:
        """Return the outcomes of known calls; None if they must be made."""
        found = self._run_function.outcome(piece)
        if found is None:
            return None
        if isinstance(found, CallsFinished):
            return outcomes_of(found, self._function.name, first=first)
        return [Outcome(first + piece.start, first + piece.stop, found, None)]

    def _add_new(self, calls: Sequence[Any], first: int, piece: Piece, add: Add) -> int:
        """Add the calls of an unknown piece, and record their tasks and, if they are new, their
        block.
        """
        first += piece.start
        block, keys = piece.block, None
        if not block and not is_plain(calls):
            keys = self._run_function.keys_of(calls, self._form)
            if keys is None:
                return self._add_halves(calls, first, add)
        before = len(self._added)
        size = self._add(calls, first, add)
        tasks = self._added[before:]
        if self._run is not None:
            self._run.note_submitter(self.dispatcher, self._submitter)
        if not block:
            arguments = tasks[0].payload if len(tasks) == 1 else None
            block = self._run_function.new_block(
                calls, self._form, self._first + first, arguments, keys
            )
        for task in tasks:
            at = piece.offset + task.first - first
            self._places[task.id] = block, at
            self._run_function.hand_over(task.id, 0, task.count, block, at)
        return size

    def settled(self, event: CallsFinished) -> None:
        place = self._places.pop(event.task, None)
        if place is not None:
            if not event.last:
                self._places[event.task] = place
            start = place[1] + event.start
            self._run_function.note(place[0], start, start + event.stop - event.start, event)
        super().settled(event)

    def note_all_sent(self) -> None:
        super().note_all_sent()
        self._run_function.log_counts()

    def close(self) -> None:
        """Close like `Submission`. Afterwards all outcomes are on disk."""
        try:
            super().close()
        finally:
            if self._run is not None:
                self._run.close()


class TrackedRunSubmission(RunSubmission, TrackedSubmission):
    """A recorded submission of an executor."""


class RunFuture(CallFuture):
    """The future of a call whose outcome is to be recorded: the call's function in the run, its
    key, its number in the run's order, and its place in the run's file (`block` and `offset`; block
    0 if it has none yet).
    """

    __slots__ = ("block", "key", "number", "offset", "run_function")

    def __init__(
        self, template: CallTemplate, call: Any, run_function: RunFunction, key: bytes
    ) -> None:
        super().__init__(template, call)
        self.run_function, self.key = run_function, key
        self.number = self.block = self.offset = 0


class RunCalls(RunUser):
    """Records the single calls of an executor that uses a named run."""

    def __init__(self, options: RunOptions, place: SchedulerSpec) -> None:
        super().__init__(options, place)
        self.options = msgspec.structs.replace(options, resume=options.resume or True)
        """Options for maps that share the run. They resume even with `resume=False`, because the
        run has begun anew already.
        """
        self._lock = threading.Lock()

    def future_of(
        self, f: Callable[..., Any], template: CallTemplate, call: Any, given: Any
    ) -> CallFuture:
        """Return the future of a call, with its outcome if that is known. `call` is the call to
        hand over, `given` the call as the user gave it.
        """
        with self._lock:
            run_function = self._run.function(f, template.function)
            keys = run_function.keys_of([given], template.form)
            if keys is None:
                return CallFuture(template, call)
            number = next(self._numbers)
            piece, found = run_function.look_up(keys[0], number)
        if found is not None:
            outcome = UndecodedResult(found) if isinstance(found, CallsFinished) else found[0]
            return CallFuture(template, None, outcome)
        future = RunFuture(template, call, run_function, keys[0])
        future.number, future.block, future.offset = number, piece.block, piece.offset
        return future

    def submission(
        self,
        f: Callable[..., Any],
        template: CallTemplate,
        batcher: Batcher,
        references: tuple[Reference, ...],
    ) -> TrackedRunSubmission:
        """Return a submission of many calls, which count as one map of the run."""
        made = TrackedRunSubmission(template, batcher, references)
        with self._lock:
            made.record_in(self._run.function(f, template.function), self._run.begin())
        return made

    def graph(self, template_of: Callable[[Callable[..., Any]], CallTemplate]) -> RunGraph:
        """Return the recorder for a graph's calls."""
        return RunGraph(self._run, self._numbers, template_of)

    def handed_over(self, task: int, batch: Batch, payload: Payload) -> None:
        """Record which calls are handed over, before they are."""
        new = [one for one in batch.futures if isinstance(one, RunFuture) and not one.block]
        if new:
            self._add_block(new, batch, payload)
        if self._run.left_at:
            for item, stop, first in _in_a_row(batch.futures):
                first.run_function.hand_over(task, item, stop, first.block, first.offset)

    def _add_block(self, new: list[RunFuture], batch: Batch, payload: Payload) -> None:
        arguments = payload if len(new) == len(batch.futures) else None
        keys = b"".join(one.key for one in new)
        numbers = [one.number for one in new]
        block = new[0].run_function.add_block(batch.template.form, numbers, arguments, keys)
        for offset, one in enumerate(new):
            one.block, one.offset = block, offset

    def settled(self, futures: Sequence[CallFuture], event: CallsFinished) -> None:
        """Record the outcome of these calls; in the I/O thread."""
        for item, stop, first in _in_a_row(futures):
            first.run_function.note(
                first.block, first.offset, first.offset + stop - item, event, item=item
            )


def _in_a_row(futures: Iterable[CallFuture]) -> Iterator[tuple[int, int, RunFuture]]:
    """Group calls that ended together into rows whose places in the file are consecutive. Yield the
    first and last index of each row, exclusive, and its first call.
    """
    numbered = [(place, one) for place, one in enumerate(futures) if isinstance(one, RunFuture)]
    for _, group in itertools.groupby(
        numbered, lambda pair: (pair[1].block, pair[1].offset - pair[0])
    ):
        row = list(group)
        yield row[0][0], row[-1][0] + 1, row[0][1]


class RunJobs(RunUser):
    """Records jobs in a named run. A job is known by its target and the target's arguments."""

    _submitter = 0
    """The submitter's number of all jobs, once there are any."""

    def place_of(self, target: Any, call: Any, dispatcher: Dispatcher) -> Dispatcher:
        """Return the dispatcher to submit a job to, given its target and the target's call: one
        that records the outcome, or one that has it. If the job cannot be recorded, return
        `dispatcher`.
        """
        digest, payload = pickling.dump_function(target)
        run_function = self._run.function(target, Function(digest, payload, (), b"", ""))
        keys = run_function.keys_of([call], FULL)
        if keys is None:
            return dispatcher
        if not self._submitter:
            self._submitter = dispatcher.new_id()
            self.note_submitter(dispatcher, self._submitter)
        number = next(self._numbers)
        piece, found = run_function.look_up(keys[0], number)
        place: Any = _RunDispatcher(dispatcher, run_function, self._submitter)
        if isinstance(found, CallsFinished):
            place.end = found
        elif found is not None:
            place.end = CallsFinished(0, 0, 1, pickling.dump_values(found))
        elif piece.block:
            place.place = piece.block, piece.offset
        else:
            arguments = pickling.dump_calls([call])
            place.place = run_function.add_block(FULL, [number], arguments, keys[0]), 0
        return place  # type: ignore[no-any-return]


class _RunDispatcher:
    """A dispatcher that one job is submitted to. `place` is where the outcome is recorded, `end` is
    the outcome if it is known.
    """

    end: CallsFinished | None = None
    place = 0, 0

    def __init__(self, dispatcher: Dispatcher, run_function: RunFunction, submitter: int) -> None:
        self._dispatcher = dispatcher
        self._run_function = run_function
        self._submitter = submitter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        if self.end is not None:
            listener.settled(self.end)
        else:
            for one in tasks:
                self._run_function.hand_over(one.id, 0, 1, *self.place)
            tasks = [replace(one, submitter=self._submitter) for one in tasks]
            self._dispatcher.submit(
                function, tasks, _RecordingListener(listener, self._run_function, self.place)
            )


class _RecordingListener:
    """Passes on the events of a job's listener, and records the job's outcome."""

    def __init__(
        self, listener: Listener, run_function: RunFunction, place: tuple[int, int]
    ) -> None:
        self.daemon = listener.daemon
        self.began, self.noted = listener.began, listener.noted
        self.abandoned = listener.abandoned
        self._settled = listener.settled
        self._run_function = run_function
        self._place = place

    def settled(self, event: CallsFinished) -> None:
        block, offset = self._place
        self._run_function.note(block, offset, offset + 1, event)
        self._settled(event)
