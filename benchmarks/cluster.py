"""On a real Grid Engine, Slurm, HTCondor and OAR, as a plain user, who must be able to read this
interpreter.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.catalogue import ON_GRID_ENGINE, ON_HTCONDOR, ON_OAR, ON_SLURM
from benchmarks.figures import Column, Medians, Row

USER = os.environ.get("GRIDENGINE_TEST_USER", "gridtest")
QUEUE_SECONDS = 60
MANY = 1_000
REMARK = (
    "From the interpreter's start to all results, nothing warm: each run asks for its own "
    "cluster tasks."
)


@dataclass(frozen=True, slots=True)
class System:
    """A batch system: how to see whether it answers, which jobs it has, and how to delete them.

    beside: the peer that our first result is compared with: it may come `later` by so many seconds.
        few: those that take some half a second for each call, and so are not given 1,000. jobs:
        returns the ids of the jobs that were submitted in a folder. commands: the folder of its
        commands, where that is not in everybody's PATH.
    """

    name: str
    peers: tuple[str, ...]
    slots: int
    beside: str
    few: tuple[str, ...]
    submit: str
    alive: tuple[str, ...]
    delete: str
    jobs: Callable[[Path], list[str]]
    later: float = 0.6
    commands: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """How rows are named after it, `grid-engine`."""
        return self.name.lower().replace(" ", "-")

    def row(
        self,
        calls: int,
        title: str,
        want: str = "",
        limit: Callable[[Medians], float] | None = None,
    ) -> Row:
        column = Column("seconds", "time", "s", want=want, limit=limit, scaled=True)
        title = f"real {self.name}, {self.slots} slots: {title}"
        peers = tuple(peer for peer in self.peers if calls < MANY or peer not in self.few)
        return Row(
            f"{self.key}-{calls}",
            title,
            (column,),
            calls,
            peers,
            first=True,
            on=self.key,
            remark=REMARK,
        )

    def rows(self) -> tuple[Row, ...]:
        first = f"{self.key}-1/{self.peers[0]}"
        want = f"within {self.later:g} s of" if self.later else "at most that of"
        return (
            self.row(
                1,
                "first result",
                f"{want} {self.beside}",
                limit=lambda medians: medians[self.beside] + self.later,
            ),
            self.row(100, "100 noops"),
            self.row(
                MANY,
                "1,000 noops",
                "within 0.5 s of our first result",
                limit=lambda medians: medians[first] + 0.5,
            ),
        )

    def command(self, *arguments: str) -> str:
        """Return what one of its commands prints."""
        return subprocess.run(
            arguments, env=self._here, capture_output=True, text=True, check=False
        ).stdout

    @property
    def _here(self) -> dict[str, str]:
        """This process's environment, with what the commands need."""
        path = f"{self.commands}:{os.environ['PATH']}"
        return {**os.environ, **self.environment, "PATH": path.lstrip(":")}

    def why_not(self) -> str:
        """Return why nothing can be measured on it here, empty when it can."""
        if shutil.which(self.submit, path=self._here["PATH"]) is None:
            return (
                f"no {self.name} here; as root: `schedulers/{self.key.replace('-', '')}/up --yes`"
            )
        done = subprocess.run(
            self.alive,
            env=self._here,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return f"{self.name} does not answer: {done.stderr.strip()}"
        try:
            user()
        except KeyError:
            return f"there is no user {USER!r}, and {self.name} takes no jobs from root"
        return ""

    def clear(self, home: Path, *, seconds: float = QUEUE_SECONDS) -> None:
        """Wait until no job is left that was submitted in this folder, so that no peer waits for
        another's; later, delete what is left.
        """
        end = time.monotonic() + seconds
        while left := self.jobs(home):
            if time.monotonic() > end:
                self.command(self.delete, *left)
                end = time.monotonic() + QUEUE_SECONDS
            time.sleep(0.1)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Give a folder in the user's home that holds a copy of this package: the user may not be
        able to read the original.
        """
        owner = user()
        made = Path(tempfile.mkdtemp(prefix="gridengine-bench.", dir=owner.pw_dir))
        try:
            shutil.copytree(
                Path(__file__).parent,
                made / "benchmarks",
                ignore=shutil.ignore_patterns("__pycache__", "*.md", "*.png"),
            )
            for path in [made, *made.rglob("*")]:
                os.chown(path, owner.pw_uid, owner.pw_gid)
            yield made
        finally:
            self.clear(made, seconds=0)
            shutil.rmtree(made, ignore_errors=True)

    def login(self, home: Path) -> dict[str, str]:
        """Return a login's environment, with the copy of this package in the path."""
        owner = user()
        path = f"{Path(sys.executable).parent}:{self.commands}:/usr/local/bin:/usr/bin:/bin"
        names = {
            "HOME": owner.pw_dir,
            "USER": owner.pw_name,
            "LOGNAME": owner.pw_name,
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
        }
        return {
            **names,
            **self.environment,
            "PATH": path.replace("::", ":"),
            "PYTHONPATH": str(home),
            "TMPDIR": str(home),
        }


def user() -> pwd.struct_passwd:
    """Return as whom jobs are submitted: this user, or for root a plain one."""
    return pwd.getpwnam(USER) if os.getuid() == 0 else pwd.getpwuid(os.getuid())


def grid_engine_jobs(home: Path) -> list[str]:
    """Return the ids of the jobs that were submitted in this folder: the user may have others,
    which are none of ours.
    """
    fields = [
        line.split(maxsplit=1) for line in GRID_ENGINE.command("qstat", "-j", "*").splitlines()
    ]
    found, number = [], ""
    for name, value in (pair for pair in fields if len(pair) == 2):
        number = value if name == "job_number:" else number
        if name == "sge_o_workdir:" and value == str(home):
            found.append(number)
    return found


def slurm_jobs(home: Path) -> list[str]:
    """Return the ids of the jobs that run in this folder."""
    pairs = [
        line.split(maxsplit=1)
        for line in SLURM.command("squeue", "--noheader", "--format=%A %Z").splitlines()
    ]
    return [pair[0] for pair in pairs if pair[1:] == [str(home)]]


def htcondor_jobs(home: Path) -> list[str]:
    """Return the ids of the jobs that run in this folder, or below it."""
    listed = HTCONDOR.command("condor_q", "-allusers", "-af:j", "Iwd").splitlines()
    pairs = [line.split(maxsplit=1) for line in listed]
    return [pair[0] for pair in pairs if Path(pair[-1]).is_relative_to(home)]


def oar_jobs(home: Path) -> list[str]:
    """Return the ids of the jobs that run in this folder, or below it."""
    listed = OAR.command("oarstat", "--json")
    jobs = json.loads(listed) if listed.strip() else {}
    folders = {id: Path(job["launchingDirectory"]) for id, job in jobs.items()}
    return [id for id, folder in folders.items() if folder.is_relative_to(home)]


GRID_ENGINE = System(
    name="Grid Engine",
    peers=tuple(ON_GRID_ENGINE),
    slots=4,
    beside="qsub -t ... -sync y",
    few=("gridmap",),
    submit="qsub",
    alive=("qconf", "-sql"),
    delete="qdel",
    jobs=grid_engine_jobs,
    environment={"SGE_ROOT": os.environ.get("SGE_ROOT", "/var/lib/gridengine")},
)
SLURM = System(
    name="Slurm",
    peers=tuple(ON_SLURM),
    slots=8,
    beside="executorlib",
    few=("sbatch --array --wait", "submitit", "executorlib"),
    submit="sbatch",
    alive=("sinfo", "--noheader"),
    delete="scancel",
    jobs=slurm_jobs,
    later=0.0,
)
HTCONDOR = System(
    name="HTCondor",
    peers=tuple(ON_HTCONDOR),
    slots=8,
    beside="condor_submit ... -queue",
    few=("condor_submit ... -queue",),
    submit="condor_submit",
    alive=("condor_q", "-totals"),
    delete="condor_rm",
    jobs=htcondor_jobs,
    later=1.0,
    commands="/var/lib/gridengine-test/htcondor/bin",
)
OAR = System(
    name="OAR",
    peers=tuple(ON_OAR),
    slots=8,
    beside="oarsub --array",
    few=("oarsub --array",),
    submit="oarsub",
    alive=("oarnodes", "--list"),
    delete="oardel",
    jobs=oar_jobs,
    later=1.0,
    commands="/var/lib/gridengine-test/oar/bin",
)
SYSTEMS = {system.key: system for system in (GRID_ENGINE, SLURM, HTCONDOR, OAR)}
OURS = tuple(system.peers[0] for system in SYSTEMS.values())
ROWS = tuple(row for system in SYSTEMS.values() for row in system.rows())
