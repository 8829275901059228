"""The submitted calls whose outcome their listener has not received yet. They are counted where
the outcome is passed on, so that all can be failed even when the core is broken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from gridengine.dispatcher.core.tasks import CallsFinished, Task, TaskMessage, TaskStarted
from gridengine.dispatcher.interface import Listener
from gridengine.errors import GridEngineError


class _Calls(Struct, eq=False, gc=False):
    """The calls of a task that has several; those that are settled, as ranges of their indices."""

    count: int
    settled: list[tuple[int, int]]

    def remaining(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of calls that are not settled, in their order."""
        start = 0
        for first, stop in sorted(self.settled):
            if start < first:
                yield start, first
            start = stop
        if start < self.count:
            yield start, self.count


class UnsettledTasks:
    """All such tasks. One thread settles; any may add, and wait for those that are not daemon."""

    def __init__(self) -> None:
        self._tasks: dict[int, Listener] = {}
        self._calls: dict[int, _Calls] = {}
        """Those of tasks that have several."""
        self._settled = threading.Condition()

    def add(self, tasks: Sequence[Task], listener: Listener) -> None:
        """Add submitted tasks, and the listener for their outcomes."""
        for task in tasks:
            if task.count > 1:
                self._calls[task.id] = _Calls(task.count, [])
            self._tasks[task.id] = listener

    def add_single(self, numbers: Iterable[int], listener: Listener) -> None:
        """Add submitted tasks of one call each, by their numbers."""
        self._tasks.update(dict.fromkeys(numbers, listener))

    def listener(self, task: int) -> Listener | None:
        """Return the listener of a task; None when all of it is settled."""
        return self._tasks.get(task)

    def left(self, task: int) -> list[tuple[int, int]]:
        """Return the ranges of the calls of a task that are not settled."""
        if task not in self._tasks:
            return []
        return list((self._calls.get(task) or _Calls(1, [])).remaining())

    def ids(self) -> list[int]:
        """Return the ids of all such tasks."""
        return list(self._tasks)

    def settle(self, event: CallsFinished) -> None:
        """Pass the outcome of calls to their listener. Only then they count as settled."""
        listener = self._tasks.get(event.task)
        if listener is None:
            return
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

    def began(self, event: TaskStarted) -> None:
        """Pass it to their listener that a task has begun."""
        if (listener := self._tasks.get(event.task)) is not None:
            listener.began(event)

    def noted(self, event: TaskMessage) -> None:
        """Pass to their listener what a task has pushed, or its calls have logged."""
        if (listener := self._tasks.get(event.task)) is not None:
            listener.noted(event)

    def fail(
        self, error: GridEngineError, tasks: Iterable[int] | None = None
    ) -> Iterator[BaseException]:
        """Settle all remaining calls, or those of these tasks, with an error; yield what a listener
        raises, and go on.
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
        """Wait until all tasks that are left are daemon, or are abandoned."""
        with self._settled:
            self._settled.wait_for(
                lambda: abandoned() or all(one.daemon for one in list(self._tasks.values()))
            )

    def clear(self) -> None:
        """Forget all tasks; nobody waits for them any more."""
        self._tasks.clear()
        self._calls.clear()
        with self._settled:
            self._settled.notify_all()
