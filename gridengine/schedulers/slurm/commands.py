"""Slurm's commands as pure functions: how each is called. The meaning of their output is in
`answers`.
"""

from __future__ import annotations

import copy
import os
import pwd
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Self

from gridengine.arguments import DAY
from gridengine.call_context import JOB_END
from gridengine.display import plural
from gridengine.errors import ConfigurationError
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores, Ranks
from gridengine.schedulers.batch_commands import BatchCommands, Queue, Seen, WorkerArray, one_line
from gridengine.schedulers.batch_words import (
    UNITS,
    Option,
    clock_seconds,
    clock_time,
    megabytes,
    memory_bytes,
)
from gridengine.schedulers.launcher import compress
from gridengine.schedulers.requests import cannot_say
from gridengine.schedulers.slurm import answers
from gridengine.schedulers.slurm.answers import SlurmLimits, site_of

SIGNAL_SECONDS = 30
"""How long before its end a worker is told to leave, if it has not left by itself."""
EARLY_SECONDS = 60
"""How much earlier than requested Slurm may send that signal (sbatch(1), --signal)."""
FIRST_LINES = """if [[ ${SLURM_RESTART_COUNT:-0} -gt 0 ]]; then
    echo "gridengine: Slurm has started this job again on $HOSTNAME;" \\
        "another has taken its place, and it ends" >&2
    exit 0
fi
[[ -z ${SLURM_SRUN_COMM_PORT-} ]] || export %s="scancel --quiet $SLURM_JOB_ID\""""
"""A task that Slurm requeued and restarted must not pass for its former worker. And a job of srun's
outlives its worker if that srun is gone, as after a crash of the machine that it ran on.
"""
NUMBERED = r"(?:Submitted batch job )?(\d+)(?:;\S+| on cluster \S+)?"
"""sbatch's line with the number of the job. A site's wrapper may leave `--parsable` out."""
UNKNOWN = SlurmLimits()
MEMORY_VARIABLES = ("SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU", "SBATCH_MEM_PER_NODE")
"""Variables by which users say how much memory jobs have."""


class SlurmCommands(BatchCommands):
    """Slurm's own commands (sbatch(1), squeue(1), scancel(1), scontrol(1), sinfo(1), sacct(1)).

    Args:
        site: the limits of this Slurm.
        memory_said: whether a variable of the user says how much memory jobs have.
    """

    key, title = "slurm", "Slurm"
    commands = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
    package = "Debian: slurm-client"
    first_lines = FIRST_LINES % JOB_END
    away, later, barred = answers.UNREACHABLE, answers.LATER, answers.BARRED
    array_limit = re.compile("Invalid job array specification")
    own_limits, remedies, other_remedy = answers.OWN_LIMITS, answers.REMEDIES, answers.BY_A_RULE
    unavailable = answers.UNAVAILABLE
    # At a limit sbatch waits for two minutes: it does not know that it could ask for less.
    retrying = b"sleeping and retrying"
    never, meanings = answers.NEVER, answers.REASONS
    look, resume = "scontrol show job JOB", "`scontrol resume JOB`"
    ours = frozenset(
        {
            *("--array", "--chdir", "--cluster", "--clusters", "--error", "--job-name"),
            *("--output", "--parsable", "--test-only", "--uid", "--wait", "--wrap"),
            *("-a", "-D", "-e", "-J", "-M", "-o", "-W"),
            ":",  # a heterogeneous job is no array
        }
    )
    short: Mapping[str, str] = {
        "-A": "--account",
        "-C": "--constraint",
        "-c": "--cpus-per-task",
        "-p": "--partition",
        "-q": "--qos",
        "-t": "--time",
        "-x": "--exclude",
    }
    alike: Mapping[str, str] = {"--mem-per-cpu": "--mem", "--mem-per-gpu": "--mem"}
    time_option = "--time"
    cores_option, memory_option = "--cpus-per-task={n}", "--mem={n}M"
    token_option = "--constraint={}"
    host_option = "--exclude"
    own_memory = re.compile(r"(--mem(?:-per-[cg]pu)?=)(\d+)([KMGT]?)B?", re.IGNORECASE)
    spans_nodes = True
    rank_starter = "srun --ntasks={ranks} --nodes={nodes} --cpus-per-task={cores}"
    site_options: Mapping[str, str] = {
        name: f"--{name}={{}}" for name in ("partition", "account", "qos")
    }
    foreign = (
        *("SLURM_", "SQUEUE_", "SCANCEL_", "SINFO_", "SCONTROL_", "SACCT_", "SBATCH_WAIT"),
        *("SBATCH_ARRAY_INX", "SBATCH_OUTPUT", "SBATCH_ERROR", "SBATCH_JOB_NAME"),
        *("SBATCH_REQUEUE", "SBATCH_NO_REQUEUE"),
    )
    kept = re.compile("SLURM_CONF|SLURM_CLUSTERS|SLURM_JWT|KRB5CCNAME")
    # All numbers of an array, and times that can be compared.
    variables: Mapping[str, str] = {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "standard"}
    queue_name, server_name = "partition", "controller"
    configuration, request_variables = "SLURM_CONF", "SBATCH_"

    def __init__(self, site: SlurmLimits = UNKNOWN, *, memory_said: bool | None = None) -> None:
        self.site = site
        self.most_tasks = site.largest
        self._cores_of_rank = 0
        self._user = f"--user={os.getuid()}"
        self._memory_said = (
            any(name in os.environ for name in MEMORY_VARIABLES)
            if memory_said is None
            else memory_said
        )

    # Options.

    def excluding(self, hosts: Sequence[str], own: str) -> list[str]:
        return [f"--exclude={','.join(filter(None, [own, *hosts]))}"]

    def for_request(self, own: Sequence[str], demand: Demand, site: Any) -> Self:
        if demand.resources.get(Ranks) is None:
            return self
        made, cores = copy.copy(self), demand.resources.get(Cores)
        made._cores_of_rank = 1 if cores is None else cores.N
        return made

    def ranks(self, ranks: Ranks) -> list[str]:
        words = [f"--ntasks={ranks.ranks}"]
        if ranks.nodes is not None:
            words.append(f"--nodes={ranks.nodes}")
            if ranks.ranks % ranks.nodes == 0:
                words.append(f"--ntasks-per-node={ranks.ranks // ranks.nodes}")
        return words

    @classmethod
    def rank_hosts(
        cls, environment: Mapping[str, str], ranks: int, cores: int
    ) -> list[tuple[str, int]]:
        from gridengine.schedulers.slurm.allocation import rank_hosts  # within ranks alone

        return rank_hosts(environment)

    def memory(self, size: int) -> list[str]:
        """Return the words for a worker's memory; that of a rank is said for each of its cores,
        since Slurm has no words for it.
        """
        if not self._cores_of_rank:
            return super().memory(size)
        return [f"--mem-per-cpu={megabytes(size / self._cores_of_rank)}M"]

    def time(self, seconds: float) -> list[str]:
        """Return a limit so long that the signal before it comes after this time, however early
        Slurm sends it.
        """
        minutes = -int(-(seconds + EARLY_SECONDS) // 60)
        return [f"--time={minutes}", f"--signal=B:TERM@{SIGNAL_SECONDS}"]

    def parse_time(self, text: str) -> float:
        """Return the seconds of "90" (minutes), "2:00:00" or "1-12"; 0 for no limit (sbatch(1))."""
        if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
            return 0.0
        days, is_days, time = text.rpartition("-")
        parts = time.count(":") + 1
        if is_days:  # "1-12" is a day and twelve hours
            return int(days) * DAY + clock_seconds(time + ":0" * (3 - parts))
        return clock_seconds(f"{time}:0" if parts == 1 else time)

    def completed(self, options: list[str]) -> list[str]:
        """Return the options with a request for memory, where a job would otherwise get all memory
        of a node.
        """
        memory = self.site.memory
        return [memory, *options] if memory and not self._says_memory(options) else options

    def _says_memory(self, options: Sequence[str]) -> bool:
        return self._memory_said or "--mem" in self.said(options)

    def advice(self, options: Sequence[str]) -> str:
        """Return that jobs get more of a node than they request."""
        said = self.said(options)
        cores, _ = said.get("--cpus-per-task", ("1", ""))
        whole = 0 if "--ntasks" in said else self.site.whole_cores
        if cores.isdecimal() and int(cores) < whole:
            return (
                f"this Slurm gives each job a whole node, of {whole} cores or more, and the "
                f"workers ask for {plural(int(cores), 'core')} each: with "
                f"worker_resources=Cores({whole}) of the scheduler, calls share a node"
            )
        if self.site.hides_memory and not self._says_memory(options):
            return (
                "this Slurm gives a job that asks for no memory all that a node has, and does not "
                "show how much that is: ask for what a call needs, as resources=Memory(2)"
            )
        return ""

    # The site.

    def questions(self) -> list[list[str]]:
        return [
            ["scontrol", "show", "config"],
            ["scontrol", "show", "partition", "--oneliner", "--all"],
            ["sinfo", "--noheader", "--all", "--format=%R|%c|%m"],
        ]

    def told(self, outputs: Sequence[str], options: Sequence[str]) -> Self:
        config, partitions, nodes = outputs
        name, _ = self.said(options).get("--partition", ("", ""))
        return type(self)(site_of(config, partitions, nodes, name), memory_said=self._memory_said)

    # Jobs.

    def submit(self, array: WorkerArray) -> list[str]:
        """Return the command that submits an array, or a single job if there are no arrays.

        The user's options come before ours, and so cannot change them. Only `--no-requeue` comes
        before the user's, which may change it.

        Raises:
            ConfigurationError: Slurm cannot take the path of the run directory.
        """
        if "\\" in str(array.script):
            raise ConfigurationError(
                f"the run directory {array.folder} has a backslash in its path, with which Slurm "
                "cannot name logs",
                hint="set GRIDENGINE_RUN_DIRECTORY to another",
            )
        of_array = [f"--array=1-{array.count}"] if self.most_tasks else []
        output = array.log("\0").replace("%", "%%").replace("\0", "%a" if of_array else "1")
        ours = [f"--job-name={array.name}", *of_array, f"--output={output}"]
        script = [f"--chdir={array.folder}", str(array.script)]
        return ["sbatch", "--parsable", "--no-requeue", *array.options, *ours, *script]

    def ids(self, output: str, count: int) -> list[str]:
        found = one_line(NUMBERED, output)
        if found is None:
            return []
        job = found[1]
        return [f"{job}_{task}" for task in range(1, count + 1)] if self.most_tasks else [job]

    def listing(self, name: str) -> list[str]:
        which = ("--states=all", self._user, f"--name={name}", f"--format={answers.FORMAT}")
        return ["squeue", "--noheader", "--all", *which]

    def parse(self, output: str) -> dict[str, Seen]:
        return answers.parse_squeue(output)

    def endings(self, ended: Mapping[str, Seen]) -> list[list[str]]:
        """Return a question for each array with tasks that failed and, where accounts are kept, one
        for who cancelled tasks.
        """
        arrays = dict.fromkeys(id.partition("_")[0] for id in ended)
        details = [["scontrol", "show", "job", array, "--oneliner"] for array in arrays]
        deleted = [id for id, seen in ended.items() if seen.deleted]
        if not deleted or not self.site.accounts:
            return details
        which = ("--parsable2", "--allocations", f"--jobs={','.join(deleted)}")
        return [*details, ["sacct", "--noheader", *which, "--format=JobID,State%40"]]

    def parse_endings(self, ended: Mapping[str, Seen], outputs: Sequence[str]) -> dict[str, Seen]:
        told = "\n".join(outputs)
        fields, who = answers.parse_jobs(told), answers.parse_cancelled_by(told)
        return {
            id: answers.with_details(seen, fields.get(id, {}), _user_name(who.get(id, "")))
            for id, seen in ended.items()
        }

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return ["scancel", "--quiet", *compress(ids)]

    def cancel_all(self, name: str) -> list[str]:
        return ["scancel", "--quiet", self._user, f"--name={name}"]

    def own_jobs(self) -> list[str]:
        return ["squeue", "--noheader", "--all", self._user, "--format=%F"]

    # What is asked about the system.

    def ping(self) -> list[str]:
        return ["scontrol", "ping"]

    def is_up(self, output: str) -> bool:
        return " is UP" in output

    def probe(self, options: Sequence[str]) -> list[str]:
        return ["sbatch", "--test-only", *options, "--wrap=true"]

    def queues(self) -> list[str]:
        return ["sinfo", "--all", "-h", "-o", "%P|%a|%D"]

    def parse_queues(self, output: str) -> list[Queue]:
        """Return the partitions; the default one has a star."""
        rows = (line.strip().split("|") for line in output.splitlines())
        return [
            Queue(name, f"{state}, {count} {'node' if count == '1' else 'nodes'}", state == "up")
            for name, state, count in (row for row in rows if len(row) == 3)
        ]


class DrmaaWords(SlurmCommands):
    """The options of sbatch in the form that DRMAA libraries take, for a `GridEngineScheduler`."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title

    def own_option(self, name: str, value: Option) -> list[str]:
        if name == "parallel_environment":
            slots = str(value).partition(" ")[2].strip().partition("-")[0]
            hint = f"ask for resources=gridengine.Cores({slots or 4})"
            raise cannot_say(self, f"{name}={value!r}", hint)
        if name == "queue":
            return [f"--partition={value}"]
        seconds = clock_seconds(str(value))
        if name == "h_rt" and seconds:
            return [f"--time={clock_time(seconds)}"]
        size = memory_bytes(str(value))
        if name == "h_vmem" and size:
            return [f"--mem-per-cpu={megabytes(size)}M"]
        raise cannot_say(self, f"{name}={value!r}")

    def time(self, seconds: float) -> list[str]:
        """Return the limit, without the signal before it, which the libraries do not take."""
        return super().time(seconds)[:1]

    def completed(self, options: list[str]) -> list[str]:
        """Return the options in the libraries' spelling, and forbid Slurm to requeue: a requeued
        worker would be taken for the one that ran before.
        """
        requeue = [] if "--requeue" in options else ["--no-requeue"]
        spelt = map(self._spelt, options)
        quoted = (shlex.quote(word) if re.search(r"[\s'\"]", word) else word for word in spelt)
        return [*requeue, *quoted]

    def _spelt(self, option: str) -> str:
        """Return an option with megabytes without a unit, and times with hours and minutes."""
        name, _, value = option.partition("=")
        size = re.fullmatch(r"(\d+)([KMGT])B?", value, flags=re.IGNORECASE)
        if name in ("--mem", "--mem-per-cpu") and size is not None:
            return f"{name}={megabytes(int(size[1]) * UNITS[size[2].upper()])}"
        if name == "--time" and self.parse_time(value):
            return f"--time={clock_time(60 * -(-self.parse_time(value) // 60))}"
        return option


def _user_name(number: str) -> str:
    """Return the name of the user with this number, for people."""
    try:
        return pwd.getpwuid(int(number)).pw_name if number else ""
    except KeyError:
        return f"user {number}"


def option_values(options: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the value of each option of sbatch, by its long form, and the words that give it."""
    return SlurmCommands().said(options)
