"""What has waited for long because jobs hold all the workers there may be: said now and then.
Sans-I/O, a part of the core.

Jobs may wait for one another, or never end, and then this is all that tells of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from gridengine.dispatcher.core.events import Effect, Warn
from gridengine.dispatcher.core.tasks import Task

if TYPE_CHECKING:
    from gridengine.dispatcher.core.state import StateMachine

STALL_SECONDS = 10.0
MOST_NAMED = 5


class LongWait(Struct):
    """Since when calls have waited and none was handed out. It is said after `patience` seconds,
    and the next time after twice as many.
    """

    last_run: int = 0
    since: float = -math.inf
    patience: float = STALL_SECONDS

    def look(self, core: StateMachine, now: float) -> list[Effect]:
        """Say what waits for what, if something has waited for long enough."""
        if self.last_run != core.last_run or not core.calls_waiting:
            self.last_run, self.since = core.last_run, now
        if now - self.since < self.patience or any(
            pool.provisioner.expected or pool.provisioner.asked for pool in core.homes
        ):
            return []  # workers that are still to come have a reason of their own
        under_way = [run.span.open.task for run in core.runs.values()]
        waiting = [span.open.task for pool in core.pools.values() for span in pool.waiting]
        if not any(task.watched for task in under_way) or not (
            any(task.watched for task in waiting) or all(task.watched for task in under_way)
        ):
            return []  # of calls alone it is clear what they wait for
        self.patience *= 2
        text = (
            f"waiting for a free worker for {now - self.since:.0f} s: "
            f"{_named(waiting, core.calls_waiting)}"
        )
        room = core.policy.max_workers * core.policy.slots
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
        names.append(f"{jobs - len(names)} more jobs")
    if calls > jobs:
        names.append(f"{calls - jobs} calls")
    return ", ".join(names)
