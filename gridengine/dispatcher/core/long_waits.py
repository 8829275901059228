"""A warning, now and then, when calls have waited for long because jobs hold all workers, or
because no call makes what they need.

Jobs may wait for one another or never end, and a future that a script sets itself may wait for
calls that wait for it; then this is all that tells of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from gridengine.dispatcher.core.events import Warn
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import Effect, Task
from gridengine.display import plural

LONG_WAIT_SECONDS = 10.0
MOST_NAMED = 5


class LongWait(Struct):
    """Since when calls have waited and none was assigned, and whether all are `blocked` until
    something comes from elsewhere. The warning comes after `patience` seconds, the next after twice
    as many; before `look_at` the waiting calls are not looked at.
    """

    last_run: int = 0
    blocked: bool = False
    since: float = -math.inf
    patience: float = LONG_WAIT_SECONDS
    look_at: float = -math.inf

    def check(self, state: CoreState) -> list[Effect]:
        """Return a warning if something has waited long enough."""
        blocked = bool(state.open_tasks) and not state.runs and not state.calls_waiting
        waits = blocked or state.calls_waiting > 0
        if (self.last_run, self.blocked) != (state.last_run, blocked) or not waits:
            self.last_run, self.blocked, self.since = state.last_run, blocked, state.now
        if state.now - self.since < self.patience:
            return []
        if blocked:
            return [self._of_results(state)]
        if any(one.expected or one.requested for one in state.provisioners.values()):
            return []  # workers that are still to come have a reason of their own
        if state.now < self.look_at:
            return []
        self.look_at = state.now + LONG_WAIT_SECONDS
        under_way = [run.span.open_task.task for run in state.runs.values()]
        if not any(task.watched for task in under_way):
            return []  # of calls alone it is clear what they wait for
        waiting = [span.open_task.task for queue in state.queues.values() for span in queue.waiting]
        if not (any(task.watched for task in waiting) or all(task.watched for task in under_way)):
            return []
        self.patience *= 2
        text = (
            f"waiting for a free worker for {state.now - self.since:.0f} s: "
            f"{_named(waiting, state.calls_waiting)}"
        )
        room = state.policy.max_workers * state.policy.slots
        most = f" (max_workers={room})" if room else ""
        return [Warn(f"{text}; these hold all of them{most}: {_named(under_way, len(under_way))}")]

    def _of_results(self, state: CoreState) -> Warn:
        """Return the warning that no call can begin before something comes from elsewhere."""
        self.patience *= 2
        open_tasks = [one.task for one in state.open_tasks.values()]
        return Warn(
            f"waiting for {state.now - self.since:.0f} s for results that no call of this "
            f"scheduler makes, of other schedulers or of futures that a script sets itself: "
            f"{_named(open_tasks, len(open_tasks))}"
        )


def _named(tasks: Sequence[Task], calls: int) -> str:
    """Return some jobs by name, and how many others there are."""
    jobs = sum(task.watched for task in tasks)
    names = [task.name for task in islice((task for task in tasks if task.watched), MOST_NAMED)]
    if jobs > len(names):
        names.append(plural(jobs - len(names), "more job"))
    if calls > jobs:
        names.append(plural(calls - jobs, "call"))
    return ", ".join(names)
