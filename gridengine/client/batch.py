"""Single calls that are handed over together, as one task."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence

from gridengine.client.future import RUNNING, CallFuture, CallTemplate
from gridengine.client.outcomes import OutcomeListener
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.serialize import pickling
from gridengine.serialize.argument_snapshot import CallSnapshot
from gridengine.serialize.encoding import with_needs
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_objects import needs_of


class Batch(OutcomeListener):
    """Calls of one template that were handed over as one task.

    `load` is that of each call, none for one that waits for the results of others. `unsettled` is
    how many have not ended. `unwanted` calls are cancelled should they be given back.
    """

    __slots__ = ("futures", "load", "on_event", "template", "unsettled", "unwanted")

    def __init__(
        self,
        futures: Sequence[CallFuture],
        load: int,
        on_event: Callable[[Batch, CallsFinished], None],
    ) -> None:
        self.futures = futures
        self.template: CallTemplate = futures[0].template
        self.load = load
        self.on_event = on_event
        self.unsettled = len(futures)
        self.unwanted: set[CallFuture] = set()

    def settled(self, event: CallsFinished) -> None:
        self.on_event(self, event)

    def abandoned(self) -> None:
        """Hand over nothing of what waits with these calls."""
        self.template.batcher.withdraw_waiting()

    def running(self) -> list[CallFuture]:
        """Return the calls that have no outcome yet."""
        return [future for future in self.futures if future.outcome is RUNNING]

    def payload(self) -> Payload:
        """Return the pickled list of the calls."""
        if len(self.futures) == 1:
            call = self.futures[0].call
            return call.payload if type(call) is CallSnapshot else [pickle.dumps([call], 5)]
        calls = [future.call for future in self.futures]
        needs = [needs_of(call.payload) for call in calls if type(call) is CallSnapshot]
        if not needs:
            # Constants need no pickler of our own, which takes its time to begin.
            return [pickle.dumps(calls, 5)]
        payload = pickling.dump_calls(calls, form=self.template.form)
        return with_needs(payload, *needs) if any(needs) else payload
