"""The submitted calls whose outcome their listener has not received yet. They are counted where
the outcome is passed on, so that all can be failed even when the core is broken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from gridengine.dispatcher.core.tasks import CallsFinished, Task
from gridengine.dispatcher.interface import Listener
from gridengine.errors import GridEngineError


class UnsettledTask(Struct, eq=False, gc=False):
    """A task some of whose calls are not settled; `settled` are the others, as ranges of their
    indices.
    """

    listener: Listener
    count: int
    settled: list[tuple[int, int]] | None = None

    def remaining(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of calls that are not settled."""
        start = 0
        for first, stop in sorted(self.settled or ()):
            if start < first:
                yield start, first
            start = stop
        if start < self.count:
            yield start, self.count


class UnsettledTasks:
    """All such tasks. One thread settles; any may add, and wait for those that are not daemon."""

    def __init__(self) -> None:
        self._tasks: dict[int, UnsettledTask] = {}
        self._settled = threading.Condition()

    def add(self, tasks: Sequence[Task], listener: Listener) -> None:
        """Add submitted tasks, and the listener for their outcomes."""
        for task in tasks:
            self._tasks[task.id] = UnsettledTask(listener, task.count)

    def listener(self, task: int) -> Listener | None:
        """Return the listener of a task; None when all of it is settled."""
        one = self._tasks.get(task)
        return None if one is None else one.listener

    def ids(self) -> list[int]:
        """Return the ids of all such tasks."""
        return list(self._tasks)

    def settle(self, event: CallsFinished) -> None:
        """Pass the outcome of calls to their listener. Only then they count as settled."""
        one = self._tasks.get(event.task)
        if one is None:
            return
        one.listener.settled(event)
        if event.last:
            self._tasks.pop(event.task, None)
        elif one.settled is None:
            one.settled = [(event.start, event.stop)]
        elif one.settled[-1][1] == event.start:
            one.settled[-1] = one.settled[-1][0], event.stop
        else:
            one.settled.append((event.start, event.stop))
        if not one.listener.daemon:
            with self._settled:
                self._settled.notify_all()

    def fail(
        self, error: GridEngineError, tasks: Iterable[int] | None = None
    ) -> Iterator[BaseException]:
        """Settle all remaining calls, or those of these tasks, with an error; yield what a listener
        raises, and go on.
        """
        for id in self.ids() if tasks is None else tasks:
            if (one := self._tasks.pop(id, None)) is None:
                continue
            for start, stop in one.remaining():
                try:
                    one.listener.settled(
                        CallsFinished(
                            id, start, stop, None, error=error, exitcode=1, last=stop == one.count
                        )
                    )
                except BaseException as failure:
                    yield failure

    def wait_for_jobs(self, abandoned: Callable[[], bool]) -> None:
        """Wait until all tasks that are left are daemon, or are abandoned."""
        with self._settled:
            self._settled.wait_for(
                lambda: (
                    abandoned() or all(one.listener.daemon for one in list(self._tasks.values()))
                )
            )

    def clear(self) -> None:
        """Forget all tasks; nobody waits for them any more."""
        self._tasks.clear()
        with self._settled:
            self._settled.notify_all()
