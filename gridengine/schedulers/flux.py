"""Workers in jobs of a Flux instance, by its commands; for flux-core 0.52 or later.

Sources: flux-submit(1), flux-jobs(1), flux-cancel(1) and flux-queue(1) of flux-core 0.88, and its
outputs, recorded with that version.

Flux has no arrays: the jobs of one command (`--cc`) have ids of their own. It restarts no jobs, and
does not manage memory.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gridengine.errors import TimeoutError
from gridengine.schedulers.batch_commands import (
    BatchCommands,
    Queue,
    Seen,
    WorkerArray,
    shell,
    shell_exit_words,
)
from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.launcher import WorkerStatus

LOGGED = (
    'run=$(printf %b "$0") && cd "$(dirname "$run")" && '
    'exec "$run" >"$(printf %b "$1")$FLUX_JOB_ID$2" 2>&1'
)
"""A job: it runs its script, with a log of its own. Output that Flux itself writes into a file
comes through a pipe, from the first node of a job. With `--cc` Flux replaces text in braces in any
word, and has no way to write a brace: in paths these are octal numbers.
"""
OCTAL = str.maketrans({"\\": "\\0134", "{": "\\0173", "}": "\\0175"})
NAMED = 'flux jobs --no-header --count=0 --name="$1" --format="{id.f58plain}"'
"""Lists the jobs of a name that have not ended."""
CANCEL = f'ids=$({NAMED}) && {{ [ -z "$ids" ] || flux cancel $ids || [ -z "$({NAMED})" ]; }}'
WHY = 'flux jobs --no-header --format="queue={queue}" "$1" && flux queue status'
"""Prints the queue of a job, and whether each queue is started (flux-queue(1))."""
UNITS: Mapping[str, float] = {"": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "ms": 1e-3}
"""The units of `--time-limit`, in seconds (Flux Standard Duration, RFC 23; none: minutes)."""
SIGNAL_SECONDS = 30
"""How long before its end a worker is told to leave, if it has not left by itself."""
WAITS = frozenset({"NEW", "DEPEND", "PRIORITY", "SCHED"})
"""The states of a job that has not started (RFC 21). `CLEANUP` does not tell how it ended."""


class FluxCommands(BatchCommands):
    """Flux's own commands."""

    key, title = "flux", "Flux"
    commands = ("flux",)
    server_name = "instance"
    most_tasks = 1000
    away = re.compile(
        r"unable to connect|flux_open|connection (refused|reset)|timed? ?out|broken pipe|host is "
        r"unreachable|function not implemented",
        re.IGNORECASE,
    )
    gone = re.compile(r"unknown job id|job is inactive", re.IGNORECASE)
    remedies: Mapping[str, str] = {
        "stopped": "wait until the administrators start it (`flux queue status` tells); or name "
        "another queue=",
        "in use": "wait for others' jobs to end, or ask for less",
        "is not a valid queue|queue": "`flux queue list` lists the queues; name one with queue=",
        "unrecognized arguments|expected one argument": "arguments of FluxScheduler that are not "
        "its own go to flux submit as --NAME=VALUE: `flux submit --help` lists the options; is one "
        "misspelt?",
        "duration|time.?limit": "write a time with its unit, as time_limit='2h'",
        "unsatisfiable|unable to allocate": "this instance has nothing of that size or kind: "
        "`flux resource list` lists what it has",
        "held": "`flux job urgency JOB default` releases it",
        "bank|account": "name another with bank=, or ask the administrators",
    }
    unavailable: Mapping[str, str] = {
        "": "`flux uptime` tells whether the instance answers; run this inside an instance (`flux "
        "start`, `flux alloc`), or say by FLUX_URI which"
    }
    never = re.compile("unsatisfiable")
    look, resume = "flux job eventlog JOB", "`flux job kill --signal=SIGCONT JOB`"
    ours = frozenset(
        {
            *("--bcc", "--cc", "--cwd", "--dry-run", "--error", "--input", "--job-name", "--jps"),
            *("--label-io", "--log", "--log-stderr", "--ntasks", "--output", "--progress"),
            *("--quiet", "--tasks-per-core", "--tasks-per-node", "--wait", "--wait-event"),
            *("--watch", "-n"),
        }
    )
    short: Mapping[str, str] = {
        "-B": "--bank",
        "-c": "--cores-per-task",
        "-g": "--gpus-per-task",
        "-N": "--nodes",
        "-q": "--queue",
        "-t": "--time-limit",
        "-x": "--exclusive",
    }
    time_option, gpus = "--time-limit", "--gpus-per-task={n}"
    cores_option, token_option = "--cores-per-task={n}", "--requires={}"
    host_option = "--requires"
    no_memory = (
        "leave Memory out; ask for as many Cores as have so much, or for whole nodes by "
        "native='--nodes=1 --exclusive'"
    )
    site_options: Mapping[str, str] = {"queue": "--queue={}", "account": "--bank={}"}
    kept = re.compile(
        "FLUX_(URI|URI_RESOLVE_LOCAL|CONF_DIR|CONNECTOR_PATH|EXEC_PATH|MODULE_PATH|SECURITY_.*|"
        "IMP_.*)"
    )
    variables: Mapping[str, str] = {"FLUX_F58_FORCE_ASCII": "1"}

    def excluding(self, hosts: Sequence[str], own: str) -> list[str]:
        others = f"({own}) and " if own else ""
        return [f"--requires={others}-host:{','.join(hosts)}"]

    def completed(self, options: list[str]) -> list[str]:
        """Return the options with the number of nodes that `--exclusive` wants (flux-submit(1))."""
        said = self.said(options)
        alone = "--exclusive" in said and "--nodes" not in said
        return [*options, "--nodes=1"] if alone else options

    def time(self, seconds: float) -> list[str]:
        """Return a time limit with a signal before it: at the limit itself Flux sends SIGALRM."""
        return [f"--time-limit={math.ceil(seconds)}s", f"--signal=SIGTERM@{SIGNAL_SECONDS}s"]

    def parse_time(self, text: str) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|[smhd]?)", text)
        return float(match[1]) * UNITS[match[2]] if match else 0.0

    def submit(self, array: WorkerArray) -> list[str]:
        """Return the command that submits all jobs. Each log has the job's id in its name: Flux
        does not promise to print the ids in the order of `--cc`.
        """
        before, _, after = array.log("\0").partition("\0")
        copies = [f"--cc=1-{array.count}"] if array.count > 1 else []
        paths = [path.translate(OCTAL) for path in (str(array.script), before)]
        job = ["--", "/bin/sh", "-c", LOGGED, *paths, after]
        return ["flux", "submit", *array.options, f"--job-name={array.name}", *copies, *job]

    def ids(self, output: str, count: int) -> list[str]:
        words = [_plain(line.strip()) for line in output.splitlines()]
        ids = [word for word in words if re.fullmatch(r"f[1-9A-HJ-NP-Za-km-z]+", word)]
        return ids if len(ids) == count else []

    def log_word(self, task: int, id: str) -> object:
        return id

    def listing(self, name: str) -> list[str]:
        return ["flux", "jobs", "-a", "--json", "--count=0", f"--name={name}"]

    def parse(self, output: str) -> dict[str, Seen]:
        try:
            jobs = json.loads(output)["jobs"]
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"flux jobs says {output.strip()[:200]!r}") from error
        return {_plain(job["jobid"]): seen_in(job) for job in jobs}

    def why(self, id: str) -> list[str]:
        return shell(WHY, id)

    def because(self, output: str) -> str:
        """Return, from `WHY`, that the job's queue is stopped and why, or that the job waits for
        others to end.
        """
        queue = re.match(r"queue=(\S*)", output)
        mine = rf"^(?:{re.escape(queue[1])}: )?" if queue and queue[1] else "^"
        found = re.search(rf"{mine}Scheduling is (stopped|started)(?:: (.*))?$", output, re.M)
        if found is None:
            return ""
        words = f"its queue is stopped: {found[2]}" if found[2] else "its queue is stopped"
        return words if found[1] == "stopped" else "what it asks for is in use"

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return ["flux", "cancel", *ids]

    def cancel_all(self, name: str) -> list[str]:
        return shell(CANCEL, name)

    def ping(self) -> list[str]:
        return ["flux", "uptime"]

    def queues(self) -> list[str]:
        return ["flux", "queue", "list", "--no-header", "--format={queue}|{enabled}|{started}"]

    def parse_queues(self, output: str) -> list[Queue]:
        """Return the queues; an instance without named queues has one."""
        rows = (line.strip().split("|") for line in output.splitlines() if line.count("|") == 2)
        return [
            Queue(name or "unnamed", "open" if is_open else "closed", is_open)
            for name, *marks in rows
            for is_open in [set(marks) <= {"✔", "y"}]
        ]


def _plain(id: str) -> str:
    """Return a job's id with an ASCII "f" (RFC 19)."""
    return id.replace("ƒ", "f", 1)


def seen_in(job: Mapping[str, Any]) -> Seen:
    """Return the state of a job from `flux jobs`, which leaves out keys that are not known yet."""
    state, host = job.get("state"), str(job.get("nodelist", ""))
    if state in WAITS:
        return Seen(WorkerStatus.QUEUED, _why(job))
    if state == "RUN":
        ends_at = float(job.get("expiration") or math.inf)
        return Seen(WorkerStatus.RUNNING, host=host, ends_at=ends_at)
    return _ended(job, host) if state == "INACTIVE" else Seen(None, host=host)


def _why(job: Mapping[str, Any]) -> str:
    """Return why a job waits, if Flux says so: its scheduler `sched-simple` does not."""
    if job.get("dependencies"):
        return f"it waits for other jobs: {', '.join(map(str, job['dependencies']))}"
    if job.get("urgency") == 0:
        return "it is held (urgency 0)"
    return str(job.get("annotations", {}).get("sched", {}).get("reason_pending", ""))


def _ended(job: Mapping[str, Any], host: str) -> Seen:
    """Return how a job ended, by its result and by the exception that ended it."""
    exception = job.get("exception", {})
    note = str(exception.get("note", "")) if exception.get("occurred") else ""
    result = job.get("result")
    if result == "COMPLETED":
        return Seen(WorkerStatus.ENDED, "it ended by itself", host=host)
    if result == "CANCELED":
        words = "it was cancelled" + (f": {note}" if note else "")
        return Seen(WorkerStatus.FAILED, words, deleted=True, host=host)
    if result == "TIMEOUT":
        return Seen(WorkerStatus.FAILED, "it reached its time limit", TimeoutError, host=host)
    words = note or shell_exit_words(int(job.get("returncode") or 0))
    return Seen(WorkerStatus.FAILED, words, uncertain="lost contact" in note, host=host)


class FluxScheduler(CommandScheduler):
    """Runs calls in jobs of a Flux instance: the one in which this process runs, or that FLUX_URI
    names.

    Tested with flux-core 0.88 on one machine; not run by us on a cluster.

    Args:
        queue, account: `--queue`, `--bank` (default: the settings', else Flux's own).
        options: any option of flux submit by its name, with underscores for hyphens: `bank="it"`,
            `time_limit="2h"`, `exclusive=True`, `requires="bigmem"`.
        strict: has no effect: Flux refuses, or ends, jobs that it can never start.
    """

    _commands = FluxCommands
