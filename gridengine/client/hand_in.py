"""The one hand-in: pickled calls become tasks (`TaskMaker`), and a table has the tasks that were
handed over and have not ended (`HandedTasks`).
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from gridengine.calls.interface import Dispatcher
from gridengine.client.options import CallOptions
from gridengine.client.outcomes import OutcomeListener
from gridengine.dispatcher.unsettled import Listener
from gridengine.errors import UNNUMBERED
from gridengine.requests import CallsFinished, Function, Task
from gridengine.serialize.payload import Payload

if TYPE_CHECKING:
    from gridengine.client.named_run import OpenRun


class TaskMaker(Struct, frozen=True, eq=False):
    """Makes tasks of calls of one function that have the same form and options.

    Args:
        submitter: the submitter's number; by it the calls take turns with others.
    """

    dispatcher: Dispatcher
    function: Function
    form: int
    options: CallOptions
    submitter: int = 0

    def task(self, payload: Payload, count: int = 1, first: int = UNNUMBERED, **more: Any) -> Task:
        """Return pickled calls as a task with a new number. `first` is the number of the first call
        in its map; `more` are fields of `Task`.
        """
        options = self.options
        return Task(
            id=self.dispatcher.new_id(),
            payload=payload,
            count=count,
            form=self.form,
            retries=options.retries,
            timeout=options.timeout,
            first=first,
            demand=options.demand,
            escalate_memory=float(options.escalate_memory),
            needs=getattr(payload, "needs", ()),  # `needs_of`, without a call
            submitter=self.submitter,
            priority=options.priority,
            **more,
        )


class HandedTask(Struct, eq=False):
    """A task that was handed over: how many calls it has, and how many of them have no outcome."""

    count: int
    unsettled: int


T = TypeVar("T", bound=HandedTask)


class HandedTasks(OutcomeListener, Generic[T]):
    """The tasks of one executor's single calls, of one map or of one graph that were handed over,
    and the listener for their outcomes. A subclass enters each task into the table (`_handed`)
    before it hands the task over by `_submit`.
    """

    _run: Any = None
    """The calls as a map, a graph or single calls of their named run; None if there is none."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self._submit: Callable[[Function, Sequence[Task], Listener], None] = dispatcher.submit
        self._handed: dict[int, T] = {}
        """The tasks that have not ended, by number."""

    def record_in(self, run: OpenRun, calls: Any) -> None:
        """Have the outcomes recorded that a named run is told to expect. `calls` are the calls as a
        map, a graph or single calls of this run.
        """
        self._submit, self._run = functools.partial(run.submit, self.dispatcher), calls

    def handed(self) -> list[tuple[int, int, int]]:
        """Return the tasks that have not ended, each with the range of all its calls."""
        return [(task, 0, one.count) for task, one in list(self._handed.items())]

    def settled(self, event: CallsFinished) -> None:
        one = self._handed.get(event.task)
        if one is not None:
            one.unsettled -= event.stop - event.start
            if not one.unsettled:
                self._handed.pop(event.task, None)
            self._take_outcome(one, event)

    @abstractmethod
    def _take_outcome(self, one: T, event: CallsFinished) -> None:
        """Take the outcome of calls of a task, in the I/O thread. After the last outcome the task
        is no longer in the table.
        """
