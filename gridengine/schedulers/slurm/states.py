"""What Slurm says of jobs: its commands' output, parsed by pure functions, and what its words mean
(see squeue(1)).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import replace

from gridengine.errors import OutOfMemory, TimeoutError, exit_words
from gridengine.schedulers.batch_commands import GONE, VANISHED, Seen
from gridengine.schedulers.launcher import WorkerStatus

FORMAT = "%F|%K|%T|%S|%L|%r"
"""What is asked of each job: its number and its tasks' (not `%i`, which may leave these out), its
state, when it started or is to start, how long it may run on, why it waits. The last may hold
anything."""
STATES = {
    **dict.fromkeys(
        (
            "PENDING",
            "CONFIGURING",
            "REQUEUED",
            "REQUEUE_HOLD",
            "REQUEUE_FED",
            "SPECIAL_EXIT",
            "RESV_DEL_HOLD",
        ),
        WorkerStatus.QUEUED,
    ),
    **dict.fromkeys(("RUNNING", "SIGNALING", "RESIZING", "STAGE_OUT"), WorkerStatus.RUNNING),
    **dict.fromkeys(("SUSPENDED", "STOPPED"), WorkerStatus.SUSPENDED),
}
"""Of COMPLETING nothing follows: what ends, is deleted and is put back into the queue all passes
it.
"""


_failed = functools.partial(Seen, WorkerStatus.FAILED)
ENDS = {
    "COMPLETED": Seen(WorkerStatus.ENDED, "it ended by itself"),
    "FAILED": _failed("it failed"),
    "CANCELLED": _failed("it was cancelled", deleted=True),
    "TIMEOUT": _failed("it reached its time limit", fault=TimeoutError),
    "DEADLINE": _failed("it reached its deadline", fault=TimeoutError),
    "OUT_OF_MEMORY": _failed("it ran out of memory", fault=OutOfMemory),
    "NODE_FAIL": _failed("its node failed", uncertain=True),
    "BOOT_FAIL": _failed("its node did not boot", blameless=True),
    "PREEMPTED": _failed("it was preempted by another job", blameless=True),
    "REVOKED": _failed("another cluster of the federation took it", blameless=True),
    "LAUNCH_FAILED": _failed("it could not be started"),
    "RECONFIG_FAIL": _failed("its node could not be configured", blameless=True),
}
STDOUT_SIGNAL = 53
"""The "signal" of a job whose output file cannot be opened: Slurm's own number."""

_REASONS = (
    (r"None", "not looked at yet", ""),
    (r"Priority", "other jobs come first", ""),
    (r"Resources", "what it asks for is in use", "wait, or ask for less"),
    (r"BeginTime", "it may not start before a certain time", ""),
    (r"DependencyNeverSatisfied", "a job that it depends on has failed", "change dependency="),
    (r"Dependency.*", "it waits for other jobs", ""),
    (r"JobArrayTaskLimit", "as many tasks of this array run as may", ""),
    (r"Licenses", "a licence that it asks for is in use", ""),
    (
        r"(JobHeldUser|JobHeldAdmin|.*held.*)",
        "it is held",
        "release it: scontrol release JOB; or ask the administrators",
    ),
    (
        r"Partition(Down|Inactive)",
        "its partition is down",
        "use another partition=, or ask the administrators",
    ),
    (
        r"Partition(NodeLimit|TimeLimit|Config)",
        "it asks for more than its partition gives",
        "ask for less, or use another partition=",
    ),
    (
        r"(ReqNodeNotAvail|Node_?Down|Nodes?[ _]required).*",
        "nodes that it needs are down, drained or reserved",
        "ask for others, or ask the administrators",
    ),
    (r"BadConstraints", "no nodes have what it asks for", "ask for something else"),
    (r"Reservation.*", "its reservation has not begun", ""),
    (r"(InvalidQOS|QOSNotAllowed)", "its QOS is not allowed here", "use another qos="),
    (
        r"(InvalidAccount|AccountNotAllowed)",
        "its account is not allowed here",
        "use another account=",
    ),
    (
        r"(QOS|Assoc)Max\w+Per(Job|Node)(Limit)?|QOSMin\w+|MaxMemPerLimit",
        "one job may not ask for so much, or so little, in its QOS or account",
        "ask for something else, or use another qos= or account=",
    ),
    (
        r"(QOS|Assoc)(Grp|Max)(?!\w*RunMin)\w*Minutes\w*",
        "the computing time that its account or QOS was granted is used up: it does not start when "
        "other jobs end",
        "`sshare --long` shows what is used; ask who grants it for more, or use another account= "
        "or qos=",
    ),
    (
        r"QOS.*",
        "a limit of its QOS is reached",
        "wait for your other jobs to end, ask for less, or use another qos=",
    ),
    (
        r"(Assoc|Max|User).*",
        "a limit of this user or account is reached",
        "wait for your other jobs to end, ask for less, or use another account=",
    ),
)
REASONS = {f"^({pattern})$": (meaning, remedy) for pattern, meaning, remedy in _REASONS}
"""What Slurm's reasons mean, and what can be done: the first that fits (see "JOB REASON CODES" in
squeue(1)).
"""


NEVER = re.compile(
    r"^(Partition(NodeLimit|TimeLimit|Config)|BadConstraints|DependencyNeverSatisfied|Invalid(QOS|"
    r"Account)|(QOS|Account)NotAllowed|"
    r"(QOS|Assoc)Max\w+Per(Job|Node)(Limit)?|QOSMin\w+|MaxMemPerLimit)$"
)
"""The reasons that do not pass by waiting. Where it is nodes that are down or drained, Slurm
(22.05) says that instead: `ReqNodeNotAvail`, `Nodes required for job are DOWN`, though not of what
no node could hold."""


def ids_of(job: str, tasks: str) -> list[str]:
    """Return the ids of these tasks of a job: of "12" and "3", "4-9%2" or "1,3-5,10-20:5"; or of
    "12" and "N/A" for a job that is no array.

    Raises:
        ValueError: they are none.
    """
    several = [] if tasks in ("", "N/A") else re.sub(r"%\d+$", "", tasks).split(",")
    found = (re.fullmatch(r"(\d+)(?:-(\d+)(?::0*([1-9]\d*))?)?", part) for part in several)
    spans = [span for span in found if span is not None]
    if not job.isdecimal() or len(spans) < len(several):
        raise ValueError(f"{job!r} with {tasks!r} is no id of a job")
    ids = [
        f"{job}_{number}"
        for span in spans
        for number in range(int(span[1]), int(span[2] or span[1]) + 1, int(span[3] or 1))
    ]
    return ids if several else [job]


def parse_squeue(text: str) -> dict[str, Seen]:
    """Return what is said of each task, from squeue's output in `FORMAT`.

    Raises:
        ValueError: a line is not of that form.
    """
    rows = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        fields = line.split("|", 5)
        if len(fields) != 6:
            raise ValueError(f"squeue says {line!r}")
        job, tasks, *row = fields
        rows.update(dict.fromkeys(ids_of(job, tasks), seen_in(*row)))
    return rows


def seen_in(state: str, start: str = "", remaining: str = "", reason: str = "") -> Seen:
    """Return what is said of a task in this state. One that waits for `BeginTime` may have been put
    back into the queue.
    """
    if state in ENDS:
        return replace(ENDS[state], reason=f"{ENDS[state].reason} ({state})")
    status = STATES.get(state)
    return Seen(
        status,
        reason.strip("()") if status else state,
        again=state == "PENDING" and reason == "BeginTime",
        start=start if status is WorkerStatus.RUNNING else "",
        remaining_seconds=remaining_seconds(remaining),
    )


def remaining_seconds(text: str) -> float:
    """Return the seconds of squeue's "1-02:03:04", "03:04" or "0:04"; infinite for a word, as
    UNLIMITED or, of a job whose time is not known, INVALID or NOT_SET.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def parse_jobs(text: str) -> dict[str, dict[str, str]]:
    """Return the fields of each task, from the output of `scontrol show job --oneliner`."""
    found = {}
    for line in text.splitlines():
        fields = dict(re.findall(r"(?:^|\s)([\w/:]+)=(\S*)", line))
        job, array, task = (fields.get(name, "") for name in ("JobId", "ArrayJobId", "ArrayTaskId"))
        if job:
            found.update(dict.fromkeys(ids_of(array or job, task), fields))
    return found


def end_code_words(code: str) -> str:
    """Return what "3:0" or "0:9" means: the status, and the signal; empty when it says nothing."""
    match = re.fullmatch(r"(\d+):(\d+)", code)
    status, number = (int(match[1]), int(match[2])) if match else (0, 0)
    if number == STDOUT_SIGNAL:
        return "its log file could not be opened"
    if number:
        return exit_words(-number)
    return exit_words(status) if status else ""


def with_details(seen: Seen, fields: Mapping[str, str], by: str) -> Seen:
    """Return how a task ended, with its exit code, Slurm's own reason, its node, and who cancelled
    it: `fields` are scontrol's, empty where it has forgotten the task.
    """
    state = fields.get("JobState", "")
    if seen in (GONE, VANISHED):
        known = seen_in(state or "CANCELLED")
        if known.state is None or (seen == GONE and not state):
            return replace(seen, reason="Slurm no longer knows it, nor how it ended")
        seen = known
    reason, code = fields.get("Reason", ""), end_code_words(fields.get("ExitCode", ""))
    said_by_code = code and re.match("JobLaunchFailure$|RaisedSignal:", reason)
    kept = "" if said_by_code or reason in ("None", "NonZeroExitCode") else reason
    details = ", ".join(filter(None, [code, kept]))
    words = seen.reason + (f": {details}" if details else "") + (f", by {by}" if by else "")
    return replace(seen, reason=words, host=fields.get("NodeList", "").replace("(null)", ""))


def parse_cancelled_by(text: str) -> dict[str, str]:
    """Return the number of the user who cancelled each task, by sacct's
    "12_3|CANCELLED by 1001".
    """
    return dict(re.findall(r"^([\d_]+)\|CANCELLED by (\d+)", text, flags=re.MULTILINE))
