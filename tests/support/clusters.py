"""The batch systems of this machine, as a plain user uses them: what both can do, and what each
calls it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import psutil

from tests.support.places import ROOT, Place
from tests.support.processes import completed
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.scenario import Began

SGE_ROOT = Path("/var/lib/gridengine")


class Cluster(Place):
    """The batch system of this machine, and the user who uses it.

    Attributes: `title`, as texts have it; `up`, the folder in `schedulers` that brings it up;
    `mark`, a file that `up` leaves and how the file begins; `ping`, a command that succeeds when it
    answers; `folder_of_commands`, where they are if not in everybody's PATH; `array_is_one_job`,
    whether the tasks of an array share a number; `delete_command`; `closed`, arguments of a
    scheduler whose workers wait for ever.
    """

    title: ClassVar[str]
    up: ClassVar[str]
    mark: ClassVar[tuple[Path, str]]
    ping: ClassVar[tuple[str, ...]]
    folder_of_commands: ClassVar[str] = ""
    array_is_one_job: ClassVar[bool] = True
    delete_command: ClassVar[str]
    closed: ClassVar[str]
    one_worker = "max_workers=1, worker_resources=Cores(2) & Memory(1) & Token('licence')"
    variables: ClassVar[Mapping[str, str]] = {}
    never: ClassVar[Mapping[str, str]] = {
        "interpreter": "/nosuch/python: No such file or directory",
        "prologue": "modules are gone",
    }
    has_queue = True
    has_logs = True

    def __init__(
        self, user: pwd.struct_passwd, python: str, environment: Mapping[str, str], folder: Path
    ) -> None:
        path = path_of(type(self), environment["PATH"])
        super().__init__(user, python, {**environment, **self.variables, "PATH": path}, folder)

    def command(self, *arguments: str) -> str:
        """Run a command of the batch system's as the user and return its output."""
        return self._command(arguments, self._identity())

    def administer(self, *arguments: str) -> str:
        """Run a command of the batch system's as this process's own user, who must be root for
        most.
        """
        return self._command(arguments, {})

    def _command(self, arguments: tuple[str, ...], identity: Mapping[str, object]) -> str:
        done = completed(arguments, env=self.environment, **identity)  # type: ignore[call-overload]
        return str(done.stdout + done.stderr)

    def jobs(self) -> set[str]:
        """Return the numbers of the user's jobs."""
        raise NotImplementedError

    def largest_array(self) -> int:
        """Return how many tasks the site allows in one array."""
        raise NotImplementedError


class GridEngine(Cluster):
    """The Grid Engine of this machine, and the user who uses it."""

    name = "grid_engine"
    scheduler = "GridEngineScheduler"
    title = "Grid Engine"
    up = "gridengine"
    mark = SGE_ROOT / "default" / "common" / "made-by-up", ""
    ping = ("qconf", "-sql")
    delete_command = "qdel"
    closed = "queue='closed.q'"
    daemon = "sge_qmaster" if os.getuid() == 0 else ""
    refused: ClassVar[Mapping[str, str]] = {
        "nosuch=1": 'unknown resource "nosuch"',
        "parallel_environment='smp 64'": "no suitable queues",
    }
    never: ClassVar[Mapping[str, str]] = {
        **Cluster.never,
        "log folder": "opening input/output file",
        "working directory": "changing into working directory",
    }
    deleted = "deleted"

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

    def wait_until_ready(self) -> None:
        """Wait until its master answers."""
        self.command("qconf", "-sh")

    def knows(self, job: str) -> bool:
        return "job_number" in self.command("qstat", "-j", job)

    def jobs(self) -> set[str]:
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
        self.command("qmod", "-usj", call.job)

    def largest_array(self) -> int:
        return next(
            int(line.split()[1])
            for line in self.command("qconf", "-sconf").splitlines()
            if line.startswith("max_aj_tasks")
        )


class Slurm(Cluster):
    """The Slurm of this machine, and the user who uses it: who finds no Grid Engine."""

    name = "slurm"
    scheduler = "SlurmScheduler"
    title = "Slurm"
    up = "slurm"
    mark = Path("/etc/slurm/slurm.conf"), "# made by schedulers/slurm/up"
    ping = ("scontrol", "ping")
    delete_command = "scancel"
    closed = "partition='closed'"
    variables: ClassVar[Mapping[str, str]] = {"SGE_ROOT": ""}
    daemon = "slurmctld" if os.getuid() == 0 else ""
    may_suspend = os.getuid() == 0
    on_its_node = "nodelist='n1'"
    ends: ClassVar[Mapping[str, str]] = {
        "exit 0": "it ended by itself (COMPLETED)",
        "exit 3": "it failed (FAILED): exit status 3",
        "kill -9 $$": "it failed (FAILED): killed by SIGKILL",
    }
    refused: ClassVar[Mapping[str, str]] = {
        "nosuch='1'": "unrecognized option '--nosuch",
        "mem='900G'": "no node has all of this",
    }
    deleted = "it was cancelled (CANCELLED)"

    @functools.cached_property
    def version(self) -> tuple[int, ...]:
        """Which Slurm it is, as (22, 5, 8)."""
        return tuple(map(int, re.findall(r"\d+", self.command("sbatch", "--version"))))

    @property
    def never(self) -> Mapping[str, str]:
        """What keeps workers from connecting, with Slurm's words. From 24.11 on a job whose log
        cannot be opened runs without one.
        """
        before = {"log folder": "its log file could not be opened"}
        return {
            **Cluster.never,
            **(before if self.version < (24, 11) else {}),
        }

    def knows(self, job: str) -> bool:
        """Return whether a job is in the queue, or about to leave it."""
        return job in self.command("squeue", "--noheader", "--format=%F").split()

    def jobs(self) -> set[str]:
        user = f"--user={self.user.pw_name}"
        words = self.command("squeue", "--noheader", "--all", user, "--format=%F").split()
        return {word for word in words if word.isdigit()}  # of an error there is none

    def worker_id(self, call: Began) -> str:
        return call.id

    def delete_worker(self, call: Began) -> None:
        """Delete the worker of this call, and no other of its array."""
        self.command("scancel", call.id)

    def suspend(self, call: Began) -> None:
        """Suspend the job of this call, and wait until it is. Only root may."""
        self.administer("scontrol", "suspend", call.id)
        wait_until(lambda: self._of(call, "%t") == "S")

    def resume(self, call: Began) -> None:
        self.administer("scontrol", "resume", call.id)

    @contextlib.contextmanager
    def preempting(self, call: Began) -> Iterator[None]:
        """Within the block, a job takes the place of this call's, which is in the partition `low`
        and has 6 GB of its node.
        """
        options = ["--partition=high", "--mem=6000M", f"--nodelist={self.node_of(call)}"]
        options += ["--parsable", "--output=/dev/null", "--chdir=/"]
        job = self.command("sbatch", *options, "--wrap=sleep 600").strip()
        try:
            yield
        finally:
            self.command("scancel", job)

    def node_of(self, call: Began) -> str:
        """Return the node that this call's job has."""
        return self._of(call, "%N")

    def _of(self, call: Began, form: str) -> str:
        return self.command("squeue", "--noheader", f"--jobs={call.id}", f"--format={form}").strip()

    def largest_array(self) -> int:
        [line] = [
            line
            for line in self.command("scontrol", "show", "config").splitlines()
            if line.startswith("MaxArraySize")
        ]
        return int(line.partition("=")[2]) - 1


class JobPerWorker(Cluster):
    """A batch system whose workers are jobs of their own; no other one of this machine is found."""

    variables: ClassVar[Mapping[str, str]] = {"SGE_ROOT": "", "SLURM_CONF": "/nosuch"}

    def worker_id(self, call: Began) -> str:
        return call.job

    def delete_worker(self, call: Began) -> None:
        self.command(*self.delete_command.split(), call.job)

    def largest_array(self) -> int:
        return 1000


class HTCondor(JobPerWorker):
    """The HTCondor pool of this machine, and the user who uses it."""

    name = "htcondor"
    scheduler = "HTCondorScheduler"
    title = "HTCondor"
    up = "htcondor"
    mark = Path("/etc/condor/condor_config"), "# made by schedulers/htcondor/up"
    ping = ("condor_q", "-totals")
    folder_of_commands = "/var/lib/gridengine-test/htcondor/bin"
    delete_command = "condor_rm"
    closed = "requirements='false'"
    refused: ClassVar[Mapping[str, str]] = {"notification='sometimes'": "otification"}
    never: ClassVar[Mapping[str, str]] = {
        **Cluster.never,
        "log folder": "as standard output",
    }
    deleted = "it was removed"
    gpus = "10000"

    def wait_until_ready(self) -> None:
        """Wait until its schedd answers."""
        wait_until(lambda: "Total" in self.command(*self.ping))

    def knows(self, job: str) -> bool:
        return bool(self.command("condor_q", job, "-af", "JobStatus").strip())

    def jobs(self) -> set[str]:
        return set(self.command("condor_q", "-af", "ClusterId").split())

    def suspend(self, call: Began) -> None:
        self.command("condor_suspend", call.job)
        wait_until(lambda: psutil.Process(call.pid).status() == psutil.STATUS_STOPPED)

    def resume(self, call: Began) -> None:
        self.command("condor_continue", call.job)


class OAR(JobPerWorker):
    """The OAR of this machine, and the user who uses it."""

    name = "oar"
    scheduler = "OARScheduler"
    title = "OAR"
    up = "oar"
    mark = Path("/etc/oar/oar.conf"), "# made by schedulers/oar/up"
    ping = ("oarnodes", "--list")
    folder_of_commands = "/var/lib/gridengine-test/oar/bin"
    array_is_one_job = False
    delete_command = "oardel"
    closed = "queue='closed'"
    one_worker = "max_workers=1, worker_resources=Cores(2) & Token('licence')"
    may_suspend = False
    refused: ClassVar[Mapping[str, str]] = {
        "queue='nosuch'": "queue 'nosuch' does not exist",
        "resource='core=100'": "not enough resources",
    }
    never: ClassVar[Mapping[str, str]] = {
        **Cluster.never,
        "log folder": "Cannot create .stdout and .stderr files",
    }
    deleted = "it was deleted"

    def wait_until_ready(self) -> None:
        """Wait until its database answers."""
        wait_until(lambda: "n1" in self.command(*self.ping))

    def knows(self, job: str) -> bool:
        """Return whether a job is in the queue, or about to leave it."""
        return re.search("Terminated|Error", self.command("oarstat", "-s", "-j", job)) is None

    def jobs(self) -> set[str]:
        listed = self.command("oarstat", "--json", "--user", self.user.pw_name)
        return set(json.loads(listed)) if listed.strip() else set()


class PBS(JobPerWorker):
    """The OpenPBS of this machine, and the user who uses it."""

    name = "pbs"
    scheduler = "PBSScheduler"
    title = "PBS"
    up = "pbs"
    mark = Path("/etc/pbs.conf"), "# made by schedulers/pbs/up"
    ping = ("qstat", "-B")
    folder_of_commands = "/var/lib/gridengine-test/pbs/bin"
    array_is_one_job = False
    delete_command = "qdel"
    closed = "queue='closed'"
    may_suspend = os.getuid() == 0
    ends: ClassVar[Mapping[str, str]] = {**Cluster.ends, "exit 0": "it ended by itself"}
    refused: ClassVar[Mapping[str, str]] = {
        "nosuch=1": "Unknown resource Resource_List.nosuch",
        "queue='nosuch'": "Unknown queue",
    }
    deleted = "it was deleted"

    def wait_until_ready(self) -> None:
        """Wait until its server answers and its node takes jobs."""
        wait_until(lambda: "state = free" in self.command("pbsnodes", "-a"))

    def knows(self, job: str) -> bool:
        """Return whether a job is in the queue, or about to leave it."""
        return re.search(r"job_state = [^FX]", self.command("qstat", "-f", job)) is not None

    def jobs(self) -> set[str]:
        """Return the ids of the user's jobs."""
        return set(self.command("qselect", "-u", self.user.pw_name).split())

    def suspend(self, call: Began) -> None:
        """Suspend the job of this call, and wait until it is. Only root may."""
        self.administer("qsig", "-s", "suspend", call.job)
        wait_until(lambda: "job_state = S" in self.command("qstat", "-f", call.job))

    def resume(self, call: Began) -> None:
        self.administer("qsig", "-s", "resume", call.job)


OWNER = os.environ.get("GRIDENGINE_TEST_USER", "gridtest")


class Flux(JobPerWorker):
    """The Flux of this machine: an instance of its user, who alone can use it."""

    name = "flux"
    scheduler = "FluxScheduler"
    title = "Flux"
    up = "flux"
    mark = Path("/var/lib/gridengine-flux/flux.toml"), "# made by schedulers/flux/up"
    ping = ("runuser", "--user", OWNER, "--", "flux", "uptime")
    folder_of_commands = "/var/lib/gridengine-test/flux/bin"
    array_is_one_job = False
    may_suspend = False
    delete_command = "flux cancel"
    closed = "queue='closed'"
    variables: ClassVar[Mapping[str, str]] = {
        **JobPerWorker.variables,
        "FLUX_URI": "local:///var/lib/gridengine-flux/run/local-0",
    }
    one_worker = "max_workers=1, worker_resources=Cores(2) & Token('licence')"
    ends: ClassVar[Mapping[str, str]] = {**Cluster.ends, "exit 0": "it ended by itself"}
    refused: ClassVar[Mapping[str, str]] = {
        "nosuch='1'": "unrecognized arguments",
        "queue='nosuch'": "Invalid queue 'nosuch' specified",
    }
    deleted = "it was cancelled"
    gpus = "-1"

    def wait_until_ready(self) -> None:
        """Wait until its instance answers."""
        wait_until(lambda: "size 2" in self.command("flux", "uptime"))

    def knows(self, job: str) -> bool:
        """Return whether a job is in the queue, or about to leave it."""
        return job in self.jobs()

    def jobs(self) -> set[str]:
        """Return the ids of the user's jobs."""
        listed = self.command("flux", "jobs", "--no-header", "--count=0", "--format={id.f58plain}")
        return set(listed.split())


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


def path_of(kind: type[Cluster], path: str) -> str:
    """Return a PATH that has a batch system's commands."""
    return ":".join(filter(None, [kind.folder_of_commands, path]))


@functools.cache
def why_none(kind: type[Cluster]) -> str:
    """Return why there is no such cluster to test on, empty when there is one."""
    remedy = f"as root: schedulers/{kind.up}/up --yes"
    if os.getuid():
        return f"tests on {kind.title} stop its daemons, which root alone may"
    path = path_of(kind, os.environ["PATH"])
    if shutil.which(kind.ping[0], path=path) is None:
        return f"{kind.title} is not installed; {remedy}"
    if not is_made_by_up(kind):
        return f"this {kind.title} is none of schedulers/{kind.up}/up, and is left alone"
    root = os.environ.get("SGE_ROOT", str(SGE_ROOT))
    environment = {**os.environ, **kind.variables, "PATH": path, "SGE_ROOT": root}
    try:
        done = completed(kind.ping, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{kind.title} does not answer: {error}"
    if done.returncode:
        return f"{kind.title} does not answer ({(done.stderr or done.stdout).strip()}); {remedy}"
    return ""


def is_made_by_up(kind: type[Cluster]) -> bool:
    """Return whether `up` has left its mark: the cluster is one for tests."""
    path, text = kind.mark
    return path.exists() and path.read_text().startswith(text)


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
