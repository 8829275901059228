"""Workers in jobs of an OpenPBS or a PBS Professional, by their commands.

Sources: qsub(1B), qstat(1B), qdel(1B), qselect(1B), pbs_resources(7B) and pbs_job_attributes(7B) of
OpenPBS 23.06, the messages of its server (pbs_messages.c), the statuses of its job.h, and recorded
outputs (`tests/unit/schedulers/recorded/openpbs`).

The output of `qstat -f` is read rather than that of `qstat -f -F json`: release 23.06.06 escapes
nothing in its JSON, so that a backslash in any variable or option makes the listing unreadable.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Self

from gridengine.call_context import LOG
from gridengine.errors import (
    ConfigurationError,
    GridEngineError,
    OutOfMemory,
    TimeoutError,
    exit_words,
)
from gridengine.schedulers.batch_commands import (
    BatchCommands,
    Queue,
    Seen,
    WorkerArray,
    one_line,
    shell,
    shell_exit_words,
)
from gridengine.schedulers.batch_words import Option, clock_seconds, option_text
from gridengine.schedulers.brought_files import NOT_BROUGHT
from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.launcher import WorkerStatus

Fields = Mapping[str, str]
"""The attributes of a job, queue or server, such as `Resource_List.walltime`."""
STATES = {
    **dict.fromkeys("QHWT", WorkerStatus.QUEUED),
    "R": WorkerStatus.RUNNING,
    **dict.fromkeys("SU", WorkerStatus.SUSPENDED),
}
"""The states of jobs that have not ended, except "E", exiting."""
ENDED = frozenset("FX")
"""The states of a finished job, and of a finished subjob of an unfinished array."""
NEVER_RAN = "92"
"""The substate of a job that PBS ended because its dependency can never come true. Somebody's
deletion is 91.
"""
STAGING, NOT_STAGED = "15", "37"
"""STAGING: PBS is bringing the files of a job to its host. NOT_STAGED: PBS could not bring the
files of a job or an array; a subjob stays STAGING then, and has no host any more.
"""
MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
GIVEN_UP = re.compile("too many failed attempts to run")

SIGNALLED_BY_PBS = range(257, 257 + 64)
"""PBS's statuses of a job that got a signal from PBS: 256 more than the signal's number."""
FAULTS: Mapping[int, tuple[str, type[GridEngineError] | None]] = {
    -24: ("it used more cores than it asked for", None),
    -25: ("it used more cores than it asked for", None),
    -26: ("it exceeded its virtual memory", OutOfMemory),
    -27: ("it exceeded its memory", OutOfMemory),
    -28: ("it exceeded its CPU time", TimeoutError),
    -29: ("it reached its time limit", TimeoutError),
}
"""PBS's own statuses that have a cause in the job."""


def records(output: str) -> Mapping[str, Fields]:
    """Return the attributes of each job, queue or server from `qstat -f`, in which a tab continues
    a line. Raise a ValueError for another output.
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
    """Return the state of a job or subjob; None if it is not known how it ended."""
    state, runs = fields.get("job_state", ""), fields.get("run_count", "")
    host = fields.get("exec_host", "").partition("/")[0]
    if state in ENDED:
        if not runs and "depend" in fields and fields.get("substate") == NEVER_RAN:
            words = f"jobs that it waited for have not ended as it asked: {fields['depend']}"
            return Seen(WorkerStatus.FAILED, words, host=host)
        return _ended(fields, host) if runs and "Exit_status" in fields else None
    substate = fields.get("substate")
    if substate == NOT_STAGED or (substate == STAGING and not host):
        return Seen(WorkerStatus.FAILED, f"PBS says that {NOT_BROUGHT}", linger=True)
    if substate == STAGING:
        return Seen(WorkerStatus.QUEUED, f"its files are being brought to {host}")
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
    """Return why a job waits. A subjob of an array that has begun only has the array's comment; one
    of an array that is held has the array's `Hold_Types`.
    """
    if comment.startswith("Job Array Began"):
        return "others of its array have begun, and PBS does not say why this one waits"
    if comment and not comment.startswith("Job run at"):
        return comment
    if state == "W":
        return f"it may not start before {fields.get('Execution_Time', 'a certain time')}"
    if "depend" in fields:
        return f"it waits for other jobs: {fields['depend']}"
    held = fields.get("Hold_Types", "n")
    return f"it is held ({held})" if state == "H" or held != "n" else ""


def _ends_at(fields: Fields) -> float:
    """Return when a job's time is over; `stime` is a ctime(3) in this machine's time zone."""
    limit = clock_seconds(fields.get("Resource_List.walltime", ""))
    start = re.fullmatch(
        r"\w{3} (\w{3}) +(\d+) (\d\d):(\d\d):(\d\d) (\d{4})", fields.get("stime", "")
    )
    if not limit or start is None:
        return math.inf
    month = MONTHS.index(start[1]) // 3 + 1
    day, hour, minute, second, year = map(int, start.groups()[1:])
    return time.mktime((year, month, day, hour, minute, second, 0, 0, -1)) + limit


def _ended(fields: Fields, host: str) -> Seen:
    """Return how a job ended, by its `Exit_status`: the script's, up to 255; 256 and a signal that
    PBS sent; or PBS's own, negative.
    """
    code = int(fields["Exit_status"])
    by = re.search(r"and terminated(?: by (\S+))?", fields.get("comment", ""))
    if by:
        words = f"it was deleted by {by[1]}" if by[1] else "it was deleted"
        return Seen(WorkerStatus.FAILED, words, deleted=True, host=host)
    if code < 0:
        words, fault = FAULTS.get(code, (f"PBS could not run it (status {code})", None))
        return Seen(WorkerStatus.FAILED, words, fault, host=host)
    if code in SIGNALLED_BY_PBS:
        words = exit_words(256 - code)
    else:
        words = shell_exit_words(code) if code else "it ended by itself"
    return Seen(WorkerStatus.FAILED if code else WorkerStatus.ENDED, words, host=host)


LOGGED = 'exec "$0" >"$1$PBS_ARRAY_INDEX$2" 2>&1'
"""A job: it runs its script, with a log of its own. PBS itself may write logs at the end."""
BROUGHT = f'export {LOG}="$1$PBS_ARRAY_INDEX$2"; exec "./$0"'
"""A job in a folder of its own, to which PBS brings its script, and from which it copies the
output, which no worker could name.
"""
LIST = 'set -f; ids=$(qselect -N "$1") && { [ -z "$ids" ] || qstat -t -f $ids; }'
CANCEL = 'set -f; ids=$(qselect -N "$1") && { [ -z "$ids" ] || qdel $ids; }'
WAIT = 'while [ -n "$(qselect -N "$1")" ]; do sleep 0.3; done'
QDEL = "set -f; status=0; for ids do qdel $ids || status=$?; done; exit $status"

ALONE = frozenset({"-f", "-h", "-I", "-V", "-X", "-z"})
"""The options without a value."""
CHUNK = frozenset({"accelerator_memory", "arch", "hbmem", "host", "mem", "mpiprocs"}) | frozenset(
    {"naccelerators", "ncpus", "ngpus", "ompthreads", "vmem", "vnode"}
)
"""The resources of a chunk: what one node gives to a job (pbs_resources(7B))."""


class PBSCommands(BatchCommands):
    """PBS's own commands.

    Args:
        most_tasks: the largest array.
        history: whether PBS remembers ended jobs.
    """

    key, title = "pbs", "PBS"
    # Only PBS has this command; Grid Engine has all the others, TORQUE most.
    commands = ("pbs_rstat",)
    # Commas separate files, `@` and `:` their parts; scp may have a shell at its other end.
    unbrought = re.compile(r"[^\w/.+=~-]")
    away = re.compile(
        r"cannot connect|could(n't| not) connect|connection (refused|reset)|no free connections|"
        r"connection table full|server shutting down|timed? ?out|unable to authenticate|end of "
        r"file|unknown host",
        re.IGNORECASE,
    )
    later = re.compile(
        r"would exceed|maximum number of jobs already|resource temporarily unavailable",
        re.IGNORECASE,
    )
    array_limit = re.compile("Array job exceeds server or queue size limit")
    own_limits: Mapping[str, str] = {
        "per-user limit": "`qstat -Qf` and `qstat -Bf` list the limits, of which one (max_queued) "
        "allows no job of yours: name another queue=, or ask the administrators"
    }
    barred: Mapping[str, str] = {
        "Bad UID for job execution": "root may not submit jobs here, nor may a user whom the "
        "server's machine does not know: run this as a plain user",
        "Access from host not allowed": "jobs are submitted on other machines of this site",
    }
    gone = re.compile(
        r"Unknown Job Id|Job has finished|invalid for (finished|state)", re.IGNORECASE
    )
    remedies: Mapping[str, str] = {
        "unknown queue|queue is not enabled|access to queue|unauthorized request|destinations": (
            "`qstat -Q` lists the queues, `qstat -Qf` who may use them and for how much; name one "
            "with queue="
        ),
        "unknown resource": "arguments of PBSScheduler that are not its own are resources, such as "
        "walltime='2:00:00' or select='1:ncpus=4:mem=8gb': is one misspelt? How GPUs are asked for "
        "here is the setting gpus of [pbs]; options of qsub go into native=",
        "illegal attribute or resource value": "write times as '2:00:00' and memory as '4gb'",
        "violates queue|exceeds allowable": "`qstat -Qf` lists each queue's resources_max and "
        "resources_min: ask for less, or name another queue=",
        "cannot be used with .select|invalid in .select|duplicated resource": "what one node gives "
        "(ncpus, mem, ngpus) stands in select=, what the whole job has (walltime) beside it",
        "illegal -|invalid option": "`man qsub` lists the options",
        "not enough total nodes|never run: insufficient": "no node has all of this, even when it "
        "is empty: ask for less; `pbsnodes -aSj` lists the nodes",
        "insufficient amount|not enough free": "wait, or ask for less",
        "queue not started|not in queue": "name another queue=, or ask the administrators",
        "limit": "wait for your other jobs to end",
        "held": "`qrls JOB` releases it",
        "jobs that it waited for": "name other jobs in native='-W depend=...', or none",
    }
    other_remedy = (
        "a hook of the site may refuse it: `qsub` by hand with the same options says whether it "
        "does; change what its words name, or ask the administrators"
    )
    unavailable: Mapping[str, str] = {
        "unknown host": "PBS_SERVER in /etc/pbs.conf, or PBS_CONF_FILE, names the server's machine",
        "": "`qstat -B` tells whether the server answers; ask the administrators",
    }
    look = "qstat -f JOB"
    resume = "`qsig -s resume JOB`, which the administrators may"
    never = re.compile("^Can Never Run")
    ours = frozenset(
        {
            *("-C", "-e", "-I", "-J", "-j", "-k", "-N", "-o", "-R", "-X", "-z"),
            *("-W block", "-W interactive"),
        }
    )
    time_option, memory_suffix, gpus = "walltime", "mb", "-l ngpus={n}"
    cores_option, memory_option = "-l ncpus={n}", "-l mem={n}mb"
    own_memory = re.compile(r"((?:-l)?(?:select=[^+]*:)?mem=)(\d+)([kmgt])b?", re.IGNORECASE)
    site_options: Mapping[str, str] = {
        "queue": "-q {}",
        "account": "-A {}",
        "project": "-P {}",
        "priority": "-p {}",
    }
    kept = re.compile(
        "PBS_(CONF_FILE|EXEC|HOME|SERVER|DEFAULT|PRIMARY|SECONDARY|BATCH_SERVICE_PORT|CLIENTRETRY|"
        "AUTH_METHOD|ENCRYPT_METHOD|SUPPORTED_AUTH_METHODS)"
    )
    configuration = "PBS_CONF_FILE"

    def __init__(self, most_tasks: int = 1000, *, history: bool = False) -> None:
        self.most_tasks = most_tasks
        self._history = history

    # Options.

    def own_option(self, name: str, value: Option) -> list[str]:
        """Return a resource."""
        return ["-l", f"{name}={option_text(name, value)}"]

    def said(self, options: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return the settings that options make: resources by name, also those within `select`;
        attributes as "-W block"; all others by letter.
        """
        values = {}
        for flag, value in _pairs(options):
            text = f"{flag} {value}".rstrip()
            if flag not in ("-l", "-W"):
                values[flag] = (value, text)
                continue
            name, _, content = value.partition("=")
            values[name if flag == "-l" else f"-W {name}"] = (content, text)
            if name == "select":
                parts = (part.partition("=") for part in re.split("[:+]", content))
                values.update((part, (amount, text)) for part, is_set, amount in parts if is_set)
        return values

    def time(self, seconds: float) -> list[str]:
        """Return a limit at which PBS sends SIGTERM, and SIGKILL some seconds later. It is one
        word, which the scheduler's own may replace.
        """
        return [f"-lwalltime={math.ceil(seconds)}"]

    def completed(self, options: list[str]) -> list[str]:
        """Return the options with a node's resources in one `select`, without which PBS takes no
        `place`.
        """
        pairs = [(flag, value, value.partition("=")[0]) for flag, value in _pairs(options)]
        chunk = [value for flag, value, name in pairs if flag == "-l" and name in CHUNK]
        own = [value for flag, value, name in pairs if (flag, name) == ("-l", "select")]
        placed = any((flag, name) == ("-l", "place") for flag, _, name in pairs)
        if not chunk and (own or not placed):
            return options
        first, plus, others = (own or ["select=1"])[-1].partition("+")
        kept = [
            filter(None, [flag, value])
            for flag, value, name in pairs
            if flag != "-l" or name not in CHUNK | {"select"}
        ]
        return [*chain.from_iterable(kept), "-l", ":".join([first, *chunk]) + plus + others]

    # The site.

    def questions(self) -> list[list[str]]:
        return [["qstat", "-Bf"]]

    def told(self, outputs: Sequence[str], options: Sequence[str]) -> Self:
        fields = next(iter(records(outputs[0]).values()), {})
        most = fields.get("max_array_size", "")
        return type(self)(
            min(int(most), self.most_tasks) if most.isdecimal() else self.most_tasks,
            history=fields.get("job_history_enable") == "True",
        )

    # Jobs.

    def submit(self, array: WorkerArray) -> list[str]:
        """Return the command that submits an array, or a single job: PBS has no arrays of one. The
        script is run by path, not by a login shell. Only a single job can forbid a restart.
        """
        log = array.log if array.files is None else array.told_log
        before, _, after = log("\0" if array.count > 1 else "1").partition("\0")
        of_array = ["-J", f"1-{array.count}"] if array.count > 1 else []
        own = ["-m", "n", *([] if of_array else ["-r", "n"]), *array.options]
        ours = ["-N", array.name, *of_array, "-j", "oe"]
        if array.files is None:
            job = [LOGGED, str(array.script)]
            # Named by the submitting host, it would be copied there by scp, which may take minutes.
            ours += ["-o", "localhost:/dev/null"]
        else:
            job = [BROUGHT, array.script.name]
            ours += self._staging(array)
        return ["qsub", "-f", *own, *ours, "--", "/bin/sh", "-c", *job, before, after]

    def _staging(self, array: WorkerArray) -> list[str]:
        """Return the options by which PBS brings an array's script and files to a folder of each
        job, and its output back. Files that the user has it bring are beside them.

        Raises:
            ConfigurationError: PBS cannot copy to and from the run directory.
        """
        assert array.files is not None
        if match := self.unbrought.search(str(array.folder)):
            raise ConfigurationError(
                f"the run directory {array.folder} has {match[0]!r} in its path: PBS cannot copy "
                "files from there to nodes",
                hint="set GRIDENGINE_RUN_DIRECTORY to another",
            )
        files = [f"{path.name}@{array.host}:{path}" for path in (array.script, *array.files)]
        own, _ = self.said(array.options).get("-W stagein", ("", ""))
        stagein = ",".join(filter(None, [*files, own]))
        log = array.log("^array_index^" if array.count > 1 else "1")
        staging = ["-W", f"stagein={stagein}", "-W", "sandbox=PRIVATE"]
        return [*staging, "-o", f"{array.host}:{log}"]

    def ids(self, output: str, count: int) -> list[str]:
        found = one_line(r"(\d+)(\[\])?(\.\S+)?", output)
        if found is None or bool(found[2]) != (count > 1):
            return []
        number, server = found[1], found[3] or ""
        return (
            [f"{number}[{task}]{server}" for task in range(1, count + 1)]
            if found[2]
            else [number + server]
        )

    def listing(self, name: str) -> list[str]:
        """Return the command that lists unfinished jobs and all subjobs. The commands of `endings`
        tell the rest.
        """
        return shell(LIST, name)

    def parse(self, output: str) -> dict[str, Seen]:
        """Return the jobs and subjobs of a listing.

        A subjob that ended before it started, and one whose end PBS does not remember, look the
        same, with their array's `Exit_status`: both are left out, as if not listed.
        """
        found = ((id, seen_in(fields)) for id, fields in records(output).items() if "[]" not in id)
        return {id: seen for id, seen in found if seen is not None}

    def endings(self, ended: Mapping[str, Seen]) -> list[list[str]]:
        return [["qstat", "-x", "-f", *ended]] if self._history else []

    def cancel(self, ids: Sequence[str]) -> list[str]:
        """Return the command that deletes jobs, by one `qdel` for the subjobs of each array and one
        for all others. One for all was tried on OpenPBS 23.06, whose server did not bear it.
        """
        arrays: dict[str, list[str]] = {}
        for id in ids:
            arrays.setdefault(id.partition("[")[0] if "[" in id else "", []).append(id)
        return shell(QDEL, *map(" ".join, arrays.values()))

    def cancel_all(self, name: str) -> list[str]:
        return shell(CANCEL, name)

    def wait_all(self, name: str) -> list[str]:
        return shell(WAIT, name)

    def own_jobs(self) -> list[str]:
        return shell('qselect -u "$(id -un)"')

    # What is asked about the system.

    def version(self) -> list[str]:
        return ["qsub", "--version"]

    def ping(self) -> list[str]:
        return ["qstat", "-Bf"]

    def queues(self) -> list[str]:
        return ["qstat", "-Qf"]

    def parse_queues(self, output: str) -> list[Queue]:
        return [
            Queue(name, "open" if is_open else "closed", is_open)
            for name, fields in records(output).items()
            for is_open in [fields.get("enabled") == fields.get("started") == "True"]
        ]


def _pairs(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each option and its value; resources and attributes one by one."""
    words = iter(options)
    for word in words:
        flag, value = word[:2], word[2:]
        if not value and flag not in ALONE:
            value = next(words, "")
        if flag in ("-l", "-W"):
            # Commas also stand within values, as in "depend=afterok:1,select=1:host=a".
            yield from ((flag, part) for part in re.split(r",(?=\w+=)", value))
        else:
            yield flag, value


class PBSScheduler(CommandScheduler):
    """Runs calls in jobs of an OpenPBS or a PBS Professional.

    Tested with OpenPBS 23.06 on one machine; not run by us on a cluster, nor with PBS Professional.

    Args:
        queue, account, project, priority: `-q`, `-A`, `-P`, `-p` (default: the settings', else
            PBS's own).
        options: any resource by its name, such as `walltime="2:00:00"`, `mem="4gb"`,
            `select="1:ncpus=4:mem=8gb"`, `place="excl"`; other options of qsub go into `native`.
        strict: whether a job that PBS takes but can never start ("Can Never Run") is an error at
            once. With False it waits, for somebody to change the site or the job.
    """

    _commands = PBSCommands
