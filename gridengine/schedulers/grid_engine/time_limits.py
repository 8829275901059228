"""How long cluster tasks that run may run on, by the limits that the site sets: of the queue, and
of the job, by its defaults for requests (sge_request(5), a JSV).
"""

from __future__ import annotations

import functools
import math
import os
import pwd
import re
import time
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from gridengine.schedulers.command import Answer
from gridengine.schedulers.grid_engine.request import parse_time


class Asks(Protocol):
    """Calls Grid Engine's commands; their output is empty where there are none."""

    def ask(self, name: str, *arguments: str) -> Answer: ...


class Limit(NamedTuple):
    """So many seconds, infinite where there is no limit, and what says so, for people."""

    seconds: float = math.inf
    words: str = ""


class Running(NamedTuple):
    """Where a task runs, as "all.q@node7", and since when, in seconds of the epoch."""

    queue: str
    began: float


def parse_running(text: str) -> dict[str, Running]:
    """Return the tasks that run, by their ids ("29.1"), from the output of `qstat -xml -s r`."""
    found = {}
    for row in re.findall(r"<job_list\b.*?</job_list>", text, flags=re.DOTALL):
        fields = dict(re.findall(r"<(\w+)>([^<]*)</\1>", row))
        try:
            began = time.mktime(time.strptime(fields["JAT_start_time"][:19], "%Y-%m-%dT%H:%M:%S"))
            id = f"{fields['JB_job_number']}.{fields.get('tasks', '1')}"
            found[id] = Running(fields["queue_name"], began)
        except (KeyError, ValueError):
            continue  # another version's; it says nothing of others
    return found


def parse_limit(text: str, whose: str) -> Limit:
    """Return the shorter limit of time in the output of `qconf -sq` or `qstat -j`: a line of its
    own for each, or one of requests. A task cannot use its time of processors (h_cpu) sooner than
    it passes, each slot having as much.
    """
    said = re.findall(r"(?:^|[\s,])(h_rt|h_cpu)(?:=|\s+)([\d:.]+)(?=[\s,]|$)", text)
    limits = [
        Limit(parse_time(value), f"{name}={value} of {whose}")
        for name, value in said
        if parse_time(value)
    ]
    return min(limits, default=Limit())


class TimeLimits:
    """Asks for the limits of tasks.

    Args:
        now: returns the seconds of the epoch.
    """

    def __init__(self, grid_engine: Asks, now: Callable[[], float] = time.time) -> None:
        self._grid_engine = grid_engine
        self._now = now
        self._of_queue = functools.cache(self._ask_queue)
        self._of_job = functools.cache(self._ask_job)

    def left(self, ids: Collection[str]) -> dict[str, Limit]:
        """Return how long those of these tasks that run may run on, by one question for all, and
        one more for each job and queue that was not asked for before.
        """
        user = pwd.getpwuid(os.getuid()).pw_name
        told = self._grid_engine.ask("qstat", "-xml", "-s", "r", "-u", user).output
        running = parse_running(told)
        left = {}
        for id in running.keys() & set(ids):
            seconds, words = min(
                self._of_job(id.partition(".")[0]), self._of_queue(running[id].queue)
            )
            left[id] = Limit(running[id].began + seconds - self._now(), words)
        return left

    def _ask_job(self, number: str) -> Limit:
        requests = re.findall(
            r"^hard resource_list: +(.*)$",
            self._grid_engine.ask("qstat", "-j", number).output,
            flags=re.MULTILINE,
        )
        return parse_limit(",".join(requests), f"job {number}")

    def _ask_queue(self, queue: str) -> Limit:
        return parse_limit(self._grid_engine.ask("qconf", "-sq", queue).output, f"queue {queue}")
