"""Submitted tasks that have no outcome yet (`UnsettledTasks`), and the interface by which callers
are told of outcomes (`Listener`).

Unsettled tasks are counted where outcomes are passed on, so that all can be failed even when the
core is broken.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from gridengine.errors import GridEngineError
from gridengine.requests import CallsFinished, ResultWanted, Task, TaskBegan, TaskMessage
from gridengine.threads import wait_for

Wanted: TypeAlias = tuple[ResultWanted, Callable[[], object]]
"""A question whether the dispatcher will keep a result, and the function to call if it will not."""


class Listener(Protocol):
    """Receives the events of tasks. The I/O thread calls its methods: they must return at once, not
    raise, and not unpickle.

    `daemon`: whether the end of the interpreter ends its tasks; otherwise it waits for them.
    """

    daemon: bool

    def settled(self, event: CallsFinished) -> None: ...
    def began(self, event: TaskBegan) -> None: ...
    def noted(self, event: TaskMessage) -> None: ...

    def abandoned(self) -> None:
        """The call that submitted these tasks has ended, so they end too. Submit nothing more."""

    def restarted(self) -> None:
        """The dispatcher is a new process: what calls were told or have pushed may be lost."""


class _Calls(Struct, eq=False, gc=False):
    """The calls of a task with several calls; the settled ones as ranges of their indices."""

    count: int
    settled: list[tuple[int, int]]

    def remaining(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of unsettled calls, in their order."""
        start = 0
        for first, stop in sorted(self.settled):
            if start < first:
                yield start, first
            start = stop
        if start < self.count:
            yield start, self.count


class UnsettledTasks:
    """All submitted tasks with unsettled calls. One thread settles; any thread may add tasks, and
    wait for jobs.
    """

    def __init__(self) -> None:
        self._tasks: dict[int, Listener] = {}
        self._calls: dict[int, _Calls] = {}
        """The calls of tasks that have several."""
        self._settled = threading.Condition()

    def add(self, tasks: Sequence[Task], listener: Listener) -> None:
        """Add submitted tasks, and the listener for their outcomes."""
        for task in tasks:
            if task.count > 1:
                self._calls[task.id] = _Calls(task.count, [])
            self._tasks[task.id] = listener

    def listener(self, task: int) -> Listener | None:
        """Return the listener of a task; None if all its calls are settled."""
        return self._tasks.get(task)

    def left(self, task: int) -> list[tuple[int, int]]:
        """Return the ranges of unsettled calls of a task."""
        if task not in self._tasks:
            return []
        return list((self._calls.get(task) or _Calls(1, [])).remaining())

    def ids(self) -> list[int]:
        """Return the ids of all tasks with unsettled calls."""
        return list(self._tasks)

    def settle(self, event: CallsFinished) -> None:
        """Pass the outcome of calls to their listener. Only then do they count as settled."""
        listener = self._tasks.get(event.task)
        if listener is None:
            return
        # Before the task is removed: if the listener raises an exception, `fail` must still find
        # the task.
        listener.settled(event)
        if event.last:
            self._tasks.pop(event.task, None)
            if self._calls:
                self._calls.pop(event.task, None)
        elif (calls := self._calls.get(event.task)) is not None:
            settled = calls.settled
            if settled and settled[-1][1] == event.start:
                settled[-1] = settled[-1][0], event.stop
            else:
                settled.append((event.start, event.stop))
        if not listener.daemon:
            with self._settled:
                self._settled.notify_all()

    def began(self, event: TaskBegan) -> None:
        """Tell a task's listener that the task has begun."""
        if (listener := self._tasks.get(event.task)) is not None:
            listener.began(event)

    def noted(self, event: TaskMessage) -> None:
        """Pass a pushed value, or log records, to a task's listener."""
        if (listener := self._tasks.get(event.task)) is not None:
            listener.noted(event)

    def restarted(self) -> None:
        """Tell all listeners that the dispatcher is a new process."""
        for listener in {id(one): one for one in list(self._tasks.values())}.values():
            listener.restarted()

    def fail(
        self, error: GridEngineError, tasks: Iterable[int] | None = None
    ) -> Iterator[BaseException]:
        """Settle all remaining calls, or those of these tasks, with an error. Yield exceptions that
        listeners raise, and go on.
        """
        for id in self.ids() if tasks is None else tasks:
            if (listener := self._tasks.pop(id, None)) is None:
                continue
            calls = self._calls.pop(id, None) or _Calls(1, [])
            for start, stop in calls.remaining():
                try:
                    listener.settled(
                        CallsFinished(
                            id, start, stop, None, error=error, exitcode=1, last=stop == calls.count
                        )
                    )
                except BaseException as failure:
                    yield failure

    def wait_for_jobs(self, abandoned: Callable[[], bool]) -> None:
        """Wait, as the interpreter ends, until all remaining tasks are daemons, or `abandoned`
        returns True. Do not wait if an exception ends the interpreter.
        """
        # Python sets `last_value` when an exception has ended the script; at a prompt, any
        # exception does, and calls must go on.
        if getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1"):
            return
        wait_for(
            self._settled,
            lambda: abandoned() or all(one.daemon for one in list(self._tasks.values())),
        )

    def clear(self) -> None:
        """Forget all tasks: nobody waits for them any more."""
        self._tasks.clear()
        self._calls.clear()
        with self._settled:
            self._settled.notify_all()
