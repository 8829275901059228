"""`ClientLimits`: how much a client may have open at its dispatcher."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from gridengine.dispatcher.core.tasks import CallsFinished, Task
from gridengine.errors import ConfigurationError
from gridengine.resources.units import plural
from gridengine.serialize.payload import size_of


class ClientLimits:
    """Counts the calls that have not ended, and the bytes of the tasks with them. False when there
    is no limit.

    Args:
        calls, bytes: the most; None is any number.
    """

    def __init__(self, calls: int | None, bytes: int | None) -> None:
        self._most_calls, self._most_bytes = calls, bytes
        self._lock = threading.Lock()
        self._calls = self._bytes = 0
        self._sizes: dict[int, int] = {}

    def __bool__(self) -> bool:
        return self._most_calls is not None or self._most_bytes is not None

    def check(self, calls: int, bytes: int = 0) -> None:
        """Check that so many more calls and bytes may be open.

        Raises:
            ConfigurationError: they may not; the text has the numbers.
        """
        for more, count, most, unit in (
            (calls, self._calls, self._most_calls, "call"),
            (bytes, self._bytes, self._most_bytes, "byte"),
        ):
            if most is not None and count + more > most:
                raise ConfigurationError(
                    f"this client has {plural(count, unit)} open, and may have {most} "
                    f"(max_{unit}s): {more} more cannot be submitted",
                    hint="wait for some of them to end, or allow for more",
                )

    def enter(self, tasks: Sequence[Task]) -> None:
        """Count tasks that are about to be submitted.

        Raises:
            ConfigurationError: they are too many; none is counted.
        """
        sizes = {task.id: size_of(task.payload) for task in tasks}
        calls, size = sum(task.count for task in tasks), sum(sizes.values())
        with self._lock:
            self.check(calls, size)
            self._calls += calls
            self._bytes += size
            self._sizes.update(sizes)

    def leave(self, event: CallsFinished) -> None:
        """Count no more what has ended."""
        with self._lock:
            self._calls -= event.stop - event.start
            if event.last:
                self._bytes -= self._sizes.pop(event.task, 0)
