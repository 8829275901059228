"""Workers that `srun` starts (srun(1)). Where there is room, they start at once, while an array
waits up to 3 s for the next round of Slurm's scheduler (`batch_sched_delay`). `scheduler` decides
which workers start like this; `steps` uses srun too.
"""

from __future__ import annotations

import logging
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gridengine.schedulers.command import error_text
from gridengine.schedulers.slurm.commands import option_values
from gridengine.settings.values import settings

ANSWER_SECONDS = 3.0
"""How long srun may take to say whether there is room: it takes some 10 ms."""
PART_OF_START = 1 / 3
"""For this part of the setting `start_seconds` the node of a job may take to tell srun that the
worker was started: 10 s, or more where prologues are slow.
"""
END_SECONDS = 2.0
MOST_LINES = 20
"""How many of srun's last lines are remembered."""

logger = logging.getLogger("gridengine")
ALIKE = frozenset(
    f"--{name}"
    for name in (
        *("account", "comment", "constraint", "cpus-per-task", "exclude", "gpus", "gres"),
        *("licenses", "mem", "nice", "nodelist", "partition", "qos", "reservation", "signal"),
        *("time", "tmp", "wckey"),
    )
)
"""The options that mean the same to srun, for a job of one task; others are left to sbatch."""
_ALIKE = "ACCOUNT", "CONSTRAINT", "GRES", "PARTITION", "QOS", "RESERVATION", "WCKEY"
VARIABLES = {
    **{f"SBATCH_{name}": f"--{name.lower()}" for name in _ALIKE},
    "SBATCH_MEM_PER_CPU": "--mem-per-cpu",
    "SBATCH_MEM_PER_NODE": "--mem",
    "SBATCH_TIMELIMIT": "--time",
}
"""Variables by which users request something of sbatch, and srun's options for them."""


STEP = ("--overlap", "--no-kill", "--cpu-bind=none", "--mpi=none", "--input=none")
"""Makes a step like a batch script: it shares the job's resources with steps that calls start
(`--overlap`), survives when Slurm wrongly takes its node to have failed (`--no-kill`), and is
neither bound to cores nor set up for MPI.
"""
STARTED = " tasks started\n"
"""How srun's line ends when a node has started a worker."""
HAS_JOB = r"srun: jobid (?P<id>\d+):"
"""srun's line when it has a job."""


class Unsuitable(Exception):
    """srun cannot start these workers; the text says why."""


def srun_options(options: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return sbatch's options, and the user's variables for sbatch, as options of srun.

    Raises:
        Unsuitable: one of them may mean something else to srun.
    """
    own = option_values(options)
    variables = {
        name: value
        for name, value in environment.items()
        if name.startswith("SBATCH_") or name == "SLURM_CLUSTERS"
    }
    named = (  # in its long form if known
        next(iter(option_values([word])), word) for word in options if word.startswith("-")
    )
    unknown = [name for name in variables if name not in VARIABLES]
    unknown += [word for word in named if word not in ALIKE]
    if unknown:
        raise Unsuitable(f"{unknown[0]} is for sbatch")
    inherited = [f"{VARIABLES[name]}={value}" for name, value in variables.items()]
    # sbatch signals the task itself with "B"; srun always does.
    return [word for word in inherited if not option_values([word]).keys() & own.keys()] + [
        re.sub(r"^--signal=(R?)B:", r"--signal=\1", word) for word in options
    ]


def srun_command(
    options: Sequence[str], *, name: str, log: str, script: Path, shell: Sequence[str]
) -> list[str]:
    """Return the command that starts one worker in a job with these options, or gives up at once.

    log: the path, with NUL for the task's number. srun replaces `%t` there, and then opens the log
        on the worker's node (srun(1), "IO Redirection"), so that the worker can read its path.

    Raises:
        Unsuitable: srun cannot take the path of the log.
    """
    # Slurm 26.05 expands "%%j" twice.
    if re.search(r"[\\%]", str(script)):
        raise Unsuitable("a log below a folder with a backslash or % in its name cannot be named")
    step = ["--nodes=1", "--ntasks=1", *STEP]
    ours = [f"--job-name={name}", f"--output={log}".replace("\0", "%t"), f"--chdir={script.parent}"]
    return ["srun", "--verbose", "--immediate", *options, *step, *ours, *shell, str(script)]


class Srun:
    """An srun process, and the thread that reads its output. Once it has answered, it has a job or
    has failed.

    Args:
        answer: a regular expression for the line that tells the job or step: groups `id` and, for a
            step, `host`.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: str,
        answer: str = HAS_JOB,
    ) -> None:
        self.log = log
        self.job = self.host = ""
        self._answer = answer
        self._lines: list[str] = []
        self._answered = threading.Event()
        self._begun_at = time.monotonic()
        self._has_started = False
        """Whether the node has told this srun that the worker was started."""
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # only the dispatcher acts on the terminal's signals
        )
        self._reader = threading.Thread(
            target=self._read, name=f"gridengine-srun-{self._process.pid}", daemon=True
        )
        try:
            self._reader.start()
        except BaseException:  # too many threads; nobody would end this process
            self._process.kill()
            raise

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._lines = [*self._lines[1 - MOST_LINES :], line]
                if not self.job and (match := re.match(self._answer, line)):
                    self.job = match["id"]
                    self.host = match.groupdict().get("host", "")
                    self._answered.set()
                self._has_started |= line.endswith(STARTED)
        self._process.wait()
        self._answered.set()

    @property
    def is_running(self) -> bool:
        """Whether srun has not ended."""
        return self._reader.is_alive()

    @property
    def is_unheard(self) -> bool:
        """Whether srun still waits for the node's word, after a time that has been enough for it.

        A node opens a connection to srun's machine before it runs anything. Where a firewall drops
        that, srun waits for ever, and the job does nothing.
        """
        late = time.monotonic() - self._begun_at > PART_OF_START * settings().start_seconds
        return late and self.is_running and not self._has_started

    @property
    def status(self) -> int:
        """Its exit status: the worker's, or 128 and a signal. Waits for the end."""
        return self._process.wait()

    @property
    def words(self) -> str:
        """The error messages of srun."""
        return (
            error_text("".join(line for line in self._lines if "error:" in line))
            or "it gave no answer in time"
        )

    def wait_for_answer(self, deadline: float) -> bool:
        """Wait until srun has a job or has failed; return whether it has by this monotonic time."""
        return self._answered.wait(max(0.0, deadline - time.monotonic()))

    def wait_for_end(self, deadline: float) -> bool:
        """Wait until srun has ended; return whether it has by this monotonic time."""
        self._reader.join(max(0.0, deadline - time.monotonic()))
        return not self.is_running

    def end(self) -> None:
        """Kill srun. A process of srun's own then ends its job, if that has not ended."""
        self._process.kill()
        self._reader.join(END_SECONDS)
