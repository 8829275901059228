"""The meaning of the output of Slurm's commands: of the site, of refusals, of jobs; pure functions
and tables.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gridengine.arguments import DAY
from gridengine.errors import OutOfMemory, TimeoutError, exit_words
from gridengine.schedulers.batch_commands import GONE, VANISHED, Seen
from gridengine.schedulers.batch_words import clock_seconds
from gridengine.schedulers.launcher import WorkerStatus


class SlurmLimits(Struct, frozen=True):
    """The limits of a Slurm.

    Attributes:
        largest: the most tasks of an array; 0 if there are no arrays.
        memory: the option to add to jobs that request no memory, or empty.
        accounts: whether accounts of jobs are kept.
        whole_cores: if each job gets a whole node, the cores of the smallest node; else 0.
        hides_memory: whether a job that requests no memory may get all of a node's, and the site
            does not show how much that is.
    """

    largest: int = 1000
    memory: str = ""
    accounts: bool = False
    whole_cores: int = 0
    hides_memory: bool = False


def site_of(config: str, partitions: str, nodes: str, names: str) -> SlurmLimits:
    """Return the limits of a Slurm, from `scontrol show config`, `scontrol show partition
    --oneliner` and sinfo's "%R|%c|%m".

    names: the requested partitions, joined by commas; empty for the default one. A site may hide
        partitions and nodes (PrivateData); their texts are empty then.

    If Slurm manages memory, a job that requests none gets all memory of a node, unless the site has
    a default. Then the share of one core is requested, so that a node runs as many workers as it
    has cores; but at most MaxMemPerCPU, because a job with more memory gets several cores
    (slurm.conf(5)).
    """
    fields = dict(re.findall(r"^(\w+)\s+=\s(.*?)\s*$", config, flags=re.MULTILINE))
    largest = int(fields.get("MaxArraySize", "1001")) - 1
    accounts = not fields.get("AccountingStorageType", "none").endswith("none")
    gives_memory = "MEMORY" in fields.get("SelectTypeParameters", "").upper()
    chosen = [
        fields | dict(re.findall(r"(\w+)=(\S*)", line)) for line in partitions.splitlines() if line
    ]
    chosen = [
        one
        for one in chosen
        if (one["PartitionName"] in names.split(",") if names else one.get("Default") == "YES")
    ]
    # `UNLIMITED` means no default.
    needs = gives_memory and any(
        one.get("DefMemPerNode", "UNLIMITED") == one.get("DefMemPerCPU", "UNLIMITED") == "UNLIMITED"
        for one in (chosen if partitions else [fields])
    )
    sizes = parse_sizes(nodes, [one["PartitionName"] for one in chosen])
    shares = [memory // cores for cores, memory in sizes]
    most = [int(said) for one in chosen if (said := one.get("MaxMemPerCPU", "")).isdecimal()]
    share = min([*shares, *most]) if needs and shares else 0
    whole = fields.get("SelectType") == "select/linear" or any(
        one.get("OverSubscribe") == "EXCLUSIVE" or one.get("Exclusive") == "NODE"  # from 26.05 on
        for one in chosen
    )
    return SlurmLimits(
        max(0, largest),
        f"--mem-per-cpu={share}M" if share else "",
        accounts,
        min((cores for cores, _ in sizes), default=0) if whole else 0,
        hides_memory=needs and not nodes,
    )


def parse_sizes(nodes: str, partitions: Sequence[str]) -> list[tuple[int, int]]:
    """Return the cores and megabytes of each kind of node, from sinfo's "%R|%c|%m"."""
    rows = re.findall(r"^(.*)\|(\d+)\+?\|(\d+)\+?\s*$", nodes, flags=re.MULTILINE)
    return [
        (int(cores), int(memory))
        for name, cores, memory in rows
        if name in partitions and int(cores)
    ]


UNREACHABLE = re.compile(
    r"unable to contact|socket timed out|authentication error|munge|zero bytes|connection (refused|"
    r"reset)|backup controller|"
    r"configuration (file|source)|ClusterName|timed out|communications|unexpected message|protocol "
    r"version",
    re.IGNORECASE,
)
"""No Slurm can be reached."""
LATER = re.compile(
    r"^(?!.*(QOS|Assoc)(?!\w*(Submit|Jobs))(Max|Min|Grp)\w)"
    r".*(temporarily unable|queue full|try again|MaxSubmit|MaxJobCount|submit limit|Resource "
    r"temporarily|too many)",
    re.IGNORECASE | re.DOTALL,
)
"""A limit of others' jobs or ours. Slurm has one text for all limits, also for lasting ones. A QOS
with DenyOnLimit refuses a job that is over a limit by itself, whoever else has jobs, and names the
limit (sacctmgr(1)): no time cures that.
"""
OWN_LIMITS = {
    "AssocMaxSubmitJobLimit|QOSMaxSubmitJobPerUserLimit": "`sacctmgr show associations user=$USER` "
    "and `sacctmgr show qos` list the limits, of which one is MaxSubmitJobs=0: name another "
    "account= or qos=, or ask the administrators"
}
"""Limits that only this user's jobs use up: if there are none, they allow none."""
BARRED = {"Invalid user id": "root may not submit jobs here; run this as a plain user"}
LESS = "no node has all of this, even when it is empty: ask for less"
"""The remedy if the site has nothing of that size."""
REMEDIES = {
    "invalid account": "`sacctmgr show associations user=$USER` lists the accounts; name one "
    "with account=",
    "user's group not permitted|access/permission denied": "ask the administrators who may use "
    "this partition, account or reservation; or name another",
    "partition name": "`sinfo` lists the partitions; name one with partition=",
    "invalid qos": "`sacctmgr show qos` lists them; name one with qos=",
    r"generic resource \(gres\)|invalid gres": "`sinfo --format='%P %G'` lists each partition's "
    "GPUs and the like, as (null) where it has none; how GPUs are asked for here is the setting "
    "gpus of [slurm]",
    "feature specification": "`sinfo --format='%N %f'` lists the nodes' features",
    "time limit is invalid": "`sinfo --format='%P %l'` lists how long jobs may take in each "
    "partition; ask for less with time= or WTime, or name another partition=",
    "--time(-min)? specification": "write a time as minutes, 'hours:minutes:seconds' or "
    "'days-hours', as time='2:00:00'; or leave it to the WTime of calls",
    r"--(mem|tmp)\S* specification": "write an amount with a unit, as mem='4G'; or leave it to "
    "the Memory of calls",
    "unrecognized option|invalid option|ambiguous": "arguments of SlurmScheduler that are not "
    "its own go to sbatch as --NAME=VALUE: `sbatch --help` lists the options; is one misspelt?",
    "reservation": "`scontrol show reservation` lists the reservations and who may use them",
    "node name": "`sinfo --Node` lists the nodes",
    "license": "`scontrol show licenses` lists the licences",
    "node configuration|can not be satisfied|node count specification|more processors": LESS,
    r"accounting/qos policy": "`sacctmgr show associations user=$USER` and `sacctmgr show qos` "
    "list the limits: ask for less, or name another account= or qos=",
}
"""Remedies by regular expressions for refusals, in Slurm 22.05's texts; the first match counts."""
BY_A_RULE = (
    "a rule of the site may refuse it (job_submit in its slurm.conf): `sbatch` by hand with the "
    "same options says whether it does; change what its words name, or ask the administrators"
)
"""The remedy for a refusal in a site's own words."""
UNAVAILABLE = {
    "munge|authentication": "`munge -n | unmunge` tells whether munged runs on this machine; ask "
    "the administrators",
    "configuration|clustername": "this machine has no slurm.conf; SLURM_CONF may say where it is",
    "": "`scontrol ping` tells whether slurmctld answers; ask the administrators",
}
"""Remedies if Slurm cannot be reached."""


FORMAT = "%F|%K|%T|%S|%L|%r"
"""The columns of squeue: the job's and the tasks' numbers (`%i` may leave these out), state, start,
remaining time, and the reason to wait, which may hold any character.
"""
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
"""The states of unfinished jobs. COMPLETING is none: any end, and requeueing, pass it."""


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
GRACEFUL = ("COMPLETED", "CANCELLED")
"""How a preempted job may end that leaves within its partition's GraceTime (slurm.conf(5))."""
STDOUT_SIGNAL = 53
"""Slurm's own "signal" for a job whose output file cannot be opened."""

_LASTING = (
    (r"DependencyNeverSatisfied", "a job that it depends on has failed", "change dependency="),
    (
        r"Partition(NodeLimit|TimeLimit|Config)",
        "it asks for more than its partition gives, or may not use it",
        "ask for less (`sinfo -o '%P %l %c %m'` lists what each gives), or use another partition=",
    ),
    (r"BadConstraints", "no nodes have what it asks for", "ask for something else"),
    (
        r"InvalidQOS|QOSNotAllowed|Job's QOS not permitted.*",
        "its QOS is not allowed here",
        "use another qos= or partition=",
    ),
    (
        r"InvalidAccount|AccountNotAllowed|Job's account not permitted.*",
        "its account is not allowed here",
        "use another account= or partition=",
    ),
    (
        r"(QOS|Assoc)Max\w+Per(Job|Node)(Limit)?|QOSMin\w+|MaxMemPerLimit",
        "one job may not ask for so much, or so little, in its QOS or account",
        "ask for something else, or use another qos= or account=",
    ),
)
"""Reasons that do not pass by waiting. If nodes are down or drained, Slurm (22.05) has other
reasons, `ReqNodeNotAvail` or `Nodes required for job are DOWN`, except for requests that no node
can hold.
"""
_PASSING = (
    (r"None", "not looked at yet", "wait; ask again in a minute"),
    (r"Priority", "other jobs come first", "wait; `squeue --start` estimates when it starts"),
    (r"Resources", "what it asks for is in use", "wait, or ask for less"),
    (r"BeginTime", "it may not start before a certain time", ""),
    (r"Dependency.*", "it waits for other jobs", ""),
    (r"JobArrayTaskLimit", "as many tasks of this array run as may", ""),
    (r"Licenses", "a licence that it asks for is in use", ""),
    (
        r"(JobHeldUser|JobHeldAdmin|.*held.*)",
        "it is held",
        "`scontrol release JOB` releases it; or ask the administrators",
    ),
    (
        r"Partition(Down|Inactive)",
        "its partition is down",
        "use another partition=, as `sinfo` lists them, or ask the administrators",
    ),
    (
        r"(ReqNodeNotAvail|Node_?Down|Nodes?[ _]required).*",
        "nodes that it needs are down, drained or reserved",
        "ask for others, or ask the administrators: `sinfo --list-reasons` says why",
    ),
    (r"Reservation.*", "its reservation has not begun", ""),
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
REASONS = {
    f"^({pattern})$": (meaning, remedy) for pattern, meaning, remedy in (*_LASTING, *_PASSING)
}
"""The meaning and remedy of each reason, by the first match ("JOB REASON CODES", squeue(1))."""
NEVER = re.compile("|".join(f"^({pattern})$" for pattern, _, _ in _LASTING))


def ids_of(job: str, tasks: str) -> list[str]:
    """Return the ids of tasks of a job: of "12" and "3", "4-9%2" or "1,3-5,10-20:5"; of "12" and
    "N/A" for a job that is not an array. Raise a ValueError if the numbers are malformed.
    """
    several = [] if tasks in ("", "N/A") else re.sub(r"%\d+$", "", tasks).split(",")
    found = (re.fullmatch(r"(\d+)(?:-(\d+)(?::0*([1-9]\d*))?)?", part) for part in several)
    spans = [span for span in found if span is not None]
    if not job.isdecimal() or len(spans) < len(several):
        raise ValueError(f"{job!r} with {tasks!r} is not the id of a job")
    ids = [
        f"{job}_{number}"
        for span in spans
        for number in range(int(span[1]), int(span[2] or span[1]) + 1, int(span[3] or 1))
    ]
    return ids if several else [job]


def parse_squeue(text: str) -> dict[str, Seen]:
    """Return the states of tasks, from squeue's `FORMAT`; raise a ValueError for another form."""
    rows = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        fields = line.split("|", 5)
        if len(fields) != 6:
            raise ValueError(f"squeue says {line!r}")
        job, tasks, *row = fields
        rows.update(dict.fromkeys(ids_of(job, tasks), seen_in(*row)))
    return rows


def seen_in(state: str, start: str = "", remaining: str = "", reason: str = "") -> Seen:
    """Return the state of a task, from squeue's words; `BeginTime`: perhaps it was requeued."""
    if state in ENDS:
        return replace(ENDS[state], reason=f"{ENDS[state].reason} ({state})")
    status = STATES.get(state)
    return Seen(
        status,
        re.sub(r"^\((.*)\)$", r"\1", reason) if status else state,
        again=state == "PENDING" and reason == "BeginTime",
        start=start if status is WorkerStatus.RUNNING else "",
        remaining_seconds=remaining_seconds(remaining),
    )


def remaining_seconds(text: str) -> float:
    """Return the seconds of squeue's "1-02:03:04", "03:04" or "0:04"; infinite for a word, as
    UNLIMITED, or INVALID and NOT_SET for a job whose time is unknown.
    """
    match = re.fullmatch(r"(?:(\d+)-)?((?:\d+:){1,2}\d+)", text)
    return int(match[1] or 0) * DAY + clock_seconds(match[2]) if match else math.inf


def _time_left(fields: Mapping[str, str]) -> float:
    """Return how many seconds a job may still run, from scontrol's fields; infinite if unknown."""
    ran = remaining_seconds(fields.get("RunTime", ""))
    limit = remaining_seconds(fields.get("TimeLimit", ""))
    return limit if ran == math.inf else limit - ran


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
    """Describe an exit code, "3:0" or "0:9": a status, and a signal; empty if both are 0."""
    match = re.fullmatch(r"(\d+):(\d+)", code)
    status, number = (int(match[1]), int(match[2])) if match else (0, 0)
    if number == STDOUT_SIGNAL:
        return "its log file could not be opened"
    if number:
        return exit_words(-number)
    return exit_words(status) if status else ""


def with_details(seen: Seen, fields: Mapping[str, str], by: str) -> Seen:
    """Return how a task ended, with its exit code, Slurm's reason, its node, and who cancelled it;
    `fields` are scontrol's, empty if it has forgotten the task. One that was not listed may live:
    then return its state.
    """
    state = fields.get("JobState", "")
    if seen in (GONE, VANISHED):
        if seen == GONE and not state:
            return replace(seen, reason="Slurm no longer knows it, nor how it ended")
        start, reason = fields.get("StartTime", ""), fields.get("Reason", "")
        seen = seen_in(state or "CANCELLED", start, reason=reason)
        if seen.state not in (WorkerStatus.ENDED, WorkerStatus.FAILED):
            return replace(seen, remaining_seconds=_time_left(fields))
    if state in GRACEFUL and fields.get("PreemptTime", "")[:1].isdigit():
        seen = replace(ENDS["PREEMPTED"], reason=f"{ENDS['PREEMPTED'].reason} ({state})")
    reason, code = fields.get("Reason", ""), end_code_words(fields.get("ExitCode", ""))
    said_by_code = code and re.match("JobLaunchFailure$|RaisedSignal:", reason)
    kept = "" if said_by_code or reason in ("None", "NonZeroExitCode") else reason
    details = ", ".join(filter(None, [code, kept]))
    words = seen.reason + (f": {details}" if details else "") + (f", by {by}" if by else "")
    return replace(seen, reason=words, host=fields.get("NodeList", "").replace("(null)", ""))


def parse_cancelled_by(text: str) -> dict[str, str]:
    """Return the number of the user who cancelled each task, from sacct's "12_3|CANCELLED by 7"."""
    return dict(re.findall(r"^([\d_]+)\|CANCELLED by (\d+)", text, flags=re.MULTILINE))
