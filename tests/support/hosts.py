"""The hosts of namespaces that `schedulers/slurm/up --hosts 3` makes, with a Slurm on them, or the
same of a Grid Engine or an HTCondor; and faults of their names, cables, networks and folders.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from tests.support.clusters import Cluster, GridEngine, HTCondor, Slurm
from tests.support.places import ROOT
from tests.support.processes import completed
from tests.support.waiting import wait_until

LOGIN, NODES = "login", ("node1", "node2")
HOSTS = (LOGIN, *NODES)
STATE = Path("/run/gridengine-hosts")
"""Where `schedulers/hosts` keeps, by batch system, the number of each host's first process."""
MAKE = ROOT / "schedulers" / "hosts"
NAMESPACES = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "true"]
NEEDS = {"nft": "nftables", "bindfs": "bindfs", "faketime": "faketime"}
"""Programs that play faults, and Debian's packages of them."""
FIREWALL = """
table ip closed {{
    chain input {{
        type filter hook input priority 0;
        iif eth0 tcp dport != {{ {ports} }} tcp flags & (syn | ack) == syn {verdict}
    }}
}}
"""
PORTS = "22, 6444-6445, 6817-6818, 9618"
"""Those of sshd, and of the daemons of Grid Engine, Slurm and HTCondor."""


def why_none() -> str:
    """Return why there can be no such hosts; empty if there can."""
    if os.getuid() or shutil.which("apt-get") is None:
        return "hosts of namespaces need root, and Debian's packages"
    if subprocess.run(NAMESPACES, capture_output=True, check=False).returncode:
        return "nobody may make namespaces on this machine, as in many containers"
    missing = [package for program, package in NEEDS.items() if shutil.which(program) is None]
    return f"as root: apt-get install {' '.join(missing)}" if missing else ""


class OfHosts(Cluster):
    """A batch system of hosts. Its user's scripts run on `login`, and his home is on all hosts.

    Attributes: `filling`, arguments of a scheduler of two workers, one of which node1 gets first.
    """

    filling: ClassVar[Mapping[str, object]]

    def before(self, folder: Path) -> list[str]:
        """Return the words of a command that runs others in this folder on `login`."""
        return self.words_on(LOGIN, folder)

    def words_on(self, host: str, folder: Path | str) -> list[str]:
        """Return the words of a command that runs others in this folder on a host, as the user."""
        user = ["--reuid", str(self.user.pw_uid), "--regid", str(self.user.pw_gid)]
        return [
            *enter(host, self.up),
            "setpriv",
            *user,
            "--clear-groups",
            "env",
            "--chdir",
            str(folder),
        ]

    def on(self, host: str, *words: str) -> str:
        """Run a command on a host as the user, and return what it prints to both outputs."""
        return self._printed([*self.words_on(host, self.folder), *words])

    def command(self, *arguments: str) -> str:
        """Run a command of the batch system's as the user, and return its output."""
        return self.on(LOGIN, *arguments)

    def administer(self, *arguments: str) -> str:
        """Run a command of the batch system's as root, and return its output."""
        return self._printed([*enter(LOGIN, self.up), *arguments])

    def _printed(self, words: list[str]) -> str:
        done = completed(words, env=self.environment)
        return done.stdout + done.stderr

    def _identity(self) -> dict[str, object]:
        return {}  # only root may enter a host

    def nothing_is_left(self, *hosts: str) -> None:
        """Wait until the queue is empty, and the user has no process on these hosts, or on any."""
        wait_until(lambda: not self.jobs())
        for host in hosts or HOSTS:
            wait_until(lambda host=host: not self._processes(host))

    def _processes(self, host: str) -> list[str]:
        """Return the user's processes on a host, but for zombies, as `ps` has them."""
        listing = ["ps", "-u", self.user.pw_name, "-o", "stat=,pid=,args="]
        lines = completed([*enter(host, self.up), *listing]).stdout.splitlines()
        return [line for line in lines if not line.startswith("Z")]


class SlurmOfHosts(OfHosts, Slurm):
    """The Slurm of such hosts."""

    filling: ClassVar[Mapping[str, object]] = {"max_workers": 2, "cpus_per_task": 4}


class GridEngineOfHosts(OfHosts, GridEngine):
    """The Grid Engine of such hosts."""

    filling: ClassVar[Mapping[str, object]] = {"max_workers": 2, "parallel_environment": "smp 4"}


class HTCondorOfHosts(OfHosts, HTCondor):
    """The HTCondor of such hosts, which share no files but /opt: nodes have no homes."""

    @property
    def nothing_shared(self) -> Mapping[str, object]:
        """The arguments of a scheduler. Nodes have this Python."""
        return {"shared_files": False, "python": self.python}

    @property
    def filling(self) -> Mapping[str, object]:  # type: ignore[override]
        """See `OfHosts`."""
        return {"max_workers": 2, "rank": 'Machine == "node1"', **self.nothing_shared}


def enter(host: str, system: str = "slurm") -> list[str]:
    """Return the words of a command that runs others on a host, as root."""
    return ["nsenter", "--target", (STATE / system / host).read_text().strip(), "--all", "--"]


def as_root(host: str, *words: str, system: str = "slurm", **options: str) -> str:
    """Run a command on a host as root, which must succeed, and return what it prints."""
    done = completed([*enter(host, system), *words], **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bring_up(system: str = "slurm") -> None:
    """Make the hosts that do not run, and start what does not run of the batch system on all."""
    up = ROOT / "schedulers" / system / "up"
    done = completed([up, "--hosts", str(len(HOSTS)), "--yes"])
    assert done.returncode == 0, done.stdout + done.stderr


def hosts(*words: str, system: str = "slurm") -> None:
    """Run `schedulers/hosts`, which must succeed."""
    done = completed([MAKE, system, *words])
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def cable_out(host: str) -> Iterator[None]:
    """Have no packet come to a host or leave it while the block runs."""
    hosts("cable", host, "down")
    try:
        yield
    finally:
        hosts("cable", host, "up")


@contextlib.contextmanager
def known_as(host: str, address: str) -> Iterator[None]:
    """Have `login` be found at this address by a host, while the block runs."""
    before = as_root(host, "cat", "/etc/hosts")
    others = [line for line in before.splitlines() if not line.endswith(LOGIN)]
    write = ("cp", "/dev/stdin", "/etc/hosts")
    as_root(host, *write, input="\n".join([*others, f"{address} {LOGIN}", ""]))
    try:
        yield
    finally:
        as_root(host, *write, input=before)


@contextlib.contextmanager
def closed_to_others(host: str, verdict: str = "drop", system: str = "slurm") -> Iterator[None]:
    """Have nobody open a connection to a host while the block runs, but for the batch system's
    daemons.
    """
    rules = FIREWALL.format(ports=PORTS, verdict=verdict)
    as_root(host, "nft", "-f", "-", system=system, input=rules)
    try:
        yield
    finally:
        as_root(host, "nft", "delete", "table", "ip", "closed", system=system)


@contextlib.contextmanager
def seen_late(host: str, *, locks: bool = False) -> Iterator[None]:
    """Have a host see changes late while the block runs: see `see_late`."""
    see_late(host, locks=locks)
    try:
        yield
    finally:
        as_root(host, "umount", "--lazy", "/home")
        as_root(host, "umount", "--lazy", "/mnt/home")


def see_late(host: str, *, locks: bool, seconds: int = 30) -> None:
    """Have a host see what others change in /home as late as with a network's file system that
    keeps names, attributes and the absence of files for this long. Locks of files there are the
    host's own, unless `locks` has all hosts see them.
    """
    kept = ",".join(f"{what}_timeout={seconds}" for what in ("attr", "entry", "negative"))
    shared = ["--enable-lock-forwarding", "--multithreaded"] if locks else []
    as_root(host, "mkdir", "-p", "/mnt/home")
    as_root(host, "mount", "--bind", "/home", "/mnt/home")
    as_root(host, "bindfs", "-o", f"nonempty,{kept}", *shared, "/mnt/home", "/home")
