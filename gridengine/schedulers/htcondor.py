"""Workers on an HTCondor pool, by its commands (condor_submit(1), condor_q(1), condor_rm(1)); tried
with 23.9.

HTCondor never gives a job up: it holds a failed job, and lets an evicted one run again. Workers
must do neither: the launcher deletes a held or evicted one, and another takes its place.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gridengine.call_context import LOG
from gridengine.errors import (
    ConfigurationError,
    GridEngineError,
    OutOfMemory,
    TimeoutError,
    exit_words,
)
from gridengine.schedulers.batch_commands import (
    GONE,
    VANISHED,
    BatchCommands,
    Seen,
    WorkerArray,
    shell,
    succeeds_if_said,
)
from gridengine.schedulers.batch_words import Option, option_text
from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.launcher import WorkerStatus

ATTRIBUTES = (
    "ClusterId,ProcId,JobStatus,NumJobStarts,JobCurrentStartDate,RemoteHost,LastRemoteHost,"
    "HoldReason,HoldReasonCode,VacateReason,RemoveReason,ExitCode,ExitBySignal,ExitSignal,"
    "TransferringInput"
)
JOB_VARIABLE = "CONDOR_JOB_ID"
"""The variable in which calls find their job's id; HTCondor has none of its own."""
IDLE, RUNNING, REMOVED, COMPLETED, HELD, TRANSFERRING, SUSPENDED = range(1, 8)
"""JobStatus ("Job ClassAd Attributes" in the manual)."""
HELD_BY_USER = frozenset({1, 15})
"""The HoldReasonCode of jobs that a user holds, or has submitted on hold."""
TOO_LONG = frozenset({46, 47})
"""The HoldReasonCode of jobs that exceeded `allowed_job_duration` or `allowed_execute_duration`."""
TRANSFERRED = "transfer_input_files"
BY_TRANSFER = (
    "should_transfer_files=YES",
    "when_to_transfer_output=ON_EXIT",
    "encrypt_input_files=*",
    # Line by line: when a job is removed, HTCondor brings no file of it back.
    "stream_output=true",
)
"""Submit commands for jobs that share no files: keys travel, and the script writes to one log."""
MACRO = r"\$\w*\("
"""How macros begin, which HTCondor expands in submit commands: `$(NAME)`, `$ENV(NAME)`."""
OTHER_HOSTS = 'regexp("^('
"""How our condition for other hosts begins, after its `!`."""
TOO_LARGE = "no slot has so much, even when it is empty"
"""Our words for requests that HTCondor lets wait for ever."""
WHY = r"""condor_q -better-analyze "$1" && condor_q "$1" -format 'cores: %r\n' RequestCpus \
-format 'memory: %r\n' RequestMemory -format 'GPUs: %r\n' RequestGPUs && condor_status \
-constraint 'SlotType =!= "Dynamic"' -af TotalSlotCpus TotalSlotMemory 'TotalSlotGPUs ?: 0' |
sed 's/^/slot: /'"""
"""Prints how many slots meet each condition of a job, its request, and the slots' sizes."""


class HTCondorCommands(BatchCommands):
    """HTCondor's own commands."""

    key, title = "htcondor", "HTCondor"
    unbrought = re.compile(f",|{MACRO}")
    commands = ("condor_submit", "condor_q", "condor_rm", "condor_history", "condor_status")
    package, server_name = "Debian: htcondor", "schedd"
    # Jobs have no PATH.
    first_lines = "export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}"
    away = re.compile(
        r"failed to (connect|fetch ads|contact)|unable to (connect|contact)|can't (find|locate|"
        r"connect)|communication error|timed? ?out|errno (11[01])|SECMAN|AUTHENTICATE|no address",
        re.IGNORECASE,
    )
    later = re.compile(r"MAX_JOBS|maximum number of jobs|too many jobs", re.IGNORECASE)
    gone = re.compile(r"not found|couldn't find", re.IGNORECASE)
    barred: Mapping[str, str] = {
        "root|super ?user|not authorized|permission denied": "who may submit is said by "
        "ALLOW_WRITE and the authentication methods of this pool; root may not: run this as a "
        "plain user"
    }
    remedies: Mapping[str, str] = {
        "FileSystemDomain": "HTCondor takes the nodes not to share this machine's files: "
        "shared_files=False has it bring what workers need; where nodes do share them, the "
        "administrators set FILESYSTEM_DOMAIN to the same on both",
        TOO_LARGE: "`condor_status` lists the slots: ask for less; in a pool whose slots come and "
        "go, strict=False waits for a larger one",
        "must be|parse|syntax|invalid|expression": "arguments of HTCondorScheduler that are not "
        "its own are submit commands, as request_disk='2G': is one misspelt?",
        "held": "`condor_release JOB` releases it; `condor_q -hold` says why it is held",
        "in use": "wait for others' jobs to end, or ask for less",
    }
    unavailable: Mapping[str, str] = {
        "AUTHENTICATE|SECMAN": "from inside a job nothing can be submitted; elsewhere "
        "`condor_ping -verbose WRITE` tells what fails",
        "": "`condor_q` tells whether the schedd answers; CONDOR_CONFIG may say where the "
        "configuration is; ask the administrators",
    }
    look, resume = "condor_q -better-analyze JOB", "`condor_continue JOB`"
    never = re.compile(f"{TOO_LARGE}|FileSystemDomain|no slot has [^;]*{re.escape(OTHER_HOSTS)}")
    host_option = "requirements"
    ours = frozenset(
        {
            *("executable", "output", "error", "batch_name", "initialdir", "queue", "arguments"),
            *("universe", "leave_in_queue", "log", "input", "stream_output", "stream_error"),
            *("should_transfer_files", "when_to_transfer_output", "dag_node_name", "jobbatchname"),
        }
    )
    time_option, gpus = "allowed_job_duration", "request_gpus={n}"
    cores_option, memory_option = "request_cpus={n}", "request_memory={n}M"
    site_options: Mapping[str, str] = {"account": "accounting_group={}"}
    own_memory = re.compile(r"(request_memory=)(\d+)([KMGT]?)B?", re.IGNORECASE)
    kept = re.compile(r"CONDOR_CONFIG|_CONDOR_(?!SLOT|JOB_|MACHINE_AD|SCRATCH|CHIRP|ANCESTOR).*")

    def own_option(self, name: str, value: Option) -> list[str]:
        return [f"{name}={'true' if value is True else option_text(name, value)}"]

    def said(self, options: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return the values that submit commands set; case does not matter in their names."""
        parts = ((word, *word.partition("=")) for word in options)
        return {name.strip().lower(): (value.strip(), word) for word, name, _, value in parts}

    def excluding(self, hosts: Sequence[str], own: str) -> list[str]:
        """Return a condition on the slot's machine, which may have its domain in its name."""
        names = "|".join(hosts).replace(".", "[.]")
        others = f" && ({own})" if own else ""
        return [f'requirements=!{OTHER_HOSTS}{names})([.]|$)", Machine, "i"){others}']

    def time(self, seconds: float) -> list[str]:
        """Return a limit at which HTCondor sends SIGTERM to a job, and holds it."""
        return [f"allowed_job_duration={math.ceil(seconds)}"]

    def completed(self, options: list[str]) -> list[str]:
        """Return the options with the condition that a job starts only once."""
        condition, own = self.said(options).get("requirements", ("", ""))
        others = [word for word in options if word != own]
        more = f" && ({condition})" if condition else ""
        return [*others, f"requirements=(NumJobStarts ?: 0) < 1{more}"]

    def submit(self, array: WorkerArray) -> list[str]:
        """Return the command that submits jobs of one cluster. It needs no file: the submit
        commands are words. Jobs get few variables, since getenv=True may be forbidden.

        Raises:
            ConfigurationError: HTCondor cannot take the path of the run directory, or jobs share
                it and it is in /tmp, of which each job has its own.
        """
        folder, is_shared = str(array.folder), array.files is None
        if re.search(MACRO, folder) or (is_shared and re.match("/(var/)?tmp/", f"{folder}/")):
            raise ConfigurationError(
                f"jobs of HTCondor cannot start in the run directory {folder}: it has `$(` in its "
                "path, or is in a folder for temporary files, of which each job has one of its own",
                hint="set GRIDENGINE_RUN_DIRECTORY to another",
            )
        before = ["notification=never", "job_max_vacate_time=30"]
        variables = f"{JOB_VARIABLE}=$(Cluster).$(Process)"
        log, options = array.log("$(Process)"), list(array.options)
        ours = [f"executable={array.script}", f"output={log}", f"batch_name={array.name}"]
        if array.files is None:
            before.append("getenv=HOME,USER,LOGNAME,SHELL")
            ours += [f"error={log}", f"initialdir={folder}", "should_transfer_files=NO"]
        else:
            variables += f" {LOG}={array.told_log('$(Process)')}"
            before.append("transfer_output_files=")
            more, word = self.said(options).get(TRANSFERRED, ("", ""))
            options = [one for one in options if one != word]
            files = ",".join([*map(str, array.files), *filter(None, [more])])
            ours += [*BY_TRANSFER, f"{TRANSFERRED}={files}"]
        before.append(f'environment="{variables}"')
        queue = ["/dev/null", "-queue", str(array.count)]
        return ["condor_submit", "-terse", *before, *options, *ours, *queue]

    def ids(self, output: str, count: int) -> list[str]:
        found = re.search(r"^(\d+)\.0 - \1\.\d+\s*$", output, re.MULTILINE)
        return [f"{found[1]}.{process}" for process in range(count)] if found else []

    def log_word(self, task: int, id: str) -> object:
        return task - 1

    def listing(self, name: str) -> list[str]:
        which = ("-constraint", _named(name), "-attributes", ATTRIBUTES)
        return ["condor_q", "-nobatch", "-json", *which]

    def parse(self, output: str) -> dict[str, Seen]:
        """Return the jobs of a listing; without jobs condor_q prints nothing."""
        found = json.loads(output) if output.strip() else []
        return {f"{ad['ClusterId']}.{ad['ProcId']}": seen_in(ad) for ad in found}

    def endings(self, ended: Mapping[str, Seen]) -> list[list[str]]:
        """Return the question for jobs that have left the queue, as ended jobs do."""
        gone = [id for id, seen in ended.items() if seen in (GONE, VANISHED)]
        which = ("-match", str(len(gone)), "-attributes", ATTRIBUTES)
        return [["condor_history", "-json", *which, *gone]] if gone else []

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return ["condor_rm", *ids]

    def cancel_all(self, name: str) -> list[str]:
        return succeeds_if_said(["condor_rm", "-constraint", _named(name)], "Couldn't find")

    def why(self, id: str) -> list[str]:
        return shell(WHY, id)

    def because(self, output: str) -> str:
        """Return, from `WHY`, the conditions that no slot meets, and whether any slot could."""
        asked = dict(re.findall(r"^(cores|memory|GPUs): (.*)$", output, re.MULTILINE))
        least = [_number(asked.get(name, "0")) for name in ("cores", "memory", "GPUs")]
        slots = re.findall(r"^slot: (\S+) (\S+) (\S+)$", output, re.MULTILINE)
        steps, unmet = dict[str, str](), []
        for step, matched, text in re.findall(r"^(\[\d+\]) +(\d+) +(.*?) *$", output, re.M):
            # Of conditions that only all together meet no slot: `[1] && [3]`.
            steps[step] = re.sub(r"\[\d+\]", lambda one: steps.get(one[0], one[0]), text)
            unmet += [steps[step]] if matched == "0" else []
        words = [f"no slot has {condition} now" for condition in unmet]
        fits = any(all(map(operator.ge, map(_number, slot), least)) for slot in slots)
        words += [] if fits or not slots else [TOO_LARGE]
        return "; ".join(words or ["what it asks for is in use"])

    def version(self) -> list[str]:
        return ["condor_q", "-version"]

    def ping(self) -> list[str]:
        return ["condor_q", "-totals"]


def _named(name: str) -> str:
    return f'JobBatchName == "{name}"'


def _number(text: str) -> float:
    """Return an expression's number: 0 for HTCondor's own default and for no request, infinity for
    anything else, which no slot can hold.
    """
    try:
        return float(text)
    except ValueError:
        return 0.0 if text.startswith(("ifthenelse", "undefined")) else math.inf


def seen_in(ad: Mapping[str, Any]) -> Seen:
    """Return the state of a job from its ClassAd."""
    status, starts = ad.get("JobStatus"), ad.get("NumJobStarts") or 0
    host = str(ad.get("RemoteHost") or ad.get("LastRemoteHost") or "").rpartition("@")[2]
    if status == HELD:
        return _held(ad, ad.get("HoldReasonCode"), host)
    if status == IDLE and starts:
        words = f"it was evicted from {host}: {ad.get('VacateReason') or 'its place was taken'}"
        return Seen(WorkerStatus.FAILED, words, blameless=True, linger=True, host=host)
    if status == RUNNING and ad.get("TransferringInput"):
        return Seen(WorkerStatus.QUEUED, f"its files are being brought to {host}")
    if status in (RUNNING, TRANSFERRING):
        # A job whose slot is lost before the job begins waits again, and begins later.
        return Seen(WorkerStatus.RUNNING, start=None, host=host)
    if status == REMOVED:
        words = f"it was removed: {ad.get('RemoveReason', 'condor_rm')}"
        return Seen(WorkerStatus.FAILED, words, deleted=True, host=host)
    if status == COMPLETED:
        code = -ad.get("ExitSignal", 0) if ad.get("ExitBySignal") else ad.get("ExitCode", 0)
        state = WorkerStatus.FAILED if code else WorkerStatus.ENDED
        return Seen(state, exit_words(code), host=host)
    return Seen(WorkerStatus.SUSPENDED if status == SUSPENDED else WorkerStatus.QUEUED)


def _held(ad: Mapping[str, Any], code: int | None, host: str) -> Seen:
    """Return the state of a held job: waiting if a user holds it before it ran, since the user may
    release it; else failed.
    """
    words = f"it is held: {ad.get('HoldReason', '')}"
    by_user = code in HELD_BY_USER
    if by_user and not ad.get("JobCurrentStartDate"):
        return Seen(WorkerStatus.QUEUED, words)
    fault: type[GridEngineError] | None = None
    if code in TOO_LONG:
        fault = TimeoutError
    elif re.search(r"memory.*(exceed|limit)|over.*memory", words):
        fault = OutOfMemory
    return Seen(WorkerStatus.FAILED, words, fault, blameless=by_user, linger=True, host=host)


class HTCondorScheduler(CommandScheduler):
    """Runs calls in jobs of an HTCondor pool.

    Args:
        account: the accounting group (default: the settings').
        options: any submit command by its name, such as `request_disk="2G"` or
            `requirements='Machine == "n1"'`; one that begins with `+` or `My.` goes into `native`.
        strict: whether a request for a slot larger than any of the pool is an error. With False it
            waits, which suits a pool whose slots come and go.
    """

    _commands = HTCondorCommands
    _start_at_once = True
