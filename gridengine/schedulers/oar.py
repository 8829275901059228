"""Workers on an OAR, by its commands (oarsub(1), oarstat(1), oardel(1)); tried with 2.6.1.

OAR's database keeps all jobs for ever, with their names. Jobs that request no time end after the
site's default, mostly two hours.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gridengine.errors import GridEngineError, TimeoutError, exit_words
from gridengine.schedulers.batch_commands import BatchCommands, Seen, WorkerArray, succeeds_if_said
from gridengine.schedulers.batch_words import clock_seconds, clock_time
from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.launcher import WorkerStatus

SIGNAL_SECONDS = 30
"""How long before its walltime a worker is told to leave: OAR itself only kills."""
STATES: Mapping[str, WorkerStatus] = {
    **dict.fromkeys(
        ("Waiting", "Hold", "toAckReservation", "toLaunch", "Launching"), WorkerStatus.QUEUED
    ),
    "Running": WorkerStatus.RUNNING,
    **dict.fromkeys(("Suspended", "Resuming"), WorkerStatus.SUSPENDED),
}
"""The states of jobs that have not ended, except `Finishing` and `toError`."""
STEPS = frozenset({"FRAG_JOB_REQUEST", "SEND_KILL_JOB", "SWITCH_INTO_TERMINATE_STATE"})
"""Events that only tell OAR's next step, and no reason."""
BLAMELESS = re.compile("BESTEFFORT|BIPBIP|LAUNCHING|PING_CHECKER|SUSPECTED|CPUSET|PROLOGUE")
"""Events by which a job loses its place, or never gets one, through no fault of its own."""


class OARCommands(BatchCommands):
    """OAR's own commands."""

    key, title = "oar", "OAR"
    commands = ("oarsub", "oarstat", "oardel", "oarnodes")
    package = "Debian: oar-user"
    away = re.compile(
        r"cannot connect to (database|executor)|DB connection|\[OARDO\] ERROR|could not connect|"
        "connection (refused|reset|timed out)|server closed the connection",
        re.IGNORECASE,
    )
    retrying = b"will retry to connect"
    later = re.compile("too many jobs|maximum number|quota|limit", re.IGNORECASE)
    gone = re.compile("already killed|not the right user")
    remedies: Mapping[str, str] = {
        "not enough resources": "no nodes have all of this, even when they are empty: `oarnodes` "
        "lists them; ask for less",
        "queue .* does not exist": "name another with queue=; the administrators know them",
        r"column .* does not exist": "`oarnodes` lists the properties of nodes, by which resources "
        "are asked for",
        "walltime|cannot recognize|syntax": "resources are asked for as resource='nodes=1/core=4,"
        'walltime=2:0:0\', properties of nodes as property="mem >= 64"',
        "unknown option": "arguments of OARScheduler that are not its own go to oarsub as "
        "--NAME=VALUE: `oarsub --help` lists the options; is one misspelt?",
        "root": "root may not submit jobs here; run this as a plain user",
        "^held$": "`oarresume JOB` releases it",
    }
    other_remedy = "a rule of the site (an admission rule) may refuse it: ask the administrators"
    unavailable: Mapping[str, str] = {
        "": "`oarstat` tells whether OAR's database answers; ask the administrators"
    }
    look, resume = "oarstat -f -j JOB", "`oarresume JOB`"
    ours = frozenset(
        {
            *("--array", "--array-param-file", "--name", "--directory", "--stdout", "--stderr"),
            *("--interactive", "--connect", "--resubmit", "--scanscript", "--json", "--yaml"),
            *("--xml", "--dumper", "-n", "-d", "-O", "-E", "-I", "-C", "-S", "-J", "-Y", "-X"),
        }
    )
    short: Mapping[str, str] = {
        "-l": "--resource",
        "-p": "--property",
        "-q": "--queue",
        "-t": "--type",
    }
    time_option, gpus = "walltime", "--resource=nodes=1/gpu={n}"
    cores_option = "--resource=nodes=1/core={n}"
    host_option = "--property"
    no_memory = (
        "choose nodes by the property in which your site has their memory, such as "
        'property="memnode >= 64000", and say in worker_resources= what a worker then holds'
    )
    site_options: Mapping[str, str] = {
        "queue": "--queue={}",
        "account": "--project={}",
        "walltime": "--resource=walltime={}",
    }
    kept = re.compile("OARCONFFILE|OARDIR")

    def said(self, options: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return the settings that options make. The walltime, which OAR counts among resources,
        has an entry of its own.
        """
        values = super().said(options)
        value, words = values.pop("--resource", ("", ""))
        others, walltime = _parted(value)
        if others:
            values["resource"] = (others, words)
        if walltime:
            values["walltime"] = (walltime, words)
        return values

    def excluding(self, hosts: Sequence[str], own: str) -> list[str]:
        names = ", ".join(f"'{host}'" for host in hosts)
        others = f"({own}) AND " if own else ""
        return [f"--property={others}network_address NOT IN ({names})"]

    def time(self, seconds: float) -> list[str]:
        return [f"--resource=walltime={clock_time(seconds)}"]

    def parse_time(self, text: str) -> float:
        """Return the seconds of "2", "2:30" (hours first) or "2:30:10"."""
        return clock_seconds(text + ":0" * (2 - text.count(":")))

    def completed(self, options: list[str]) -> list[str]:
        """Return the options with all resources in one option: of several, OAR would choose one."""
        resources: list[str] = []
        walltime, rest, words = "", [], iter(options)
        for word in words:
            found = re.fullmatch(r"(?:-l|--resource)=?(.*)", word)
            if found is None:
                rest.append(word)
                continue
            others, own = _parted(found[1] or next(words, ""))
            resources += [others] if others else []
            walltime = own or walltime
        joined = ",".join(filter(None, [_joined(resources), walltime and f"walltime={walltime}"]))
        return [*rest, *([f"--resource={joined}"] if joined else [])]

    def submit(self, array: WorkerArray) -> list[str]:
        """Return the command that submits an array. Each of its jobs has an id of its own, which is
        in the name of its log. The job's shell opens logs whose path OAR does not take.
        """
        log, folder = array.log("%jobid%"), str(array.folder)
        script = shlex.quote(str(array.script))
        if not re.fullmatch(r"[\w./ -]+", log.replace("%jobid%", ""), re.ASCII):
            before, after = map(shlex.quote, log.split("%jobid%"))
            own_log = f"cd {shlex.quote(folder)}; exec >{before}$OAR_JOB_ID{after} 2>&1"
            script, log, folder = f"{own_log}; exec {script}", "/dev/null", "/"
        ours = [f"--name={array.name}", f"--array={array.count}", f"--directory={folder}"]
        logs = [f"--stdout={log}", f"--stderr={log}"]
        warned = [f"--checkpoint={SIGNAL_SECONDS}", "--signal=15"]
        return ["oarsub", *warned, *array.options, *ours, *logs, script]

    def ids(self, output: str, count: int) -> list[str]:
        return re.findall(r"^OAR_JOB_ID=(\d+)", output, re.MULTILINE)

    def log_word(self, task: int, id: str) -> object:
        return id

    def listing(self, name: str) -> list[str]:
        return ["oarstat", "--json", "--full", "--sql", f"job_name = '{name}'"]

    def parse(self, output: str) -> dict[str, Seen]:
        """Return the jobs of a listing; without jobs oarstat prints nothing."""
        found = json.loads(output) if output.strip() else {}
        return {id: seen_in(job) for id, job in found.items()}

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return ["oardel", *ids]

    def cancel_all(self, name: str) -> list[str]:
        states = ", ".join(f"'{state}'" for state in STATES)
        command = ["oardel", "--sql", f"job_name = '{name}' AND state IN ({states})"]
        return succeeds_if_said(command, "already killed")

    def version(self) -> list[str]:
        return ["oarstat", "--version"]

    def ping(self) -> list[str]:
        return ["oarnodes", "--list"]


def _parted(resource: str) -> tuple[str, str]:
    """Return the other resources, and the walltime, of "nodes=1/core=4,walltime=2:0:0"."""
    parts = resource.split(",") if resource else []
    times = [part.partition("=")[2] for part in parts if part.startswith("walltime=")]
    others = [part for part in parts if not part.startswith("walltime=")]
    return ",".join(others), times[-1] if times else ""


def _joined(resources: Sequence[str]) -> str:
    """Return resources as one; cores beside GPUs are counted for each GPU."""
    cores = [one for one in resources if re.fullmatch(r"nodes=1/core=\d+", one)]
    gpus = [one for one in resources if re.fullmatch(r".*\bgpu=\d+", one)]
    if len(resources) == 2 and len(cores) == len(gpus) == 1:
        count = int(cores[0].rpartition("=")[2]) / int(gpus[0].rpartition("=")[2])
        return f"{gpus[0]}/core={math.ceil(count)}"
    return "+".join(resources)


def seen_in(job: Mapping[str, Any]) -> Seen:
    """Return the state of a job in OAR's listing."""
    state, host = job.get("state", ""), next(iter(job.get("assigned_network_address") or []), "")
    status = STATES.get(state)
    if status is WorkerStatus.QUEUED:
        return Seen(status, "held" if state == "Hold" else str(job.get("message") or ""))
    if status is not None:
        ends_at = (job.get("startTime") or 0) + (job.get("walltime") or math.inf)
        return Seen(status, start=str(job.get("startTime")), ends_at=ends_at, host=host)
    if state not in ("Terminated", "Error"):
        return Seen(None, state)
    code = job.get("exit_code")
    events = {one.get("type", ""): one.get("description", "") for one in job.get("events") or []}
    if not code and state == "Terminated":
        return Seen(WorkerStatus.ENDED, exit_words(0), host=host)
    return _failed(code, events, host)


def _failed(code: int | None, events: Mapping[str, str], host: str) -> Seen:
    """Return how a job ended that failed, by its shell's wait status, or by its events."""
    fault: type[GridEngineError] | None = None
    reasons = [words for kind, words in events.items() if kind not in STEPS]
    words = "; ".join(word for word in reasons if "Ask to change the job state" not in word)
    asked = events.get("FRAG_JOB_REQUEST", "")
    if "WALLTIME" in events:
        fault, words = TimeoutError, f"it reached its walltime: {events['WALLTIME']}"
    elif asked:
        words = f"it was deleted: {asked}"
    elif code:
        words = "; ".join(filter(None, [exit_words(code >> 8 or -(code & 127)), words]))
    return Seen(
        WorkerStatus.FAILED,
        words or "OAR does not say how it ended",
        fault,
        deleted=bool(asked) and fault is None,
        blameless=any(BLAMELESS.search(kind) for kind in events) and not asked,
        host=host,
    )


class OARScheduler(CommandScheduler):
    """Runs calls in jobs of an OAR.

    Args:
        queue, account: `--queue`, `--project` (default: the settings', else OAR's own).
        walltime: how long workers may run, such as "2:0:0" (hours first; default: the site's, which
            is usually two hours).
        options: any other option of oarsub by its name, with underscores for hyphens, as
            `resource="nodes=1/core=4"` or `property="mem >= 64"`.
        strict: has no effect: OAR refuses at once what it can never start.
    """

    _commands = OARCommands
