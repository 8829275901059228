"""Submissions of a run with a name: calls that were made before are not handed over, and what comes
of the others is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

from msgspec.structs import replace

from gridengine.client.kept_run import KeptFunction, KeptRun
from gridengine.client.outcomes import Outcome, outcomes_of
from gridengine.client.submission import MapRequest, Submission
from gridengine.client.tracked_submission import TrackedSubmission
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.journal.call_keys import is_plain
from gridengine.journal.known_calls import Piece

Add: TypeAlias = Callable[[Sequence[Any], int], int]


class KeptSubmission(Submission):
    """A submission whose results are kept. `keep` comes before all else."""

    _kept: KeptFunction
    _run: KeptRun | None = None
    """What is to be closed with this."""

    @classmethod
    def of(cls, request: MapRequest) -> Self:
        """As `Submission.of`.

        Raises:
            JournalError: another process has the run, or its file cannot be read.
        """
        assert request.kept is not None
        run = KeptRun(request.kept, request.scheduler)
        try:
            made = super().of(replace(request, scheduler=run.place))
            made._run = run
            made.keep(run.function(request.f, made._function), run.first)
        except BaseException:
            run.close()
            raise
        return made

    def keep(self, kept: KeptFunction, first: int) -> None:
        """Keep what comes of these calls; the first of them is number `first` of the run."""
        self._kept = kept
        self._first = first
        self._places: dict[int, tuple[int, int]] = {}
        """Of each task the block of its calls, and the place of the first there."""
        self._is_adding = False

    def add(self, calls: Sequence[Any], first: int) -> int:
        """Add those of these calls that are not known, as tasks."""
        return self._add_unknown(calls, first, super().add)

    def add_what_can_travel(self, calls: Sequence[Any], first: int) -> int:
        return self._add_unknown(calls, first, super().add_what_can_travel)

    def _add_unknown(self, calls: Sequence[Any], first: int, add: Add) -> int:
        kept = self._kept
        pieces = None if self._is_adding else kept.take(calls, self._form, self._first + first)
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
        return size or kept.pickled

    def _add_halves(self, calls: Sequence[Any], first: int, add: Add) -> int:
        """Add calls of which some have no key: those are not kept."""
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
        """Return the outcomes of known calls; None when they are to be made."""
        found = self._kept.outcome(piece)
        if found is None:
            return None
        if isinstance(found, CallsFinished):
            return outcomes_of(found, self._function.name, first=first)
        return [Outcome(first + piece.start, first + piece.stop, found, None)]

    def _add_new(self, calls: Sequence[Any], first: int, piece: Piece, add: Add) -> int:
        first += piece.start
        block, keys = piece.block, None
        if not block and not is_plain(calls):
            keys = self._kept.keys_of(calls, self._form)
            if keys is None:
                return self._add_halves(calls, first, add)
        before = len(self._added)
        size = self._add(calls, first, add)
        tasks = self._added[before:]
        if self._run is not None:
            self._run.note_submitter(self.dispatcher, self._submitter)
        if not block:
            arguments = tasks[0].payload if len(tasks) == 1 else None
            block = self._kept.new_block(calls, self._form, self._first + first, arguments, keys)
        for task in tasks:
            at = piece.offset + task.first - first
            self._places[task.id] = block, at
            self._kept.hand_over(task.id, 0, task.count, block, at)
        return size

    def settled(self, event: CallsFinished) -> None:
        place = self._places.pop(event.task, None)
        if place is not None:
            if not event.last:
                self._places[event.task] = place
            start = place[1] + event.start
            self._kept.note(place[0], start, start + event.stop - event.start, event)
        super().settled(event)

    def note_all_sent(self) -> None:
        super().note_all_sent()
        self._kept.log_counts()

    def close(self) -> None:
        """As that of `Submission`; what there is to keep is on disk then."""
        try:
            super().close()
        finally:
            if self._run is not None:
                self._run.close()


class KeptTrackedSubmission(KeptSubmission, TrackedSubmission):
    """Such a submission of an executor."""
