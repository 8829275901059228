"""How long cluster tasks may run, by the limits that the site sets: of the queue, and
of the job, by its defaults for requests (sge_request(5), a JSV).
"""

from __future__ import annotations

import functools
import math
import os
import pwd
import re
from collections.abc import Collection
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


def parse_running(text: str) -> dict[str, str]:
    """Return where the tasks that run do so, as "all.q@node7", by their ids ("29.1"), from the
    output of `qstat -xml -s r`.
    """
    rows = (
        dict(re.findall(r"<(\w+)>([^<]*)</\1>", row))
        for row in re.findall(r"<job_list\b.*?</job_list>", text, flags=re.DOTALL)
    )
    return {
        f"{row['JB_job_number']}.{row.get('tasks', '1')}": row["queue_name"]
        for row in rows
        if {"JB_job_number", "queue_name"} <= row.keys()
    }


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
    """Asks for the limits of tasks."""

    def __init__(self, grid_engine: Asks) -> None:
        self._grid_engine = grid_engine
        self._of_queue = functools.cache(self._ask_queue)
        self._of_job = functools.cache(self._ask_job)

    def of(self, ids: Collection[str]) -> dict[str, Limit]:
        """Return the limit of each of these tasks that runs, counted from its start, by one
        question for all, and one more for each job and queue that was not asked for before.
        """
        user = pwd.getpwuid(os.getuid()).pw_name
        told = self._grid_engine.ask("qstat", "-xml", "-s", "r", "-u", user).output
        return {
            id: min(self._of_job(id.partition(".")[0]), self._of_queue(queue))
            for id, queue in parse_running(told).items()
            if id in ids
        }

    def _ask_job(self, number: str) -> Limit:
        requests = re.findall(
            r"^hard resource_list: +(.*)$",
            self._grid_engine.ask("qstat", "-j", number).output,
            flags=re.MULTILINE,
        )
        return parse_limit(",".join(requests), f"job {number}")

    def _ask_queue(self, queue: str) -> Limit:
        return parse_limit(self._grid_engine.ask("qconf", "-sq", queue).output, f"queue {queue}")
