"""A warning, now and then, when calls have waited for long because jobs hold all the workers.

Jobs may wait for one another, or never end, and then this is all that tells of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from gridengine.dispatcher.core.events import Effect, Warn
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import Task
from gridengine.resources.units import plural

LONG_WAIT_SECONDS = 10.0
MOST_NAMED = 5


class LongWait(Struct):
    """Since when calls have waited and none was assigned. The warning comes after `patience`
    seconds, and the next one after twice as many.
    """

    last_run: int = 0
    since: float = -math.inf
    patience: float = LONG_WAIT_SECONDS

    def check(self, state: CoreState, now: float) -> list[Effect]:
        """Warn of what waits for what, if something has waited for long enough."""
        if self.last_run != state.last_run or not state.calls_waiting:
            self.last_run, self.since = state.last_run, now
        if now - self.since < self.patience or any(
            one.expected or one.requested for one in state.provisioners.values()
        ):
            return []  # workers that are still to come have a reason of their own
        under_way = [run.span.open_task.task for run in state.runs.values()]
        waiting = [span.open_task.task for queue in state.queues.values() for span in queue.waiting]
        if not any(task.watched for task in under_way) or not (
            any(task.watched for task in waiting) or all(task.watched for task in under_way)
        ):
            return []  # of calls alone it is clear what they wait for
        self.patience *= 2
        text = (
            f"waiting for a free worker for {now - self.since:.0f} s: "
            f"{_named(waiting, state.calls_waiting)}"
        )
        room = state.policy.max_workers * state.policy.slots
        return [
            Warn(
                f"{text}; these hold all of them (max_workers={room}): "
                f"{_named(under_way, len(under_way))}"
            )
        ]


def _named(tasks: Sequence[Task], calls: int) -> str:
    """Return jobs by their names, as long as they are few, and how many other calls there are."""
    jobs = sum(task.watched for task in tasks)
    names = [task.name for task in islice((task for task in tasks if task.watched), MOST_NAMED)]
    if jobs > len(names):
        names.append(plural(jobs - len(names), "more job"))
    if calls > jobs:
        names.append(plural(calls - jobs, "call"))
    return ", ".join(names)
