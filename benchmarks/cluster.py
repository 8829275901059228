"""On a real Grid Engine, as a plain user, who must be able to read this interpreter."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.catalogue import ON_GRID_ENGINE
from benchmarks.figures import Column, Medians, Row

SLOTS = 4
USER = os.environ.get("GRIDENGINE_TEST_USER", "gridtest")
SGE_ROOT = os.environ.get("SGE_ROOT", "/var/lib/gridengine")
QUEUE_SECONDS = 60
OURS = "gridengine on Grid Engine"
FIRST = "grid-engine-1"
REMARK = "From the interpreter's start to all results, nothing warm: each run asks for its own cluster tasks."


def row(calls: int, title: str, want: str = "", limit: Callable[[Medians], float] | None = None) -> Row:
    column = Column("seconds", "time", "s", want=want, limit=limit, scaled=True)
    name, title = f"grid-engine-{calls}", f"real Grid Engine, {SLOTS} slots: {title}"
    return Row(name, title, (column,), calls, tuple(ON_GRID_ENGINE), first=True, on="grid engine", remark=REMARK)


ROWS = (
    row(1, "first result", "within 0.6 s of `qsub -sync y`", limit=lambda medians: medians["qsub -t ... -sync y"] + 0.6),
    row(100, "100 noops"),
    row(1000, "1,000 noops", "within 0.5 s of our first result", limit=lambda medians: medians[f"{FIRST}/{OURS}"] + 0.5),
)
SLURM = "not yet: no SlurmScheduler"
"""What stands in place of the row for Slurm, in which submitit and executorlib will stand beside us."""


def why_not() -> str:
    """Return why nothing can be measured on a Grid Engine here, empty when it can."""
    if shutil.which("qsub") is None:
        return "no Grid Engine here; as root: `schedulers/gridengine/up --yes`"
    done = subprocess.run(["qconf", "-sql"], env={**os.environ, "SGE_ROOT": SGE_ROOT}, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"Grid Engine does not answer: {done.stderr.strip()}"
    try:
        user()
    except KeyError:
        return f"there is no user {USER!r}, and Grid Engine takes no jobs from root"
    return ""


def user() -> pwd.struct_passwd:
    """Return as whom jobs are submitted: this user, or for root a plain one."""
    return pwd.getpwnam(USER) if os.getuid() == 0 else pwd.getpwuid(os.getuid())


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder in the user's home that holds a copy of this package: the user may not be able to read the original."""
    owner = user()
    made = Path(tempfile.mkdtemp(prefix="gridengine-bench.", dir=owner.pw_dir))
    try:
        shutil.copytree(Path(__file__).parent, made / "benchmarks", ignore=shutil.ignore_patterns("__pycache__", "*.md", "*.png"))
        for path in [made, *made.rglob("*")]:
            os.chown(path, owner.pw_uid, owner.pw_gid)
        yield made
    finally:
        clear(made, seconds=0)
        shutil.rmtree(made, ignore_errors=True)


def environment(home: Path) -> dict[str, str]:
    """Return a login's environment, with the copy of this package in the path."""
    owner = user()
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    names = {"HOME": owner.pw_dir, "USER": owner.pw_name, "LOGNAME": owner.pw_name, "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
    return {**names, "PATH": path, "SGE_ROOT": SGE_ROOT, "PYTHONPATH": str(home), "TMPDIR": str(home)}


def clear(home: Path, *, seconds: float = QUEUE_SECONDS) -> None:
    """Wait until no job is left that was submitted in this folder, so that no peer waits for another's; later, delete what is left."""
    end = time.monotonic() + seconds
    while left := jobs(home):
        if time.monotonic() > end:
            command("qdel", *left)
            end = time.monotonic() + QUEUE_SECONDS
        time.sleep(0.1)


def jobs(home: Path) -> list[str]:
    """Return the ids of the jobs that were submitted in this folder: the user may have others, which are none of ours."""
    fields = [line.split(maxsplit=1) for line in command("qstat", "-j", "*").splitlines()]
    found, number = [], ""
    for name, value in (pair for pair in fields if len(pair) == 2):
        number = value if name == "job_number:" else number
        if name == "sge_o_workdir:" and value == str(home):
            found.append(number)
    return found


def command(*arguments: str) -> str:
    """Return what a command of Grid Engine's prints."""
    environment = {**os.environ, "SGE_ROOT": SGE_ROOT}
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False).stdout
