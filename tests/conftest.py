"""A real Grid Engine and a real Slurm for the tests that want one: brought up by `schedulers/*/up
--yes`, used as a plain user.

They take no jobs of root. So, as root, the scripts of these tests run as the user `gridtest` (made
when missing; another name in GRIDENGINE_TEST_USER), by the interpreter that GRIDENGINE_TEST_PYTHON
names and that user can read. Where nothing answers these tests are skipped, or fail when
GRIDENGINE_REQUIRE_GRID_ENGINE=1, or GRIDENGINE_REQUIRE_SLURM=1.
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
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).parents[1]
SGE_ROOT = Path("/var/lib/gridengine")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The batch system of this machine, and the user who uses it."""

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
        seconds: float = 60,
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
            timeout=30,
            check=False,
            **identity,
        )  # type: ignore[call-overload]
        return str(done.stdout + done.stderr)

    def _identity(self) -> dict[str, object]:
        if os.getuid() == self.user.pw_uid:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def knows(self, job: str) -> bool:
        """Return whether a job is in the queue."""
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

    def knows(self, job: str) -> bool:
        """Return whether a job is in the queue."""
        return "job_number" in self.command("qstat", "-j", job)


class Slurm(Cluster):
    """The Slurm of this machine, and the user who uses it: who finds no Grid Engine."""

    def __init__(
        self, user: pwd.struct_passwd, python: str, environment: Mapping[str, str], folder: Path
    ) -> None:
        super().__init__(user, python, {**environment, "SGE_ROOT": ""}, folder)

    def knows(self, job: str) -> bool:
        """Return whether a job is in the queue, or about to leave it."""
        return job in self.command("squeue", "--noheader", "--format=%F").split()


T = TypeVar("T", bound=Cluster)


def why_no_grid_engine() -> str:
    """Return why there is no Grid Engine to test on, empty when there is one."""
    if shutil.which("qstat") is None:
        return "Grid Engine is not installed; as root: schedulers/gridengine/up --yes"
    environment = {**os.environ, "SGE_ROOT": os.environ.get("SGE_ROOT", str(SGE_ROOT))}
    try:
        done = subprocess.run(
            ["qconf", "-sql"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Grid Engine does not answer: {error}"
    if done.returncode:
        return (
            f"Grid Engine does not answer ({done.stderr.strip()}); as root: "
            "schedulers/gridengine/up --yes"
        )
    return ""


def why_no_slurm() -> str:
    """Return why there is no Slurm to test on, empty when there is one."""
    if shutil.which("sbatch") is None:
        return "Slurm is not installed; as root: schedulers/slurm/up --yes"
    try:
        done = subprocess.run(
            ["scontrol", "ping"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Slurm does not answer: {error}"
    if done.returncode:
        return (
            f"Slurm does not answer ({(done.stderr or done.stdout).strip()}); as root: "
            "schedulers/slurm/up --yes"
        )
    return ""


def skip_for(reason: str, required: str) -> None:
    """Skip the test when there is a reason to, or fail when the environment says that it must
    run.
    """
    if reason and os.environ.get(required) == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@contextlib.contextmanager
def cluster(kind: type[T]) -> Iterator[T]:
    """Give a batch system's user a folder of his own."""
    user = plain_user()
    folder = Path(tempfile.mkdtemp(prefix="gridengine-tests.", dir=user.pw_dir))
    os.chown(folder, user.pw_uid, user.pw_gid)
    python = os.environ.get("GRIDENGINE_TEST_PYTHON", sys.executable)
    yield kind(user, python, user_environment(user, python), folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _grid_engine() -> Iterator[GridEngine]:
    skip_for(why_no_grid_engine(), "GRIDENGINE_REQUIRE_GRID_ENGINE")
    with cluster(GridEngine) as found:
        yield found


@pytest.fixture(scope="session")
def _slurm() -> Iterator[Slurm]:
    skip_for(why_no_slurm(), "GRIDENGINE_REQUIRE_SLURM")
    with cluster(Slurm) as found:
        yield found


@pytest.fixture
def grid_engine(_grid_engine: GridEngine) -> Iterator[GridEngine]:
    """The Grid Engine of this machine. Scripts that a test started and left are killed at its end.

    Its master has been seen to abort by itself some seconds after a restart (version 8.1.9:
    "JB_ja_n_h_ids not found in element").
    """
    if (
        "unable to send message to qmaster" in _grid_engine.command("qconf", "-sh")
        and not os.getuid()
    ):
        from tests.support.scenario import bring_up

        warnings.warn(
            "Grid Engine's master was gone before this test, and is started again", stacklevel=1
        )
        bring_up()
    yield _grid_engine
    _grid_engine.kill_children()


@pytest.fixture
def slurm(_slurm: Slurm) -> Iterator[Slurm]:
    """The Slurm of this machine, likewise."""
    yield _slurm
    _slurm.kill_children()


def plain_user() -> pwd.struct_passwd:
    """Return the user as whom jobs are submitted: this one, or, for root, one who is made when
    missing.
    """
    if os.getuid():
        return pwd.getpwuid(os.getuid())
    name = os.environ.get("GRIDENGINE_TEST_USER", "gridtest")
    try:
        return pwd.getpwnam(name)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)
        return pwd.getpwnam(name)


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
