"""The submission of an executor: many calls that are ended and waited for together with the
executor's others.
"""

from __future__ import annotations

import threading

from gridengine.client.batcher import Batcher
from gridengine.client.future import RUNNING, CallFuture, CallTemplate
from gridengine.client.outcomes import Outcome
from gridengine.client.submission import Submission
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.serialize.references import Reference


class TrackedSubmission(Submission):
    """A submission that a batcher waits for, cancels and kills together with its other calls. The
    future `end` is done once all calls have ended.
    """

    def __init__(
        self, template: CallTemplate, batcher: Batcher, references: tuple[Reference, ...]
    ) -> None:
        super().__init__(
            batcher.dispatcher,
            template.function,
            template.form,
            template.options,
            batcher.submitter,
        )
        self._needed_by_all = references
        self.end = CallFuture(template, None, RUNNING)
        self._pace = template.pace
        self._batcher = batcher
        self._ending = threading.Lock()
        self._all_sent = False
        batcher.begin({})

    def flush(self) -> None:
        """Send the tasks that were added. If the dispatcher raises an exception, it is the outcome
        of their calls.

        Raises:
            RuntimeError: the batcher was closed meanwhile.
        """
        tasks = {task.id: self._tasks[task.id] for task in self._added}
        self._batcher.note_handed(tasks)
        try:
            super().flush()
        except BaseException as error:
            self.dispatcher.cancel(list(tasks))
            for id, task in tasks.items():
                if self._tasks.pop(id, None) is not None:
                    self._added_bytes -= task.size
                    self._batcher.note_ended(id, task.count, failed=True)
                    stop = task.first + task.count
                    self._events.put(Outcome(task.first, stop, (), error))
            if not isinstance(error, Exception):
                raise

    def settled(self, event: CallsFinished) -> None:
        if event.raised and event.payload is not None:
            self._batcher.note_raised(event.payload)
        failed = event.raised or event.payload is None
        super().settled(event)
        ended = None if event.task in self._tasks else event.task
        self._batcher.note_ended(ended, event.stop - event.start, failed=failed)
        if event.seconds is not None:
            self._pace.measured(event.stop - event.start, event.seconds)
        self._end_if_all_settled()

    def note_all_sent(self) -> None:
        super().note_all_sent()
        self._all_sent = True
        self._end_if_all_settled()

    def _end_if_all_settled(self) -> None:
        if self._all_sent and not self._tasks:
            with self._ending:
                if self.end.done():
                    return
                self._batcher.end(self.end)
