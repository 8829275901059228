"""What PBS says of jobs: the output of `qstat -f`, parsed by pure functions.

Sources: pbs_job_attributes(7B) of OpenPBS 23.06, the statuses of its job.h, and outputs that were
recorded (`tests/unit/schedulers/recorded/openpbs`).

`qstat -f` is read rather than `qstat -f -F json`: the release 23.06.06 escapes nothing in its JSON,
so that a backslash in any variable, or in an option, makes the whole listing unreadable.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping

from gridengine.errors import GridEngineError, OutOfMemory, TimeoutError, exit_words
from gridengine.schedulers.batch_commands import Seen
from gridengine.schedulers.launcher import WorkerStatus

Fields = Mapping[str, str]
"""The attributes of a job, queue or server, as `Resource_List.walltime`."""
STATES = {
    **dict.fromkeys("QHWT", WorkerStatus.QUEUED),
    "R": WorkerStatus.RUNNING,
    **dict.fromkeys("SU", WorkerStatus.SUSPENDED),
}
"""Of "E", a job that is exiting, the end is not known."""
ENDED = frozenset("FX")
"""A job that has finished; a subjob that has, of an array that has not."""
MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
GIVEN_UP = re.compile("too many failed attempts to run")
SIGNALLED = range(129, 129 + 64)
"""A shell's statuses for a command that a signal ended: 128 more than its number."""
SIGNALLED_BY_PBS = range(257, 257 + 64)
"""PBS's statuses of a job that PBS sent a signal: 256 more than its number."""
FAULTS: Mapping[int, tuple[str, type[GridEngineError] | None]] = {
    -24: ("it used more cores than it asked for", None),
    -25: ("it used more cores than it asked for", None),
    -26: ("it exceeded its virtual memory", OutOfMemory),
    -27: ("it exceeded its memory", OutOfMemory),
    -28: ("it exceeded its CPU time", TimeoutError),
    -29: ("it reached its time limit", TimeoutError),
}
"""Of PBS's own statuses those that have a cause in the job."""


def records(output: str) -> Mapping[str, Fields]:
    """Return the attributes of each job, queue or server in the output of `qstat -f`, whose lines
    go on after a tab.

    Raises:
        ValueError: it is no such output.
    """
    found: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    name = ""
    for line in output.split("\n"):
        if line.startswith("    "):
            name, _, value = line[4:].partition(" = ")
            fields[name] = value
        elif line.startswith("\t") and name in fields:
            fields[name] += line[1:]
        elif header := re.fullmatch(r"(?:Job Id|Queue|Server): (\S+)", line):
            fields = found.setdefault(header[1], {})
    if output.strip() and not found:
        raise ValueError(f"qstat says {output.strip()[:200]!r}")
    return found


def seen_in(fields: Fields) -> Seen | None:
    """Return what its attributes say of a job or subjob; None when they do not say how it ended."""
    state, runs = fields.get("job_state", ""), fields.get("run_count", "")
    host = fields.get("exec_host", "").partition("/")[0]
    if state in ENDED:
        return _ended(fields, host) if runs and "Exit_status" in fields else None
    comment = fields.get("comment", "").strip()
    if GIVEN_UP.search(comment):
        return Seen(WorkerStatus.FAILED, comment, linger=True)
    status = STATES.get(state)
    if status is WorkerStatus.RUNNING:
        return Seen(status, host=host, start=runs, ends_at=_ends_at(fields))
    if status is WorkerStatus.QUEUED:
        return Seen(status, _why(state, comment, fields), again=bool(runs))
    return Seen(status, host=host)


def _why(state: str, comment: str, fields: Fields) -> str:
    """Return why a job waits; a subjob of an array that has begun has only the array's comment."""
    if comment and not comment.startswith(("Job Array Began", "Job run at")):
        return comment
    if state == "W":
        return f"it may not start before {fields.get('Execution_Time', 'a certain time')}"
    if "depend" in fields:
        return f"it waits for other jobs: {fields['depend']}"
    return f"it is held ({fields.get('Hold_Types', '')})" if state == "H" else ""


def _ends_at(fields: Fields) -> float:
    """Return when the time of a job is over: `stime` is ctime(3)'s, of this machine's zone."""
    limit = re.fullmatch(r"(\d+):(\d\d):(\d\d)", fields.get("Resource_List.walltime", ""))
    start = re.fullmatch(
        r"\w{3} (\w{3}) +(\d+) (\d\d):(\d\d):(\d\d) (\d{4})", fields.get("stime", "")
    )
    if limit is None or start is None:
        return math.inf
    month = MONTHS.index(start[1]) // 3 + 1
    day, hour, minute, second, year = map(int, start.groups()[1:])
    hours, minutes, seconds = map(int, limit.groups())
    began = time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
    return began + hours * 3600 + minutes * 60 + seconds


def _ended(fields: Fields, host: str) -> Seen:
    """Return how a job ended, by its `Exit_status`: of its script up to 255, with 256 more of a
    signal that PBS sent to all of it, negative of PBS itself.
    """
    code = int(fields["Exit_status"])
    by = re.search(r"and terminated(?: by (\S+))?", fields.get("comment", ""))
    if by:
        words = f"it was deleted by {by[1]}" if by[1] else "it was deleted"
        return Seen(WorkerStatus.FAILED, words, deleted=True, host=host)
    if code < 0:
        words, fault = FAULTS.get(code, (f"PBS could not run it (status {code})", None))
        return Seen(WorkerStatus.FAILED, words, fault, host=host)
    signals = next((row for row in (SIGNALLED, SIGNALLED_BY_PBS) if code in row), None)
    status = code if signals is None else -(code - signals.start + 1)
    words = exit_words(status) if status else "it ended by itself"
    return Seen(WorkerStatus.FAILED if code else WorkerStatus.ENDED, words, host=host)
