"""Workers in jobs of an LSF (IBM Spectrum LSF 10.1 or later), by its commands. We have never run
this: it follows manuals, and the output that other programs parse.

Sources: the command reference of LSF 10.1 (bsub, bjobs, bkill, bqueues, bparams) and its
"Termination reasons"; for `bjobs -json`, and the words of `bkill` and of a full queue, tests and
logs of public projects; for the messages of LSF's library, LavaLite, a free descendant of LSF
(lsb.err.c).

Left out, for lack of sources: how long a job may still run, which waiting jobs never start, and a
submission that only tries.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import Any, Self

from msgspec.structs import replace

from gridengine.errors import OutOfMemory, TimeoutError
from gridengine.schedulers.batch_commands import (
    BatchCommands,
    Queue,
    Seen,
    WorkerArray,
    shell_exit_words,
    succeeds_if_said,
)
from gridengine.schedulers.batch_words import Option, clock_seconds, option_text
from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.launcher import WorkerStatus

LOGGED = 'exec "$0" >"$1$LSB_JOBINDEX$2" 2>&1'
LOGGED_ALONE = 'exec "$0" >"$1" 2>&1'
"""A job: it runs its script, with a log of its own. LSF itself writes a job's output at the end."""
FIELDS = "jobid jobindex stat exit_code exit_reason pend_reason exec_host"

STATES: Mapping[str, WorkerStatus] = {
    **dict.fromkeys(("PEND", "PSUSP", "WAIT", "PROV"), WorkerStatus.QUEUED),
    # LSF has lost sight of UNKWN jobs, which may live on.
    **dict.fromkeys(("RUN", "UNKWN"), WorkerStatus.RUNNING),
    **dict.fromkeys(("USUSP", "SSUSP"), WorkerStatus.SUSPENDED),
}
_failed = partial(Seen, WorkerStatus.FAILED)
_DELETED = ("OWNER", "ADMIN", "FORCE_OWNER", "FORCE_ADMIN", "BUCKET_KILL")
_OTHERS = ("PREEMPT", "LOAD", "WINDOW", "CHKPNT", "REQUEUE_OWNER", "REQUEUE_ADMIN", "REQUEUE_RC")
TERMINATIONS: Mapping[str, Seen] = {
    **dict.fromkeys(_DELETED, _failed(deleted=True)),
    **dict.fromkeys((*_OTHERS, "MC_RECALL", "OTHER"), _failed(blameless=True)),
    **dict.fromkeys(("RUNLIMIT", "DEADLINE", "CPULIMIT"), _failed(fault=TimeoutError)),
    **dict.fromkeys(("MEMLIMIT", "SWAP"), _failed(fault=OutOfMemory)),
    "ZOMBIE": _failed(uncertain=True),
}
"""The meanings of LSF's reasons for ending a job, without their prefix `TERM_`."""


class LSFCommands(BatchCommands):
    """LSF's own commands.

    Args:
        most_tasks: the site's `MAX_JOB_ARRAY_SIZE`.
    """

    key, title = "lsf", "LSF"
    commands = ("bsub", "bjobs", "bkill", "bqueues")
    server_name, tested = "mbatchd", False
    away = re.compile(
        r"cannot connect|please wait|not responding|still trying|connection refused|not connected|"
        r"timeout|timed out|internal error|library call|lim is down|protocol error",
        re.IGNORECASE,
    )
    later = re.compile(
        r"pending job threshold|reached its job limit|no job id can be used|cannot fork",
        re.IGNORECASE,
    )
    # bsub waits for such a limit by itself.
    retrying = b"Retrying in"
    array_limit = re.compile("Job array index too large")
    barred: Mapping[str, str] = {
        "root job submission": "root may not submit jobs here: run this as a plain user",
        "non-LSF host": "jobs are submitted on other machines of this site",
        "unknown user|no user is defined": "ask the administrators for the right to submit",
    }
    gone = re.compile(
        r"no matching job found|already finished|is not found|no unfinished job", re.IGNORECASE
    )
    remedies: Mapping[str, str] = {
        "queue's (hard limit|resource)": "`bqueues -l` lists the limits of each queue: ask for "
        "less, or name another queue=",
        "queue": "`bqueues` lists the queues, `bqueues -l` who may use them; name one with queue=",
        "resource (requirement|name)|no resource defined": "a request is a -R string, such as "
        "R='select[type==any] rusage[mem=4GB]'; `lsinfo` lists the names",
        "too many processors|not enough host": "no host has so many slots: ask for less; `bhosts` "
        "lists them",
        "user/host group|user group": "name another with group=, or ask the administrators",
        "illegal option|bad argument|usage|time specification|limit specification": "arguments of "
        "LSFScheduler are options of bsub, as W='2:00': is one misspelt?",
        "esub": "a rule of the site (its esub) refuses it: change what its words name",
        "user permission denied": "ask the administrators who may submit such jobs",
        "job slot": "wait for your other jobs to end",
        "suspended": "`bresume JOB` releases it",
    }
    unavailable: Mapping[str, str] = {
        "": "`lsid` tells whether the cluster answers; load the site's profile.lsf; ask the "
        "administrators"
    }
    look, resume = "bjobs -l JOB", "`bresume JOB`"
    ours = frozenset(
        {
            *("-B", "-I", "-J", "-K", "-N", "-cwd", "-e", "-eo", "-i", "-is", "-jsdl", "-json"),
            *("-o", "-oo", "-outdir", "-pack", "-r", "-yaml"),
        }
    )
    time_option, memory_suffix, gpus = "-W", "MB]", "-gpu num={n}"
    cores_option = "-n {n} -R span[hosts=1]"
    # For the job, or for each of its cores if the site has RESOURCE_RESERVE_PER_TASK.
    memory_option = "-R rusage[mem={n}MB]"
    host_option = "-R select"
    own_memory = re.compile(r"(rusage\[mem=)(\d+)([KMGT])B?\]", re.IGNORECASE)
    site_options: Mapping[str, str] = {
        "queue": "-q {}",
        "account": "-P {}",
        "project": "-P {}",
        "group": "-G {}",
    }
    kept = re.compile(
        "LSF_(ENVDIR|SERVERDIR|BINDIR|LIBDIR|VERSION)|LSB_DEFAULT(QUEUE|PROJECT|_USERGROUP)"
    )
    request_variables = "LSB_DEFAULT"

    def __init__(self, most_tasks: int = 1000) -> None:
        self.most_tasks = most_tasks

    # Options.

    def own_option(self, name: str, value: Option) -> list[str]:
        return [f"-{name}"] if value is True else [f"-{name}", option_text(name, value)]

    def said(self, options: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return the settings that options make; of `-R`, those of each section, and each resource
        of `rusage`.
        """
        values: dict[str, tuple[str, str]] = {}
        for word, follower in zip_longest(options, options[1:], fillvalue=""):
            if not word.startswith("-"):
                continue
            name, is_one, value = word.partition(" ")
            if not is_one and not follower.startswith("-"):
                value = follower
            names = [name]
            if name == "-R":
                used = "".join(re.findall(r"rusage\[(.*?)\]", value))
                names = [f"-R {one}" for one in re.findall(r"(\w+)\[", value) if one != "rusage"]
                names += [f"-R rusage[{one}]" for one in re.findall(r"(\w+)=", used)]
            values.update((one, (value, f"{name} {value}".rstrip())) for one in names)
        return values

    def excluding(self, hosts: Sequence[str], own: str) -> list[str]:
        """Return a condition; LSF has hosts meet those of all `-R`."""
        conditions = " && ".join(f"hname!='{host}'" for host in hosts)
        return ["-R", f"select[{conditions}]"]

    def time(self, seconds: float) -> list[str]:
        """Return a limit in minutes, at which LSF sends SIGINT, SIGTERM and SIGKILL, as `bkill`
        does. It is one word, which the scheduler's own may replace.
        """
        return [f"-W {math.ceil(seconds / 60)}"]

    def completed(self, options: list[str]) -> list[str]:
        """Return the options with that limit as two words."""
        parts = (word.split(" ", 1) if word.startswith("-W ") else [word] for word in options)
        return list(chain.from_iterable(parts))

    def parse_time(self, text: str) -> float:
        """Return the seconds of "[hours:]minutes[/host]"."""
        return 60 * clock_seconds(text.partition("/")[0])

    # The site.

    def questions(self) -> list[list[str]]:
        return [["bparams", "-a"]]

    def told(self, outputs: Sequence[str], options: Sequence[str]) -> Self:
        most = re.search(r"MAX_JOB_ARRAY_SIZE\s*=\s*(\d+)", outputs[0])
        return type(self)(min(int(most[1]), 1000) if most else 1000)

    # Jobs.

    def submit(self, array: WorkerArray) -> list[str]:
        """Return the command that submits an array or a job; a shell reads its last word."""
        alone = array.count == 1
        before, _, after = array.log("1" if alone else "\0").partition("\0")
        words = [LOGGED_ALONE if alone else LOGGED, str(array.script), before, after]
        job = shlex.join(["/bin/sh", "-c", *words])
        name = array.name if alone else f"{array.name}[1-{array.count}]"
        ours = ["-J", name, "-o", "/dev/null", "-cwd", str(array.folder)]
        return ["bsub", "-rn", *array.options, *ours, job]

    def ids(self, output: str, count: int) -> list[str]:
        found = re.search(r"^Job <(\d+)> is submitted", output, re.MULTILINE)
        if found is None:
            return []
        return [found[1]] if count == 1 else [f"{found[1]}[{n}]" for n in range(1, count + 1)]

    def listing(self, name: str) -> list[str]:
        return ["bjobs", "-a", "-J", name, "-json", "-o", FIELDS]

    def parse(self, output: str) -> dict[str, Seen]:
        """Return the jobs of a listing; a record without a state is an error."""
        try:
            rows = json.loads(output)["RECORDS"] if output.strip() else []
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"bjobs says {output.strip()[:200]!r}") from error
        return {_id_of(row): seen_in(row) for row in rows if "STAT" in row}

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return ["bkill", *ids]

    def cancel_all(self, name: str) -> list[str]:
        return succeeds_if_said(["bkill", "-J", name, "0"], "No matching job found")

    # What is asked about the system.

    def version(self) -> list[str]:
        return ["lsid"]

    def queues(self) -> list[str]:
        return ["bqueues"]

    def parse_queues(self, output: str) -> list[Queue]:
        """Return the queues, from the first columns: name, priority and status."""
        rows = (line.split() for line in output.splitlines()[1:])
        return [Queue(row[0], row[2], row[2] == "Open:Active") for row in rows if len(row) > 2]


def _id_of(record: Mapping[str, Any]) -> str:
    """Return the id of a job. With LSB_BJOBS_DISPLAY_ENH, JOBID already has the index."""
    job, index = str(record["JOBID"]), str(record.get("JOBINDEX", ""))
    is_element = index.isdecimal() and int(index) and "[" not in job
    return f"{job}[{index}]" if is_element else job


def seen_in(record: Mapping[str, Any]) -> Seen:
    """Return the state of a job from `bjobs -json`, in which unknown values are empty or "-"."""
    state, host = str(record["STAT"]), str(record.get("EXEC_HOST", "")).partition(":")[0]
    host = re.sub(r"^\d+\*", "", host).strip("-")
    if state == "DONE":
        return Seen(WorkerStatus.ENDED, "it ended by itself", host=host)
    if state in ("EXIT", "ZOMBI"):
        return _ended(record, host, is_zombie=state == "ZOMBI")
    waits = STATES.get(state) is WorkerStatus.QUEUED
    reason = str(record.get("PEND_REASON", "")).strip("-; \n") if waits else ""
    return Seen(STATES.get(state), " ".join(reason.split()), host=host)


def _ended(record: Mapping[str, Any], host: str, *, is_zombie: bool) -> Seen:
    """Return how a job ended that failed."""
    reason = str(record.get("EXIT_REASON", "")).strip("-. ")
    keyword = re.match(r"TERM_(\w+)", reason)
    known = TERMINATIONS.get("ZOMBIE" if is_zombie else keyword[1] if keyword else "", _failed())
    status = str(record.get("EXIT_CODE", ""))
    code = int(status) if status.isdecimal() else 0
    end = shell_exit_words(code) if code else ""
    words = reason if reason and keyword else ", ".join(filter(None, [end, reason]))
    words = words or ("its host does not answer" if is_zombie else "it failed")
    return replace(known, reason=words, host=host)


class LSFScheduler(CommandScheduler):
    """Runs calls in jobs of an LSF. Not run by us: tell us what you see.

    Args:
        queue, account, project, group: `-q`, `-P`, `-P`, `-G` (default: the settings', else LSF's
            own).
        options: any option of bsub by its name, such as `W="2:00"`, `R="rusage[mem=4GB]"`, `x=True`
            or `app="python"`.
        strict: has no effect: nothing tells which waiting jobs LSF can never start.
    """

    _commands = LSFCommands
