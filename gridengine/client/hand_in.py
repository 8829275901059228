"""`TaskMaker` makes tasks of calls; `HandedTasks` has those handed over that have not ended."""

from __future__ import annotations

import functools
import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from gridengine.calls.interface import Dispatcher
from gridengine.client.options import CallOptions
from gridengine.client.outcomes import OutcomeListener
from gridengine.dispatcher.unsettled import Listener
from gridengine.errors import UNNUMBERED, no_memory
from gridengine.requests import CallsFinished, Function, Task, TaskOptions
from gridengine.serialize import pickling
from gridengine.serialize.payload import ATOMS, Buffer, Payload
from gridengine.serialize.references import Reference, awaited_in, numbers
from gridengine.serialize.shared_objects import RepeatedArrays

if TYPE_CHECKING:
    from gridengine.client.named_run import OpenRun


class TaskMaker(Struct, frozen=True, eq=False):
    """Makes tasks of calls of one function that have the same form and options: pickles them, tells
    the dispatcher which results they need, and numbers them.

    Args:
        submitter: the submitter's number; by it the calls take turns with others.
    """

    dispatcher: Dispatcher
    function: Function
    form: int
    options: CallOptions
    submitter: int = 0
    task_options: TaskOptions = TaskOptions()
    """The options of all its tasks; they follow from the other fields."""

    def __post_init__(self) -> None:
        options = self.options
        made = TaskOptions(
            form=self.form,
            retries=options.retries,
            timeout=options.timeout,
            demand=options.demand,
            escalate_memory=float(options.escalate_memory),
            submitter=self.submitter,
            priority=options.priority,
        )
        force_setattr(self, "task_options", made)

    def pickled(
        self,
        calls: Sequence[Any],
        describe: Callable[[int], str] | None = None,
        repeated: RepeatedArrays | None = None,
    ) -> list[Buffer]:
        """Return the payload of a list of calls.

        describe: returns a call's name for errors, by its index; by default it is that of the
            function.
        repeated: knows the large arrays of earlier calls.

        Raises:
            PicklingError: a call cannot be pickled; the text names the call and the argument.
        """
        describe = describe or (lambda _: f"the call of {self.function.name}")
        if len(calls) == 1 and type(calls[0]) in ATOMS:
            try:  # without a pickler of our own, which takes time to set up
                return [pickle.dumps([calls[0]], 5)]
            except MemoryError as error:
                raise no_memory(f"to pickle {describe(0)}") from error
        return pickling.dump_calls(calls, form=self.form, describe=describe, repeated=repeated)

    def introduce(self, *payloads: Payload) -> tuple[Reference, ...]:
        """Tell the dispatcher for which results the references in these payloads stand, and return
        the references. They must live until the payloads are submitted.
        """
        found: tuple[Reference, ...] = ()
        for payload in payloads:
            if awaited_in(payload):
                from gridengine.client.dependencies import introduce  # few need it

                found += introduce(payload, self.dispatcher)
        return found

    def task(
        self,
        payload: Payload,
        count: int = 1,
        first: int = UNNUMBERED,
        needed: Iterable[Reference] = (),
        *,
        after: tuple[int, ...] = (),
        kept: tuple[tuple[int, int], ...] = (),
        **more: Any,
    ) -> Task:
        """Return pickled calls as a task with a new number. `first` is the number of the first call
        in its map, `needed` (or `after`, by number) are the results that the calls wait for, `more`
        are options that the maker's other tasks do not have.
        """
        options = self.task_options
        return Task(
            id=self.dispatcher.new_id(),
            payload=payload,
            count=count,
            options=replace(options, **more) if more else options,
            first=first,
            needs=getattr(payload, "needs", ()),  # `needs_of`, without a call
            after=numbers(needed) if needed else after,
            kept=kept,
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
