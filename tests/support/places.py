"""Where the scripts of `tests/contract` have their calls run: processes of this machine, workers
that connect over TCP, a batch system. One script text serves all places.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import psutil
import pytest

from tests.support.agent_driver import alive
from tests.support.waiting import stop_process

if TYPE_CHECKING:
    from tests.support.scenario import Began

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Place:
    """A scheduler, and the user whose scripts use it.

    Attributes:
        name: as settings and marks have it.
        scheduler: the name of the scheduler's class, which `module` has.
        one_worker: arguments of a scheduler with one worker, which has two cores and a licence.
        has_queue: whether jobs wait, in arrays, and can be deleted by others.
        has_logs: whether each worker has a log file; else a worker prints where the script does.
        is_remote: whether workers are found by what they are told, and may outlive the dispatcher.
        may_suspend: whether tests may suspend a worker.
        has_name: whether `scheduler=` takes the name.
        dispatcher: words of a command that is a stand-alone dispatcher `night` with two workers.
        daemon: one that tests restart; empty where they may not, or where there is none.
        on_its_node: arguments of a scheduler whose workers are all on the node of that daemon.
        ends: what a report says of a worker that ran these shell words.
        refused: what a refusal says, by the arguments that can never be had.
        never: why a worker does not come, by the reason.
        gpus: CUDA_VISIBLE_DEVICES as the place sets it for calls without GPUs; empty where the
            caller's holds.
        deleted: what an error says of a job that somebody deleted.
        lost: the name of the error of a call whose worker was ended from outside.
    """

    name: ClassVar[str]
    scheduler: ClassVar[str]
    module: ClassVar[str] = "gridengine"
    one_worker: ClassVar[str]
    has_queue: ClassVar[bool] = False
    has_logs: ClassVar[bool] = False
    is_remote: ClassVar[bool] = True
    may_suspend: ClassVar[bool] = True
    has_name: ClassVar[bool] = True
    daemon: ClassVar[str] = ""
    on_its_node: ClassVar[str] = ""
    ends: ClassVar[Mapping[str, str]] = {
        "exit 0": "exit status 0",
        "exit 3": "exit status 3",
        "kill -9 $$": "killed by SIGKILL",
    }
    refused: ClassVar[Mapping[str, str]] = {}
    never: ClassVar[Mapping[str, str]] = {}
    gpus: ClassVar[str] = ""
    deleted: ClassVar[str] = ""
    lost: ClassVar[str] = "JobDeleted"

    user: pwd.struct_passwd
    python: str
    environment: Mapping[str, str]
    folder: Path
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(
        self,
        script: str,
        *,
        files: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        terminal: int | None = None,
    ) -> subprocess.Popen[str]:
        """Start a Python script as the user, in a folder of its own that also holds these files.

        With `terminal`, a descriptor, it is the foreground process of that, else it has none.
        """
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        for name, text in {**(files or {}), "script.py": script}.items():
            (folder / name).write_text(text)
        self._give(folder)
        started = subprocess.Popen(
            [*self.before(folder), self.python, str(folder / "script.py")],
            cwd=folder,
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=None
            if terminal is None
            else functools.partial(fcntl.ioctl, terminal, termios.TIOCSCTTY, 0),
            **self._identity(),
        )
        self.children.append(started)
        return started

    def run(
        self,
        script: str,
        *,
        files: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        seconds: float = 300,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a Python script as the user and return what it wrote; with `check`, the test fails
        when the script does.
        """
        started = self.start(script, files=files, environment=environment)
        try:
            output, errors = started.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            # Before it ends, all its threads' stacks are printed.
            os.killpg(started.pid, signal.SIGABRT)
            output, errors = started.communicate()
            pytest.fail(f"the script did not end within {seconds} s\n{output}\n{errors}")
        if check and started.returncode:
            pytest.fail(f"the script ended with status {started.returncode}\n{output}\n{errors}")
        return subprocess.CompletedProcess(started.args, started.returncode, output, errors)

    @property
    def dispatcher(self) -> list[str]:
        """A command, but for its interpreter: a stand-alone dispatcher `night` of two workers."""
        words = ["-m", "gridengine", "dispatcher", "start", "night", "--foreground"]
        return [*words, "--scheduler", self.name, "--max-workers", "2"]

    def before(self, folder: Path) -> list[str]:
        """Return the words of a command that runs others in this folder elsewhere."""
        return []

    def wait_until_ready(self) -> None:
        """Wait until the place takes work."""

    def knows(self, job: str) -> bool:
        """Return whether a worker is there, or waits, by its number in the place."""
        raise NotImplementedError

    def worker_id(self, call: Began) -> str:
        """Return the id that errors give the worker of this call."""
        raise NotImplementedError

    def delete_worker(self, call: Began) -> None:
        """End the worker of this call from outside, and no other."""
        raise NotImplementedError

    def suspend(self, call: Began) -> None:
        """Suspend the worker of this call, and wait until it is."""
        raise NotImplementedError

    def resume(self, call: Began) -> None:
        """Have a suspended worker go on."""
        raise NotImplementedError

    def kill_children(self) -> None:
        """Kill what tests have left."""
        while self.children:
            child = self.children.pop()
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()  # not for what it prints: a worker of this machine may hold that open

    def _identity(self) -> dict[str, object]:
        if os.getuid() == self.user.pw_uid:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def _give(self, folder: Path) -> None:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)


class ThisMachine(Place):
    """Workers that are processes of this machine, as is the script that starts them."""

    one_worker = "max_workers=2, worker_resources=Token('licence')"
    never: ClassVar[Mapping[str, str]] = {"interpreter": "/nosuch/python: No such file"}
    lost = "WorkerLost"

    def knows(self, job: str) -> bool:
        """Return whether a process lives; a call's word that it has no job is no process."""
        return job.isdigit() and alive(int(job))

    def delete_worker(self, call: Began) -> None:
        """Kill the worker of this call with all its processes."""
        for process in self._worker(call):
            with contextlib.suppress(psutil.NoSuchProcess):  # its parent has ended it
                process.kill()

    def suspend(self, call: Began) -> None:
        """Stop the worker of this call with all its processes."""
        for process in self._worker(call):
            stop_process(process.pid)

    def resume(self, call: Began) -> None:
        """Have them go on."""
        for process in self._worker(call):
            process.resume()

    def _worker(self, call: Began) -> list[psutil.Process]:
        """Return the processes of this call's worker, the first one first."""
        child = psutil.Process(call.pid)
        below = [child, *child.parents()]
        script = next(
            at for at, one in enumerate(below) if one.pid in [each.pid for each in self.children]
        )
        return below[:script][::-1]


class Processes(ThisMachine):
    """Local workers, as users have them who name no scheduler."""

    name = "processes"
    scheduler = "ProcessScheduler"
    is_remote = False


class Tcp(ThisMachine):
    """Local workers that are treated as a cluster's are."""

    name = "tcp"
    scheduler = "TcpScheduler"
    module = "tests.support.tcp_scheduler"
    has_name = False

    def delete_worker(self, call: Began) -> None:
        """Tell the worker of this call to leave, as batch systems do with jobs that are deleted."""
        self._worker(call)[0].terminate()

    @property
    def dispatcher(self) -> list[str]:
        return ["-m", "tests.support.tcp_dispatcher", "night"]


class Files(Tcp):
    """Local workers that exchange files with the dispatcher."""

    name = "files"
    scheduler = "FilesScheduler"

    def start(self, script: str, **given: Any) -> subprocess.Popen[str]:
        """Start a script as elsewhere, but with a lease that is long enough for files."""
        environment = given.pop("environment", None) or {}
        if "GRIDENGINE_LEASE_SECONDS" in environment:
            environment = {**environment, "GRIDENGINE_LEASE_SECONDS": "10"}
        return super().start(script, environment=environment, **given)

    @property
    def dispatcher(self) -> list[str]:
        return [*super().dispatcher, "--files"]


@contextlib.contextmanager
def here(kind: type[Place]) -> Iterator[Place]:
    """Give the scripts of a local place a folder, which is their home too; they find no cluster."""
    folder = Path(tempfile.mkdtemp(prefix="gridengine-tests."))
    user = pwd.getpwuid(os.getuid())
    environment = {
        "HOME": str(folder),
        "USER": user.pw_name,
        "LANG": "C.UTF-8",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", ""),
        "GRIDENGINE_PROGRESS": "no",
        "PATH": os.environ["PATH"],
        "SGE_ROOT": "",
    }
    yield kind(user, sys.executable, environment, folder)
    shutil.rmtree(folder, ignore_errors=True)
