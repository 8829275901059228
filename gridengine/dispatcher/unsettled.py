"""The calls that were handed in and whose outcome has not been told, counted where it is told: so
that it can be, whatever else fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gridengine.dispatcher.core.tasks import CallsFinished, Task
from gridengine.errors import GridEngineError

if TYPE_CHECKING:
    from gridengine.dispatcher.interface import Listener


class UnsettledTask:
    """A task not all of whose calls have been told; `told` are those that have, as stretches of
    their indices.
    """

    __slots__ = ("count", "listener", "told")

    def __init__(self, listener: Listener, count: int) -> None:
        self.listener = listener
        self.count = count
        self.told: list[tuple[int, int]] = []

    def left(self) -> Iterator[tuple[int, int]]:
        """Yield the stretches of calls that have not been told."""
        start = 0
        for first, stop in sorted(self.told):
            if start < first:
                yield start, first
            start = stop
        if start < self.count:
            yield start, self.count


class UnsettledTasks:
    """All such tasks. One thread tells; any may add, and ask whether the interpreter's exit may end
    them.
    """

    def __init__(self) -> None:
        self._tasks: dict[int, UnsettledTask] = {}

    def add(self, tasks: Sequence[Task], listener: Listener) -> None:
        """Note tasks that are handed in, and who is to be told of them."""
        for task in tasks:
            self._tasks[task.id] = UnsettledTask(listener, task.count)

    def listener(self, task: int) -> Listener | None:
        """Return who is told of a task; None when all of it has been."""
        one = self._tasks.get(task)
        return None if one is None else one.listener

    def tell(self, event: CallsFinished) -> Listener | None:
        """Tell the outcome of calls, and return to whom. Only then it counts as told."""
        one = self._tasks.get(event.task)
        if one is None:
            return None
        one.listener.settled(event)
        if event.last:
            del self._tasks[event.task]
        elif one.told and one.told[-1][1] == event.start:
            one.told[-1] = one.told[-1][0], event.stop
        else:
            one.told.append((event.start, event.stop))
        return one.listener

    def fail(self, error: GridEngineError) -> Iterator[BaseException]:
        """Tell all that are left that they have failed; yield what a listener raises, and go on."""
        for id, one in list(self._tasks.items()):
            for start, stop in one.left():
                try:
                    one.listener.settled(
                        CallsFinished(
                            id, start, stop, None, error=error, exitcode=1, last=stop == one.count
                        )
                    )
                except BaseException as failure:
                    yield failure

    def all_daemons(self) -> bool:
        """Return whether the interpreter's exit may end all of them."""
        return all(one.listener.daemon for one in list(self._tasks.values()))

    def clear(self) -> None:
        """Forget all."""
        self._tasks.clear()
