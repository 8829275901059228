"""Slurm's commands: how each is called, and what its answers mean. Pure functions."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from typing import Self

from gridengine.display import plural
from gridengine.errors import ConfigurationError
from gridengine.schedulers.batch_commands import Queue, Seen, WorkerArray
from gridengine.schedulers.launcher import compress
from gridengine.schedulers.slurm import site, states
from gridengine.schedulers.slurm.options import SbatchOptions
from gridengine.schedulers.slurm.site import Site, site_of
from gridengine.worker.environment import JOB_END

FIRST_LINES = """if [[ ${SLURM_RESTART_COUNT:-0} -gt 0 ]]; then
    echo "gridengine: Slurm has started this job again on $HOSTNAME;" \\
        "another has taken its place, and it ends" >&2
    exit 0
fi
[[ -z ${SLURM_SRUN_COMM_PORT-} ]] || export %s="scancel --quiet $SLURM_JOB_ID\""""
"""A task that Slurm put back into its queue and started again must not pass for the worker that it
was before. And a job of srun's outlives its worker when that srun is gone, as after a crash of the
machine that it ran on."""
UNKNOWN = Site()
MEMORY_VARIABLES = ("SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU", "SBATCH_MEM_PER_NODE")
"""The user says by these how much memory jobs have."""


class SlurmCommands(SbatchOptions):
    """Slurm's own commands (sbatch(1), squeue(1), scancel(1), scontrol(1), sinfo(1), sacct(1)).

    Args:
        site: what this Slurm allows.
        memory_said: whether a variable of the user's says how much memory jobs have.
    """

    key, title = "slurm", "Slurm"
    commands = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
    package = "Debian: slurm-client"
    first_lines = FIRST_LINES % JOB_END
    away, later, barred = site.UNREACHABLE, site.LATER, site.BARRED
    array_limit = re.compile("Invalid job array specification")
    own_limits, remedies, other_remedy = site.OWN_LIMITS, site.REMEDIES, site.BY_A_RULE
    unavailable = site.UNAVAILABLE
    # sbatch waits for a limit by itself, for two minutes: it does not know that it could ask for
    # less.
    retrying = b"sleeping and retrying"
    never, meanings = states.NEVER, states.REASONS
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

    def __init__(self, site: Site = UNKNOWN, *, memory_said: bool | None = None) -> None:
        self.site = site
        self.most_tasks = site.largest
        self._user = f"--user={os.getuid()}"
        self._memory_said = (
            any(name in os.environ for name in MEMORY_VARIABLES)
            if memory_said is None
            else memory_said
        )

    def questions(self) -> list[list[str]]:
        return [
            ["scontrol", "show", "config"],
            ["scontrol", "show", "partition", "--oneliner"],
            ["sinfo", "--noheader", "--format=%R|%c|%m"],
        ]

    def told(self, outputs: Sequence[str], options: Sequence[str]) -> Self:
        config, partitions, nodes = outputs
        name, _ = self.said(options).get("--partition", ("", ""))
        return type(self)(site_of(config, partitions, nodes, name), memory_said=self._memory_said)

    def completed(self, options: list[str]) -> list[str]:
        """Return the options with some memory, where a job would else be given all of a node."""
        memory = self.site.memory
        return [memory, *options] if memory and not self._says_memory(options) else options

    def _says_memory(self, options: Sequence[str]) -> bool:
        return self._memory_said or "--mem" in self.said(options)

    def advice(self, options: Sequence[str]) -> str:
        """Return that jobs are given more of a node than they ask for."""
        cores, _ = self.said(options).get("--cpus-per-task", ("1", ""))
        whole = self.site.whole_cores
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

    def submit(self, array: WorkerArray) -> list[str]:
        """Return the command that submits an array, or a single job where there are none.

        The options come before what is ours, so that they cannot change it; but after
        `--no-requeue`, which they may.

        Raises:
            ConfigurationError: the run directory's path cannot be said to Slurm.
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
        job = output.strip().partition(";")[0]
        if not job.isdigit():
            return []
        return [f"{job}_{task}" for task in range(1, count + 1)] if self.most_tasks else [job]

    def listing(self, name: str) -> list[str]:
        which = ("--states=all", self._user, f"--name={name}", f"--format={states.FORMAT}")
        return ["squeue", "--noheader", *which]

    def parse(self, output: str) -> dict[str, Seen]:
        return states.parse_squeue(output)

    def endings(self, ended: Mapping[str, Seen]) -> list[list[str]]:
        """Return what asks for each array of which some ended badly; and, where accounts are kept,
        who cancelled those that somebody cancelled.
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
        fields, who = states.parse_jobs(told), states.parse_cancelled_by(told)
        return {
            id: states.with_details(seen, fields.get(id, {}), _user_name(who.get(id, "")))
            for id, seen in ended.items()
        }

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return ["scancel", "--quiet", *compress(ids)]

    def cancel_all(self, name: str) -> list[str]:
        return ["scancel", "--quiet", self._user, f"--name={name}"]

    def own_jobs(self) -> list[str]:
        return ["squeue", "--noheader", self._user, "--format=%F"]

    def ping(self) -> list[str]:
        return ["scontrol", "ping"]

    def is_up(self, output: str) -> bool:
        return " is UP" in output

    def probe(self, options: Sequence[str]) -> list[str]:
        return ["sbatch", "--test-only", *options, "--wrap=true"]

    def queues(self) -> list[str]:
        return ["sinfo", "--all", "-h", "-o", "%P|%a|%D"]

    def parse_queues(self, output: str) -> list[Queue]:
        """Return the partitions, from `sinfo -h -o '%P|%a|%D'`; the default one has a star."""
        rows = (line.strip().split("|") for line in output.splitlines())
        return [
            Queue(
                row[0], f"{row[1]}, {row[2]} {'node' if row[2] == '1' else 'nodes'}", row[1] == "up"
            )
            for row in rows
            if len(row) == 3
        ]


def _user_name(number: str) -> str:
    """Return who has this number, for people."""
    try:
        return pwd.getpwuid(int(number)).pw_name if number else ""
    except KeyError:
        return f"user {number}"


def option_values(options: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the value of each option of sbatch, by its long form, and the words that give it."""
    return SlurmCommands().said(options)
