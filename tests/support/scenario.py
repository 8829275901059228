"""Scripts that use a place's scheduler, and what happens to them meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.agent_driver import alive
from tests.support.processes import completed
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine
    from tests.support.places import Place

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 15.0
"""How long a daemon may take to end. Once in some twenty times Grid Engine's master never does."""
SPOOL = Path("/var/spool/gridengine")
QUICK = {"GRIDENGINE_POLL_SECONDS": "0.5"}
IMPATIENT = {**QUICK, "GRIDENGINE_LEASE_SECONDS": "8", "GRIDENGINE_BEAT_SECONDS": "0.5"}
"""A lease of 8 s, that its end can be waited for."""

PRELUDE = '''
import json, os, signal, sys, time
from pathlib import Path

import gridengine
from gridengine import GridEngineScheduler, Job, SlurmScheduler

FOLDER = Path.cwd()
JOB = "JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID", "CONDOR_JOB_ID", "OAR_JOB_ID", "PBS_JOBID"
JOB += ("FLUX_JOB_ID",)
TASK = "SGE_TASK_ID", "SLURM_ARRAY_TASK_ID"


def first_of(names):
    return next((os.environ[name] for name in names if name in os.environ), "none")


def hold(index, folder=str(FOLDER)):
    """Say where this call runs, wait until it is told to go on, say that it ends."""
    where = f"{index} {os.getpid()} {first_of(JOB)} {first_of(TASK)}"
    Path(folder, f"began {where}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.02)
    Path(folder, f"ended {where}").touch()
    return index


def alone(index, folder=str(FOLDER)):
    """Hold, and leave a mark when one that held before still lives."""
    before = [int(path.name.split()[2]) for path in Path(folder).glob("began *")]
    if any(Path(f"/proc/{pid}/exe").exists() for pid in before):
        Path(folder, "not alone").touch()
    return hold(index, folder)


def tell(**facts):
    print(json.dumps(facts), flush=True)


def facts(error):
    """What an error says, by its text and by its attributes."""
    names = ("host", "job", "log", "log_tail", "hint")
    said = {name: getattr(error, name, None) for name in names}
    said["attempts"] = list(getattr(error, "attempts", ()))
    return {"kind": type(error).__name__, "text": str(error), **said}


def facts_of(act):
    """Do it, which must fail; return what the error says."""
    try:
        result = act()
    except Exception as error:
        return facts(error)
    raise AssertionError(f"nothing was raised, {result!r} returned")
'''


@dataclass(frozen=True, slots=True)
class Began:
    """A call's own word of where it runs."""

    index: int
    pid: int
    job: str
    task: str

    @property
    def id(self) -> str:
        """The batch system's id of its worker: of a task of an array on Slurm, or of a job that is
        none.
        """
        return self.job if self.task == "none" else f"{self.job}_{self.task}"

    @property
    def lives(self) -> bool:
        return alive(self.pid)


class Scenario:
    """A script that runs as the user, in a folder of its own. What it tells is read line by
    line.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert isinstance(process.args, list)
        self.folder = Path(process.args[-1]).parent
        self._told: list[str] = []
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=lines.extend, args=(stream,), daemon=True)
            for stream, lines in ((process.stdout, self._told), (process.stderr, self._errors))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def errors(self) -> str:
        return "".join(self._errors)

    @property
    def output(self) -> str:
        return "".join(self._told)

    def began(self, count: int, index: int | None = None, *, seconds: float = 300) -> list[Began]:
        """Wait until that many calls, or runs of this call, have begun; return all, in order."""

        def found() -> list[Began]:
            assert self.process.poll() is None or self.begun(index)[count - 1 :], (
                "".join(self._told) + self.errors
            )
            return self.begun(index)

        return list(wait_until(lambda: (all_ := found())[count - 1 :] and all_, seconds))

    def begun(self, index: int | None = None) -> list[Began]:
        paths = sorted(self.folder.glob("began *"), key=lambda path: path.stat().st_mtime_ns)
        found = [
            Began(int(one), int(pid), job, task)
            for _, one, pid, job, task in (path.name.split() for path in paths)
        ]
        return [one for one in found if index in (None, one.index)]

    def ended(self) -> list[int]:
        return sorted(int(path.name.split()[1]) for path in self.folder.glob("ended *"))

    def go(self) -> None:
        """Have all calls go on."""
        (self.folder / "go").touch()

    def told(self) -> dict[str, Any]:
        """Return the last that the script told, empty when that is nothing yet."""
        told: dict[str, Any] = json.loads(self._told[-1]) if self._told else {}
        return told

    def tell(self, name: str) -> None:
        """Have the script act on this, and wait until it has."""
        (self.folder / name).touch()
        wait_until((self.folder / f"{name} done").exists)

    def result(self, seconds: float = 300) -> dict[str, Any]:
        """Wait for the script's end and return the last that it told."""
        status = self.end(seconds)
        assert status == 0, "".join(self._told) + self.errors
        return self.told()

    def end(self, seconds: float = 300) -> int:
        """Wait for the script's end and return its status."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # has it print its threads' stacks
            self.process.wait(10)
            raise AssertionError(
                "the script did not end\n" + "".join(self._told) + self.errors
            ) from None
        for reader in self._readers:
            reader.join(5)
        return status


def play(
    place: Place,
    script: str,
    *,
    environment: Mapping[str, str] = QUICK,
    files: Mapping[str, str] | None = None,
    terminal: int | None = None,
) -> Scenario:
    """Start a script that begins with `PRELUDE`; `CLUSTER` is the place's scheduler."""
    text = f"{PRELUDE}\nfrom {place.module} import {place.scheduler} as CLUSTER\n{script}"
    return Scenario(place.start(text, files=files, environment=environment, terminal=terminal))


def wait_until_confirmed(grid_engine: GridEngine, job: str, tasks: int) -> None:
    """Wait until Grid Engine's master has heard that these tasks run: those it has not, it kills
    when it is started again.
    """

    def running() -> int:
        rows = [
            line.split()
            for line in grid_engine.command("qstat", "-u", grid_engine.user.pw_name).splitlines()
        ]
        return sum(row[0] == job and row[4] == "r" for row in rows if len(row) > 4)

    wait_until(lambda: running() == tasks)


def nothing_is_left(place: Place, begun: list[Began], *, seconds: float = 300) -> None:
    """Wait until the jobs of these calls are out of the queue and their processes gone."""
    wait_until(lambda: not any(place.knows(job) for job in {one.job for one in begun}), seconds)
    wait_until(lambda: not any(one.lives for one in begun), seconds)


@contextlib.contextmanager
def changed_queue(grid_engine: GridEngine, option: str, undo: str, queue: str) -> Iterator[None]:
    """Change a queue's state by `qmod` while the block runs."""
    grid_engine.administer("qmod", option, queue)
    try:
        yield
    finally:
        grid_engine.administer("qmod", undo, queue)


def stop_daemon(name: str) -> None:
    """End a daemon of a cluster's, as a restart of its service would."""
    paths = {
        "sge_qmaster": SPOOL / "qmaster" / "qmaster.pid",
        "sge_execd": SPOOL / "execd" / socket.gethostname() / "execd.pid",
        "slurmctld": Path("/run/slurm/slurmctld.pid"),
        "slurmd-n1": Path("/run/slurm/slurmd-n1.pid"),
        "slurmd-n2": Path("/run/slurm/slurmd-n2.pid"),
    }
    executable: Path = wait_until(lambda: executable_of(paths[name], name.partition("-")[0]))
    pid = int(executable.parent.name)
    os.kill(pid, signal.SIGTERM)
    try:
        wait_until(lambda: not executable.exists(), STOP_SECONDS)  # which a zombie has not
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not executable.exists())


def executable_of(pid_file: Path, name: str) -> Path | None:
    """Return where /proc has what a daemon runs; None while it is not there, as when it starts
    again after it aborted.
    """
    with contextlib.suppress(OSError, ValueError):
        path = Path(f"/proc/{int(pid_file.read_text())}/exe")
        return path if path.readlink().name.removesuffix("-wlm") == name else None
    return None


def bring_up(system: str = "gridengine") -> None:
    """Start what is not running of this batch system, and put what tests changed as it was."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SGE_")}
    done = completed([ROOT / "schedulers" / system / "up", "--yes"], env=clean, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


def free_slots() -> None:
    """Have Grid Engine see now that jobs have ended which ran while its daemon was restarted: else
    it does within a minute.
    """
    stop_daemon("sge_execd")
    bring_up()
