"""The batch systems of this machine, as a plain user uses them: what both can do, and what each
calls it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import psutil
import pytest

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.scenario import Began

ROOT = Path(__file__).parents[2]
SGE_ROOT = Path("/var/lib/gridengine")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The batch system of this machine, and the user who uses it.

    Attributes: `name`, as its mark and its settings have it; `title`, as texts have it; `up`, the
    folder in `schedulers` that brings it up; `ping`, a command that succeeds when it answers;
    `delete_command`; `closed`, arguments of a scheduler whose workers wait for ever.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    up: ClassVar[str]
    ping: ClassVar[tuple[str, ...]]
    delete_command: ClassVar[str]
    closed: ClassVar[str]

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
            [self.python, str(folder / "script.py")],
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
        seconds: float = 150,
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

    def command(self, *arguments: str) -> str:
        """Run a command of the batch system's as the user and return its output."""
        return self._command(arguments, self._identity())

    def administer(self, *arguments: str) -> str:
        """Run a command of the batch system's as this process's own user, who must be root for
        most.
        """
        return self._command(arguments, {})

    def _command(self, arguments: tuple[str, ...], identity: Mapping[str, object]) -> str:
        done = subprocess.run(
            arguments,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            **identity,
        )  # type: ignore[call-overload]
        return str(done.stdout + done.stderr)

    def _identity(self) -> dict[str, object]:
        if os.getuid() == self.user.pw_uid:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    @property
    def scheduler(self) -> str:
        """The name of its scheduler's class."""
        return f"{type(self).__name__}Scheduler"

    def knows(self, job: str) -> bool:
        """Return whether a job is in the queue."""
        raise NotImplementedError

    def jobs(self) -> set[str]:
        """Return the numbers of the user's jobs."""
        raise NotImplementedError

    def worker_id(self, call: Began) -> str:
        """Return the id that errors give the worker of this call."""
        raise NotImplementedError

    def delete_worker(self, call: Began) -> None:
        """Delete the worker of this call, and no other of its array."""
        raise NotImplementedError

    def suspend(self, call: Began) -> None:
        """Suspend the job of this call, and wait until it is."""
        raise NotImplementedError

    def resume(self, call: Began) -> None:
        """Have a suspended job go on."""
        raise NotImplementedError

    def largest_array(self) -> int:
        """Return how many tasks the site allows in one array."""
        raise NotImplementedError

    def kill_children(self) -> None:
        """Kill what tests have left."""
        while self.children:
            child = self.children.pop()
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()

    def _give(self, folder: Path) -> None:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)


class GridEngine(Cluster):
    """The Grid Engine of this machine, and the user who uses it."""

    name = "grid_engine"
    title = "Grid Engine"
    up = "gridengine"
    ping = ("qconf", "-sql")
    delete_command = "qdel"
    closed = "queue='closed.q'"

    def _command(self, arguments: tuple[str, ...], identity: Mapping[str, object]) -> str:
        """Run it again while the master does not answer: it may just be starting again after it
        aborted (see schedulers/gridengine/run-daemon).
        """
        told = ""

        def is_answered() -> bool:
            nonlocal told
            told = super(GridEngine, self)._command(arguments, identity)
            return "unable to send message" not in told

        wait_until(is_answered)
        return told

    def knows(self, job: str) -> bool:
        """Return whether a job is in the queue."""
        return "job_number" in self.command("qstat", "-j", job)

    def jobs(self) -> set[str]:
        """Return the numbers of the user's jobs."""
        lines = self.command("qstat", "-u", self.user.pw_name).splitlines()[2:]
        return {line.split()[0] for line in lines}

    def worker_id(self, call: Began) -> str:
        """Return the id that errors give the worker of this call."""
        return f"{call.job}.{call.task}"

    def delete_worker(self, call: Began) -> None:
        """Delete the worker of this call, and no other of its array."""
        self.command("qdel", call.job, "-t", call.task)

    def suspend(self, call: Began) -> None:
        """Suspend the job of this call, and wait until it is."""
        self.command("qmod", "-sj", call.job)
        wait_until(lambda: psutil.Process(call.pid).status() == psutil.STATUS_STOPPED)

    def resume(self, call: Began) -> None:
        """Have a suspended job go on."""
        self.command("qmod", "-usj", call.job)

    def largest_array(self) -> int:
        """Return how many tasks the site allows in one array."""
        return next(
            int(line.split()[1])
            for line in self.command("qconf", "-sconf").splitlines()
            if line.startswith("max_aj_tasks")
        )


class Slurm(Cluster):
    """The Slurm of this machine, and the user who uses it: who finds no Grid Engine."""

    name = "slurm"
    title = "Slurm"
    up = "slurm"
    ping = ("scontrol", "ping")
    delete_command = "scancel"
    closed = "partition='closed'"

    def __init__(
        self, user: pwd.struct_passwd, python: str, environment: Mapping[str, str], folder: Path
    ) -> None:
        super().__init__(user, python, {**environment, "SGE_ROOT": ""}, folder)

    def knows(self, job: str) -> bool:
        """Return whether a job is in the queue, or about to leave it."""
        return job in self.command("squeue", "--noheader", "--format=%F").split()

    def jobs(self) -> set[str]:
        """Return the numbers of the user's jobs."""
        user = f"--user={self.user.pw_name}"
        words = self.command("squeue", "--noheader", user, "--format=%F").split()
        return {word for word in words if word.isdigit()}  # of an error there is none

    def worker_id(self, call: Began) -> str:
        """Return the id that errors give the worker of this call."""
        return call.id

    def delete_worker(self, call: Began) -> None:
        """Delete the worker of this call, and no other of its array."""
        self.command("scancel", call.id)

    def suspend(self, call: Began) -> None:
        """Suspend the job of this call, and wait until it is. Only root may."""
        self.administer("scontrol", "suspend", call.id)
        wait_until(lambda: self._of(call, "%t") == "S")

    def resume(self, call: Began) -> None:
        """Have a suspended job go on."""
        self.administer("scontrol", "resume", call.id)

    def node_of(self, call: Began) -> str:
        """Return the node that this call's job has."""
        return self._of(call, "%N")

    def _of(self, call: Began, form: str) -> str:
        return self.command("squeue", "--noheader", f"--jobs={call.id}", f"--format={form}").strip()

    def largest_array(self) -> int:
        """Return how many tasks the site allows in one array."""
        [line] = [
            line
            for line in self.command("scontrol", "show", "config").splitlines()
            if line.startswith("MaxArraySize")
        ]
        return int(line.partition("=")[2]) - 1


T = TypeVar("T", bound=Cluster)


@contextlib.contextmanager
def account_on(kind: type[T]) -> Iterator[T]:
    """Give a batch system's user a folder of his own."""
    user = plain_user()
    folder = Path(tempfile.mkdtemp(prefix="gridengine-tests.", dir=user.pw_dir))
    os.chown(folder, user.pw_uid, user.pw_gid)
    python = os.environ.get("GRIDENGINE_TEST_PYTHON", sys.executable)
    # Those of both clusters, which run at the same time, are of one user.
    environment = {
        **user_environment(user, python),
        "GRIDENGINE_WATCH_DIRECTORY": str(folder / "watch"),
    }
    yield kind(user, python, environment, folder)
    shutil.rmtree(folder, ignore_errors=True)


def why_none(kind: type[Cluster]) -> str:
    """Return why there is no such cluster to test on, empty when there is one."""
    remedy = f"as root: schedulers/{kind.up}/up --yes"
    if shutil.which(kind.ping[0]) is None:
        return f"{kind.title} is not installed; {remedy}"
    environment = {**os.environ, "SGE_ROOT": os.environ.get("SGE_ROOT", str(SGE_ROOT))}
    try:
        done = subprocess.run(
            kind.ping, env=environment, capture_output=True, text=True, timeout=100, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{kind.title} does not answer: {error}"
    if done.returncode:
        return f"{kind.title} does not answer ({(done.stderr or done.stdout).strip()}); {remedy}"
    return ""


SLOW = re.compile(
    r"waiting for \d+ s for cluster job |no workers were started for now: |the scheduler does not "
    r"answer: |[\d,]+ cluster tasks? could not be deleted yet: |process \d+ still tries to "
)
"""What the package warns of where a batch system takes long."""


def said(errors: str) -> list[str]:
    """Return the lines of a script's standard error, but for those on a batch system that is
    slow.
    """
    return [line for line in errors.splitlines() if not SLOW.match(line)]


def plain_user() -> pwd.struct_passwd:
    """Return the user as whom jobs are submitted: this one, or, for root, one who is made when
    missing.
    """
    if os.getuid():
        return pwd.getpwuid(os.getuid())
    name = os.environ.get("GRIDENGINE_TEST_USER", "gridtest")
    with _alone():
        try:
            return pwd.getpwnam(name)
        except KeyError:
            subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)
            return pwd.getpwnam(name)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Have no other tests be here while the block runs: those of both clusters begin at once."""
    descriptor = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def user_environment(user: pwd.struct_passwd, python: str) -> dict[str, str]:
    """Return a login's environment; with the checkout in the path when this interpreter does not
    have the package.
    """
    environment = {
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "PYTHONFAULTHANDLER": "1",
        "GRIDENGINE_PROGRESS": "no",  # how long a queue takes is not to be seen in what is printed
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "SGE_ROOT": os.environ.get("SGE_ROOT", str(SGE_ROOT)),
    }
    installed = subprocess.run(
        [python, "-P", "-c", "import gridengine"],
        env=environment,
        cwd="/",
        capture_output=True,
        check=False,
    )
    return environment if installed.returncode == 0 else {**environment, "PYTHONPATH": str(ROOT)}
