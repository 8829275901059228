"""The jobs of a run with a name: those that have returned before are not run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from gridengine.client.kept_run import KeptFunction, RunUser
from gridengine.dispatcher.core.tasks import CallsFinished, Function, Task
from gridengine.dispatcher.interface import Dispatcher, Listener
from gridengine.serialize import pickling
from gridengine.serialize.payload import FULL


class KeptJobs(RunUser):
    """Jobs are calls of their targets: that is what they are known by."""

    _submitter = 0
    """The number that all jobs have in common, once there are any."""

    def place_of(self, target: Any, call: Any, dispatcher: Dispatcher) -> Dispatcher:
        """Return the dispatcher to submit a job to, given its target and what that is called with:
        this one, and the outcome is kept; or one that has the outcome.
        """
        digest, payload = pickling.dump_function(target)
        kept = self._run.function(target, Function(digest, payload, (), b"", ""))
        keys = kept.keys_of([call], FULL)
        if keys is None:
            return dispatcher
        if not self._submitter:
            self._submitter = dispatcher.new_id()
            self.note_submitter(dispatcher, self._submitter)
        number = next(self._numbers)
        piece, found = kept.look_up(keys[0], number)
        place: Any = _KeptDispatcher(dispatcher, kept, self._submitter)
        if isinstance(found, CallsFinished):
            place.end = found
        elif found is not None:
            place.end = CallsFinished(0, 0, 1, pickling.dump_values(found))
        elif piece.block:
            place.place = piece.block, piece.offset
        else:
            arguments = pickling.dump_calls([call])
            place.place = kept.add_block(FULL, [number], arguments, keys[0]), 0
        return place  # type: ignore[no-any-return]


class _KeptDispatcher:
    """A dispatcher that one job is submitted to. `place` is where its outcome is to be kept, `end`
    its outcome if that is known.
    """

    end: CallsFinished | None = None
    place = 0, 0

    def __init__(self, dispatcher: Dispatcher, kept: KeptFunction, submitter: int) -> None:
        self._dispatcher = dispatcher
        self._kept = kept
        self._submitter = submitter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        if self.end is not None:
            listener.settled(self.end)
        else:
            for one in tasks:
                self._kept.hand_over(one.id, 0, 1, *self.place)
            tasks = [replace(one, submitter=self._submitter) for one in tasks]
            self._dispatcher.submit(function, tasks, _Keeper(listener, self._kept, self.place))


class _Keeper:
    """Passes on what a job's listener is told, and keeps how it ends."""

    def __init__(self, listener: Listener, kept: KeptFunction, place: tuple[int, int]) -> None:
        self.daemon = listener.daemon
        self.began, self.noted = listener.began, listener.noted
        self.abandoned = listener.abandoned
        self._settled = listener.settled
        self._kept = kept
        self._place = place

    def settled(self, event: CallsFinished) -> None:
        block, offset = self._place
        self._kept.note(block, offset, offset + 1, event)
        self._settled(event)
