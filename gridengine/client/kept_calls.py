"""The single calls of an executor whose run has a name: found again when they are submitted, and
kept as they end.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from gridengine.client.batch import Batch
from gridengine.client.batcher import Batcher
from gridengine.client.future import (
    CallFuture,
    CallTemplate,
    UndecodedResult,
)
from gridengine.client.kept_graph import KeptGraph
from gridengine.client.kept_run import KeptFunction, RunUser
from gridengine.client.kept_submission import KeptTrackedSubmission
from gridengine.client.run_options import RunOptions
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.schedulers.base import SchedulerSpec
from gridengine.serialize.payload import Payload
from gridengine.serialize.references import Reference


class KeptFuture(CallFuture):
    """The future of a call whose result is to be kept: what its function has in the run, its key,
    which call of the run it is, and its place among those that are kept, once it has one.
    """

    __slots__ = ("block", "kept", "key", "number", "offset")

    def __init__(self, template: CallTemplate, call: Any, kept: KeptFunction, key: bytes) -> None:
        super().__init__(template, call)
        self.kept, self.key = kept, key
        self.number = self.block = self.offset = 0


class KeptCalls(RunUser):
    """What a batcher tells of the calls of such an executor."""

    def __init__(self, options: RunOptions, place: SchedulerSpec) -> None:
        super().__init__(options, place)
        self.options = msgspec.structs.replace(options, resume=options.resume or True)
        """As of others that share the run."""
        self._lock = threading.Lock()

    def future_of(
        self, f: Callable[..., Any], template: CallTemplate, call: Any, given: Any
    ) -> CallFuture:
        """Return the future of a call: with its outcome, when that is known. `call` is what is to
        be handed over, `given` what the user gave.
        """
        with self._lock:
            kept = self._run.function(f, template.function)
            keys = kept.keys_of([given], template.form)
            if keys is None:
                return CallFuture(template, call)
            number = next(self._numbers)
            piece, found = kept.look_up(keys[0], number)
        if found is not None:
            outcome = UndecodedResult(found) if isinstance(found, CallsFinished) else found[0]
            return CallFuture(template, None, outcome)
        future = KeptFuture(template, call, kept, keys[0])
        future.number, future.block, future.offset = number, piece.block, piece.offset
        return future

    def submission(
        self,
        f: Callable[..., Any],
        template: CallTemplate,
        batcher: Batcher,
        references: tuple[Reference, ...],
    ) -> KeptTrackedSubmission:
        """Return a submission of many calls, which are a map of the run's."""
        made = KeptTrackedSubmission(template, batcher, references)
        with self._lock:
            made.keep(self._run.function(f, template.function), self._run.begin())
        return made

    def graph(self, template_of: Callable[[Callable[..., Any]], CallTemplate]) -> KeptGraph:
        """Return what is to be told of a graph's calls."""
        return KeptGraph(self._run, self._numbers, template_of)

    def handed_over(self, task: int, batch: Batch, payload: Payload) -> None:
        """Note which calls are handed over, before they are."""
        new = [one for one in batch.futures if isinstance(one, KeptFuture) and not one.block]
        if new:
            self._add_block(new, batch, payload)
        if self._run.left_at:
            for item, stop, first in _in_a_row(batch.futures):
                first.kept.hand_over(task, item, stop, first.block, first.offset)

    def _add_block(self, new: list[KeptFuture], batch: Batch, payload: Payload) -> None:
        arguments = payload if len(new) == len(batch.futures) else None
        keys = b"".join(one.key for one in new)
        numbers = [one.number for one in new]
        block = new[0].kept.add_block(batch.template.form, numbers, arguments, keys)
        for offset, one in enumerate(new):
            one.block, one.offset = block, offset

    def settled(self, futures: Sequence[CallFuture], event: CallsFinished) -> None:
        """Keep the outcome of these calls; in the I/O thread."""
        for item, stop, first in _in_a_row(futures):
            first.kept.note(first.block, first.offset, first.offset + stop - item, event, item=item)


def _in_a_row(futures: Iterable[CallFuture]) -> Iterator[tuple[int, int, KeptFuture]]:
    """Yield, of calls that ended together, those that follow each other where they are kept: from
    which to which of them, and the first.
    """
    numbered = [(place, one) for place, one in enumerate(futures) if isinstance(one, KeptFuture)]
    for _, group in itertools.groupby(
        numbered, lambda pair: (pair[1].block, pair[1].offset - pair[0])
    ):
        row = list(group)
        yield row[0][0], row[-1][0] + 1, row[0][1]
