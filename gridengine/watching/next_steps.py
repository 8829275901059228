"""Find the next step for a user in the words of a batch system or of an error."""

from __future__ import annotations

import functools
import logging
import re

from gridengine.schedulers.batch_words import BatchWords
from gridengine.schedulers.registry import of_class
from gridengine.schedulers.requests import parted

log = logging.getLogger("gridengine")

FULL = (
    r"No space left on device|[Dd]isk quota exceeded",
    "make room on that disk (`df -h` there, or `quota`), or write elsewhere; then try again: "
    "`gridengine retry` for a run with a name",
)
RESUMED = "their calls go on when they are resumed: "


@functools.lru_cache(maxsize=16)  # for a class of no system, all entry points are read
def words_of(scheduler: str) -> type[BatchWords] | None:
    """Return the words of the batch system of a scheduler's class; None if it is not known, or is a
    site's own and cannot be imported here.
    """
    entry = of_class(scheduler)
    try:
        return None if entry is None else getattr(entry.scheduler_class(), "_commands", None)
    except Exception as error:  # a site's module may fail in any way
        log.info("%s cannot be imported here: %r", scheduler, error)
        return None


def reason_and_step(scheduler: str, reason: str, job: str) -> tuple[str, str]:
    """Return why a job waits, and the next step, in the words of its batch system."""
    words = words_of(scheduler)
    told, step = parted(words, reason) if words is not None else (reason, "")
    if not reason:
        step = "wait; ask again in a minute"
    elif re.search(FULL[0], reason):
        step = FULL[1]
    elif not step:
        step = _ask_itself(words)
    return told, of_job(step, job)


def silence_step(scheduler: str, job: str) -> str:
    """Return the next step for silent workers, of which `job` is the first."""
    own = of_job(_ask_itself(words_of(scheduler)), job) if job else ""
    look = "look at that machine; their calls run again elsewhere if they stay silent"
    return f"{own}, and {look}" if own else look


def _ask_itself(words: type[BatchWords] | None) -> str:
    look = f": `{words.look}`" if words is not None and words.look else ""
    return f"ask the batch system itself{look}"


def resume_step(scheduler: str, job: str) -> str:
    """Return the next step for suspended workers, of which `job` is the first."""
    words = words_of(scheduler)
    own = words.resume if words is not None else ""
    own = own or ("by the batch system's own command" if job else "`kill -CONT` of the process")
    return f"{RESUMED}{of_job(own, job)}; or delete their jobs, and the calls run elsewhere"


def of_job(words: str, job: str) -> str:
    """Return a batch system's words with the id of the job in their place for it."""
    return re.sub(r"\bJOB\b", lambda _: job or "JOB", words)


DISK_STEPS = (
    FULL,
    (
        r"log file could not be opened",
        "see whether the run directory's disk is full or over its `quota` (`df -h` there), and "
        "whether the nodes have it",
    ),
)
"""Patterns for failures where a disk is to blame, whatever hint the error has."""

FAILURE_STEPS = (
    (
        r"refuses the job|SubmissionRefused",
        "ask for less (Memory, Cores, WTime), or name another queue: no machine there may run "
        "such a job",
    ),
    (
        r"MemoryError|OutOfMemory|MemoryLimit|of memory",
        "ask for more Memory, or say escalate_memory= for the next attempt to have more",
    ),
    (
        r"walltime|WTime",
        "give calls more time, by WTime or the scheduler's own limit; or let each do less",
    ),
    (r"TimeoutError|timeout=", "raise timeout=, or see what such calls wait for"),
    (
        r"ModuleNotFoundError|ImportError",
        "see that the workers' Python has that package: the scheduler's python= says which it is",
    ),
)
"""Patterns for failures whose error has no hint."""


def failure_step(cause: str, hint: str = "") -> str:
    """Return the next step for failures of this cause; empty if only the calls' code can tell."""
    steps = (*DISK_STEPS, ("", hint)) if hint else (*DISK_STEPS, *FAILURE_STEPS)
    return next((step for words, step in steps if re.search(words, cause)), "")
