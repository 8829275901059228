"""Scripts that use a real Grid Engine, and what happens to them meanwhile: shared by the tests of its faults."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from tests.conftest import GridEngine

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 15.0
"""How long a daemon may take to end. Once in some twenty times Grid Engine's master never does."""
SPOOL = Path("/var/spool/gridengine")
QUICK = {"GRIDENGINE_POLL_SECONDS": "0.5"}
IMPATIENT = {**QUICK, "GRIDENGINE_LEASE_SECONDS": "5", "GRIDENGINE_BEAT_SECONDS": "0.5"}
"""A lease of 5 s, that its end can be waited for."""

PRELUDE = '''
import json, os, signal, sys, time
from pathlib import Path

import gridengine
from gridengine import GridEngineScheduler, Job

FOLDER = Path.cwd()


def hold(index, folder=str(FOLDER)):
    """Say where this call runs, wait until it is told to go on, say that it ends."""
    where = f"{index} {os.getpid()} {os.environ['JOB_ID']} {os.environ['SGE_TASK_ID']}"
    Path(folder, f"began {where}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.02)
    Path(folder, f"ended {where}").touch()
    return index


def tell(**facts):
    print(json.dumps(facts), flush=True)


def facts(error):
    """What an error says, by its text and by its attributes."""
    names = ("host", "job", "log", "log_tail", "hint")
    said = {name: getattr(error, name, None) for name in names}
    return {"kind": type(error).__name__, "text": str(error), "attempts": list(getattr(error, "attempts", ())), **said}


def facts_of(act):
    """Do it, which must fail; return what the error says."""
    try:
        result = act()
    except Exception as error:
        return facts(error)
    raise AssertionError(f"nothing was raised, {result!r} returned")
'''


def until(condition: Callable[[], Any], seconds: float = 40) -> Any:
    """Return what the condition gives when that is true; fail when it is not in time."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.05)
    return result


@dataclass(frozen=True, slots=True)
class Began:
    """A call's own word of where it runs."""

    index: int
    pid: int
    job: str
    task: str

    @property
    def lives(self) -> bool:
        return psutil.pid_exists(self.pid) and psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE


class Scenario:
    """A script that runs as the user, in a folder of its own. What it tells is read line by line."""

    def __init__(self, grid_engine: GridEngine, process: subprocess.Popen[str]) -> None:
        self.grid_engine = grid_engine
        self.process = process
        assert isinstance(process.args, list)
        self.folder = Path(process.args[1]).parent
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

    def began(self, count: int, index: int | None = None, *, seconds: float = 40) -> list[Began]:
        """Wait until that many calls, or runs of this call, have begun; return all, in order."""

        def found() -> list[Began]:
            assert self.process.poll() is None or self.begun(index)[count - 1 :], "".join(self._told) + self.errors
            return self.begun(index)

        return list(until(lambda: (all_ := found())[count - 1 :] and all_, seconds))

    def begun(self, index: int | None = None) -> list[Began]:
        paths = sorted(self.folder.glob("began *"), key=lambda path: path.stat().st_mtime_ns)
        found = [Began(int(one), int(pid), job, task) for _, one, pid, job, task in (path.name.split() for path in paths)]
        return [one for one in found if index in (None, one.index)]

    def ended(self) -> list[int]:
        return sorted(int(path.name.split()[1]) for path in self.folder.glob("ended *"))

    def go(self) -> None:
        """Have all calls go on."""
        (self.folder / "go").touch()

    def tell(self, name: str) -> None:
        """Have the script act on this, and wait until it has."""
        (self.folder / name).touch()
        until((self.folder / f"{name} done").exists)

    def result(self, seconds: float = 40) -> dict[str, Any]:
        """Wait for the script's end and return the last that it told."""
        status = self.end(seconds)
        assert status == 0, "".join(self._told) + self.errors
        told: dict[str, Any] = json.loads(self._told[-1])
        return told

    def end(self, seconds: float = 40) -> int:
        """Wait for the script's end and return its status."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # has it print its threads' stacks
            self.process.wait(10)
            raise AssertionError("the script did not end\n" + "".join(self._told) + self.errors) from None
        for reader in self._readers:
            reader.join(5)
        return status


def play(
    grid_engine: GridEngine,
    script: str,
    *,
    environment: Mapping[str, str] = QUICK,
    files: Mapping[str, str] | None = None,
    terminal: int | None = None,
) -> Scenario:
    """Start a script that begins with `PRELUDE`."""
    text = f"{PRELUDE}\n{script}"
    return Scenario(grid_engine, grid_engine.start(text, files=files, environment=environment, terminal=terminal))


def jobs(grid_engine: GridEngine) -> list[str]:
    """Return the numbers of the jobs that Grid Engine has of the user."""
    lines = grid_engine.command("qstat", "-u", grid_engine.user.pw_name).splitlines()[2:]
    return sorted({line.split()[0] for line in lines})


def is_known(grid_engine: GridEngine, job: str) -> bool:
    return "job_number" in grid_engine.command("qstat", "-j", job)


def wait_until_confirmed(grid_engine: GridEngine, job: str, tasks: int) -> None:
    """Wait until Grid Engine's master has heard that these tasks run: those it has not, it kills when it is started again."""

    def running() -> int:
        rows = [line.split() for line in grid_engine.command("qstat", "-u", grid_engine.user.pw_name).splitlines()]
        return sum(row[0] == job and row[4] == "r" for row in rows if len(row) > 4)

    until(lambda: running() == tasks)


def nothing_is_left(grid_engine: GridEngine, begun: list[Began], *, seconds: float = 40) -> None:
    """Wait until the jobs of these calls are out of the queue and their processes gone."""
    until(lambda: not any(is_known(grid_engine, job) for job in {one.job for one in begun}), seconds)
    until(lambda: not any(one.lives for one in begun), seconds)


@contextlib.contextmanager
def changed_queue(grid_engine: GridEngine, option: str, undo: str, queue: str) -> Iterator[None]:
    """Change a queue's state by `qmod` while the block runs."""
    grid_engine.administer("qmod", option, queue)
    try:
        yield
    finally:
        grid_engine.administer("qmod", undo, queue)


def stop_daemon(name: str) -> None:
    """End a daemon of Grid Engine's, as a restart of its service would."""
    paths = {"sge_qmaster": SPOOL / "qmaster" / "qmaster.pid", "sge_execd": SPOOL / "execd" / socket.gethostname() / "execd.pid"}
    pid = int(paths[name].read_text())
    executable = Path(f"/proc/{pid}/exe")
    assert executable.readlink().name == name
    os.kill(pid, signal.SIGTERM)
    try:
        until(lambda: not executable.exists(), STOP_SECONDS)  # which a zombie has not
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        until(lambda: not executable.exists())


def bring_up() -> None:
    """Start what is not running of Grid Engine."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SGE_")}
    done = subprocess.run(
        [ROOT / "schedulers" / "gridengine" / "up", "--yes"], env=clean, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def free_slots() -> None:
    """Have Grid Engine see now that jobs have ended which ran while its daemon was restarted: else it does within a minute."""
    stop_daemon("sge_execd")
    bring_up()
