"""A started job on its host: the dispatcher's reports of it, and its outcome."""

from __future__ import annotations

import functools
import itertools
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from gridengine.calls.interface import without_slot
from gridengine.client.log_relay import drain_logs
from gridengine.client.outcomes import JOB, OutcomeListener, add_notes
from gridengine.dispatcher.core.tasks import (
    CallsFinished,
    Function,
    Task,
    TaskMessage,
)
from gridengine.errors import Cancelled, OutOfMemory, PicklingError
from gridengine.schedulers.base import Scheduler
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload

if TYPE_CHECKING:
    from gridengine.calls.interface import Dispatcher
    from gridengine.wire.messages import TaskBegan

Outcome: TypeAlias = tuple[Any, BaseException | None]
"""What a call returned, and what it raised."""
UNPRINTED = PicklingError.__name__, OutOfMemory.__name__
"""The names of errors that arise after a job has printed its exception, and so are not in its
output.
"""
log = logging.getLogger("gridengine")


class JobHandle(OutcomeListener):
    """A started job, and the dispatcher's reports of it (see `Listener`).

    The scheduler, and with it its workers, lives at least as long as the handle. With `ours` the
    scheduler is closed when the job has ended.
    """

    def __init__(
        self, dispatcher: Dispatcher, scheduler: Scheduler | None, *, ours: bool, daemon: bool
    ) -> None:
        self.task = dispatcher.new_id()
        self._named = ""
        self.daemon = daemon
        self.end: CallsFinished | None = None
        self.outcome: Outcome | None = None
        self.start: TaskBegan | None = None
        self._messages: list[Payload] = []
        self._sentinel: int | None = None
        self._at_end: list[Callable[[], object]] = []
        self._changed = threading.Condition()
        self.dispatcher = dispatcher
        self._scheduler = scheduler
        self.ours = ours

    def submit(self, function: Function, make_task: Callable[[int], Task]) -> None:
        """Submit the job's one call; `make_task` makes its task for a number.

        Raises:
            ConfigurationError: as `Dispatcher.submit`.
        """
        task = make_task(self.task)
        self._named = JOB.format(name=task.name)
        self.dispatcher.submit(function, [task], self)

    def settled(self, event: CallsFinished) -> None:
        error: BaseException | None = event.error
        if event.raised and event.payload and pickling.raised_type(event.payload) in UNPRINTED:
            error = pickling.load_exception(event.payload)
            add_notes(error, [], event.attempts)
        if not isinstance(error, Cancelled | None):
            named = self._named in str(error)
            log.error("%s%s", "" if named else f"{self._named} could not be run: ", error)
        with self._changed:
            self.end = event
            for act in self._at_end:
                act()
            self._at_end.clear()
            self._changed.notify_all()

    def began(self, event: TaskBegan) -> None:
        self.start = event

    def noted(self, event: TaskMessage) -> None:
        super().noted(event)
        if not event.log:
            with self._changed:
                self._messages.append(event.payload)
                self._changed.notify_all()

    def wait(self, timeout: float | None, *, messages: float = math.inf) -> bool:
        """Wait for the end, or for more than `messages` messages. Return whether it has come within
        `timeout` seconds.
        """
        slot = None if self.end is not None or timeout == 0 else self.dispatcher.call_slot
        with without_slot(slot) as wait, self._changed:
            come = self._changed.wait_for(
                lambda: self.end is not None or len(self._messages) > messages, timeout
            )
            wait.expired = not come
        if self.end is not None and timeout != 0:
            self.dispatcher.flush_output(timeout)
            drain_logs(timeout)
        if self.end is not None and self.ours and self._scheduler is not None:
            self.ours = False
            self._scheduler.close()
        return come

    def when_ended(self, act: Callable[[], object]) -> None:
        """Call this in the I/O thread when the job ends, before `wait` returns; now if it has
        ended.
        """
        with self._changed:
            if self.end is None:
                self._at_end.append(act)
                return
        act()

    def sentinel(self) -> int:
        """Return a descriptor that can be read once the job has ended, for
        `multiprocessing.connection.wait`.
        """
        if self._sentinel is None:
            self._sentinel, other = os.pipe2(os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._sentinel).atexit = False
            self.when_ended(functools.partial(os.close, other))
        return self._sentinel

    def messages(self) -> Iterator[Any]:
        """Yield the pushed values, as they come, until the job has ended."""
        for index in itertools.count():
            self.wait(None, messages=index)
            if index >= len(self._messages):
                return
            yield pickling.load(self._messages[index])

    def end_event(self) -> CallsFinished:
        """Return how the job ended. Call this only after its end."""
        assert self.end is not None
        return self.end

    def cancel(self, number: int) -> None:
        if self.end is None:
            self.dispatcher.cancel([self.task], number)


def exitcode_of(end: CallsFinished, error: BaseException | None) -> int:
    """Return the exit code that a process would have had; `error` is its exception, if it raised
    one.
    """
    if end.payload is None or error is None:
        return end.exitcode
    if not isinstance(error, SystemExit):
        return end.exitcode or 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1
