"""The next steps that users can take, by the words of batch systems and of errors."""

from __future__ import annotations

import re

FULL = (
    r"No space left on device|[Dd]isk quota exceeded",
    "make room on that disk (`df -h` there, or `quota`), or write elsewhere; then try again: "
    "`gridengine retry` for a run with a name",
)
NEXT_STEPS = (
    FULL,
    (r"JobHeld|scontrol release", "release it: `scontrol release JOB`"),
    (r"\bhold|\bheld", "release it: `qrls JOB`"),
    (
        r"of prolog =",
        "the site's prolog fails, which is the administrators' to mend; each failure sets a queue "
        "into the error state, which they clear too (`qstat -f -explain E`, `qmod -c QUEUE`)",
    ),
    (
        r"temporarily not available",
        "`qstat -f -explain aAE` says why; the administrators clear a queue's error state "
        "(`qmod -c QUEUE`) or bring its host back",
    ),
    (
        r"disabled",
        "the administrators can enable the queue again (`qmod -e`); or say another queue=",
    ),
    (r"suspended", "wait until the queue is resumed; or say another queue="),
    (
        r"not contained in its hard queue list|unknown queue",
        "`qconf -sql` lists the queues; name another with queue=",
    ),
    (
        r"parallel environment|cannot run in PE|slots? in PE|offers only 0 slots",
        "`qconf -spl` lists the parallel environments, `qconf -sp NAME` their slots; name another "
        "with parallel_environment=, or ask for fewer Cores",
    ),
    (
        r"because it offers only|mem|Resources|slots|is full",
        "wait for others' jobs to end, or ask for less: Memory, Cores, or WTime of the calls",
    ),
    (r"Priority", "wait: others come first; `squeue --start` estimates when"),
    (
        r"Partition(TimeLimit|NodeLimit|Config)",
        "ask for less than the partition gives (`sinfo -o '%P %l %c %m'`), or name another with "
        "partition=",
    ),
    (r"Partition", "`sinfo` shows the partitions; name another with partition="),
    (
        r"is used up",
        "`sshare --long` shows what is used; name another account= or qos=, or ask who grants it",
    ),
    (r"ReqNodeNotAvail", "ask for other nodes, or ask the administrators: `sinfo --list-reasons`"),
    (r"QOS|Assoc|Max|limit|quota", "wait for your other jobs to end, or ask for less"),
    (r"not looked at yet|gives no reason|^$", "wait; ask again in a minute"),
)
"""Patterns for a batch system's words, each with the next step. The first that matches counts."""

OTHER_QUEUES = r"disabled|suspended|not contained in its hard queue list"
"""Words that Grid Engine says of every queue, including queues that the job does not want."""


def next_step(reason: str) -> str:
    """Return the next step for a batch system's reason. Parts of the reason about queues that the
    job cannot use count only if there are no other parts.
    """
    parts = [part for part in reason.split("; ") if not re.search(OTHER_QUEUES, part)]
    counts = "; ".join(parts) if parts else reason
    return next(
        (step for words, step in NEXT_STEPS if re.search(words, counts, re.IGNORECASE)),
        "ask the batch system itself: `qstat -j JOB`, or `scontrol show job JOB`",
    )


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
        "ask for less (Memory, Cores, WTime), or name another queue=, partition= or "
        "parallel_environment=: no machine there may run such a job",
    ),
    (
        r"MemoryError|OutOfMemory|MemoryLimit|of memory",
        "ask for more Memory, or say escalate_memory= for the next attempt to have more",
    ),
    (
        r"walltime|WTime",
        "give calls more time, by WTime or the scheduler's h_rt= or time=; or let each do less",
    ),
    (r"TimeoutError|timeout=", "raise timeout=, or see what such calls wait for"),
    (
        r"ModuleNotFoundError|ImportError",
        "see that the workers' Python has that package: the scheduler's python= says which it is",
    ),
)
"""Patterns for failures whose error has no hint."""


def failure_step(cause: str, hint: str = "") -> str:
    """Return the next step for failures with this cause; empty when only the calls' own code can
    tell.
    """
    steps = (*DISK_STEPS, ("", hint)) if hint else (*DISK_STEPS, *FAILURE_STEPS)
    return next((step for words, step in steps if re.search(words, cause)), "")
