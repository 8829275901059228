"""What it means that a batch system does not take a job, or never starts it, and what can be done:
pure functions over the tables of its `BatchCommands`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from gridengine.errors import GridEngineError, SchedulerUnavailable, SubmissionRefused
from gridengine.schedulers.batch_commands import BatchCommands
from gridengine.schedulers.launcher import TryAgain
from gridengine.settings.values import said_in

T = TypeVar("T")
NOT_INSTALLED = {
    "not installed": "`gridengine doctor` says what is here; load your site's module, or have "
    "calls run on this machine by scheduler=ProcessScheduler()",
}


class TooMany(TryAgain):
    """The site takes no array of this size: none over `limit`, when that is known, now or ever."""

    def __init__(self, words: str, limit: int | None = None) -> None:
        super().__init__(words)
        self.limit = limit


def refused(words: str, asked: str, hint: str | None, table: str) -> SubmissionRefused:
    """Return what to raise when a batch system will not take a job that was asked for so; what of
    the request is from this table of the settings is told with the file and line.
    """
    request = f"; it was asked for: {asked}{said_in(asked, table)}" if asked else ""
    return SubmissionRefused(f"{words}{request}", hint=hint)


def first_match(words: str, table: Mapping[str, T]) -> T | None:
    """Return the first value of a table whose key, a regular expression, matches somewhere in these
    words of a batch system, case aside; None when none does.
    """
    return next(
        (value for key, value in table.items() if re.search(key, words, re.IGNORECASE)), None
    )


@functools.lru_cache(maxsize=1000)
def meaning(system: BatchCommands, reason: str) -> tuple[str, str]:
    """Return why a job waits, with what that means, and what can be done, or empty."""
    found = first_match(reason, system.meanings)
    if found is None:
        return reason, first_match(reason, system.remedies) or ""
    return f"{reason}: {found[0]}", found[1]


def explanation(system: BatchCommands, reason: str) -> str:
    """Return why a job waits: the system's reason, what it means and what can be done."""
    return "; ".join(filter(None, meaning(system, reason)))


def impossible(system: BatchCommands, reason: str, asked: Sequence[str]) -> SubmissionRefused:
    """Return what it means that a system took a job, which asked for this, and will never start
    it.
    """
    words, remedy = meaning(system, reason)
    hint = "; ".join(filter(None, [remedy, "strict=False of the scheduler waits all the same"]))
    text = f"{system.title} took the job and can never start it: {words}"
    return refused(text, " ".join(asked), hint, system.key)


def refusal(
    system: BatchCommands, words: str, asked: Sequence[str], count: int
) -> TryAgain | GridEngineError:
    """Return what it means that a system does not take an array of so many tasks, which asked for
    this.
    """
    limit = system.array_limit.search(words)
    if limit and count > 1:
        return TooMany(words, int(limit[1]) if limit.groups() else count // 2)
    if system.later.search(words):
        return TooMany(words)
    barred = first_match(words, system.barred)
    if barred:
        text = f"{system.title} takes no jobs of this user: {words}"
        return SchedulerUnavailable(text, hint=barred)
    remedy = first_match(words, system.remedies) or system.other_remedy or None
    return refused(f"{system.title} refuses the job: {words}", " ".join(asked), remedy, system.key)


def unavailable(system: BatchCommands, words: str) -> SchedulerUnavailable:
    """Return what it means that a system is not reached when workers are first needed."""
    hint = first_match(words, {**NOT_INSTALLED, **system.unavailable})
    return SchedulerUnavailable(f"{system.title} cannot be used: {words}", hint=hint)
