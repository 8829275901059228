"""A second Slurm beside this machine's own, which tests may break: its daemons are children of the
test, as its configuration is a copy.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from gridengine.wire.server import lasting_ports
from tests.support.clusters import Slurm
from tests.support.waiting import wait_until

CONFIGURATION = Path("/etc/slurm")
NODES = ("n1", "n2")
PLACES = {"/var/lib/slurm/gridengine": "state", "/run/slurm": "run", "/var/log/slurm": "log"}
"""Where the machine's own Slurm has its files, and ours below its folder."""
AS_SLURM: Mapping[str, Any] = {"user": "slurm", "group": "slurm", "extra_groups": []}
ACCOUNTS = """SlurmUser=slurm
DbdHost=localhost
DbdPort={port}
LogFile={base}/log/slurmdbd.log
PidFile={base}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
"""
"""Of slurmdbd, to which the database is open by a socket, as it runs as this user."""
ENFORCED = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageHost": "localhost",
    "AccountingStorageEnforce": "limits,qos",
}


def free_ports(count: int) -> list[int]:
    """Return ports at which nobody listens now: of those that the kernel assigns to nobody, as far
    as there are any, else of those that it assigns.
    """
    with contextlib.ExitStack() as bound:
        found: list[int] = []
        for port in itertools.chain(lasting_ports(), itertools.repeat(0)):
            if len(found) == count:
                break
            with contextlib.suppress(OSError):
                one = bound.enter_context(socket.socket())
                one.bind(("", port))
                found.append(one.getsockname()[1])
    return found


class OwnSlurm:
    """A Slurm with two nodes, n1 and n2, configured as the machine's own is; `changes` are further
    lines of its configuration, and `files` are beside that.
    """

    def __init__(
        self, like: Slurm, changes: Mapping[str, object], files: Mapping[str, str]
    ) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="gridengine-slurm.", dir="/var/lib/slurm"))
        self.configuration = self.base / "slurm.conf"
        self.slurm = Slurm(
            like.user,
            like.python,
            {**like.environment, "SLURM_CONF": str(self.configuration)},
            like.folder,
        )
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._configure(changes)
        for name, text in files.items():
            (self.base / name).write_text(text)

    def _configure(self, changes: Mapping[str, object]) -> None:
        text = (CONFIGURATION / "slurm.conf").read_text()
        master, database, *ports = free_ports(2 + len(NODES))
        for theirs, ours in PLACES.items():
            text = text.replace(theirs, str(self.base / ours))
        for node, port in zip(NODES, ports, strict=True):
            text = re.sub(rf"(NodeName={node} .*Port=)\d+", rf"\g<1>{port}", text)
        lines = {
            "ClusterName": self.base.name.replace(".", "-"),
            "SlurmctldPort": master,
            "AccountingStoragePort": database,
            **changes,
        }
        text = "".join(
            line + "\n" for line in text.splitlines() if line.partition("=")[0] not in lines
        )
        self.configuration.write_text(
            text + "".join(f"{name}={value}\n" for name, value in lines.items())
        )
        for name in ("gres.conf", "cgroup.conf"):
            shutil.copy(CONFIGURATION / name, self.base / name)
        accounts = self.base / "slurmdbd.conf"
        accounts.touch(mode=0o600)
        accounts.write_text(ACCOUNTS.format(port=database, base=self.base))
        shutil.chown(accounts, "slurm", "slurm")
        for folder in (
            *(f"state/{name}" for name in ("slurmctld", *(f"slurmd-{node}" for node in NODES))),
            "run",
            "log",
        ):
            (self.base / folder).mkdir(parents=True, exist_ok=True)
        for path in (
            self.base,
            self.base / "state",
            self.base / "state" / "slurmctld",
            self.base / "run",
            self.base / "log",
        ):
            shutil.chown(path, "slurm", "slurm")
            path.chmod(0o755)

    def begin(self, *names: str) -> None:
        """Start these daemons (slurmctld, n1, n2), and wait until the nodes take jobs. They end
        with this process.
        """
        for name in names:
            if name in NODES:
                self._start(name, ["/usr/sbin/slurmd", "-D", "-N", name])
            else:
                self._start(name, [f"/usr/sbin/{name}", "-D"], **AS_SLURM)
        wait_until(self.is_up)

    def begin_accounts(self, limits: Mapping[str, str]) -> None:
        """Start what keeps accounts, with one for the user; before slurmctld, which asks for them
        when it starts. The `account`, the `user` and the `qos` have these limits.
        """
        data, socket_path = f"--datadir={self.base / 'accounts'}", self.base / "accounts.sock"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", data, "--auth-root-socket-user=slurm"],
            cwd=self.base,
            capture_output=True,
            check=True,
            **AS_SLURM,
        )
        options = ["--no-defaults", data, "--skip-networking", f"--socket={socket_path}"]
        self._start("mariadbd", ["/usr/sbin/mariadbd", *options], **AS_SLURM)
        wait_until(socket_path.is_socket)
        # Where slurmdbd 24.11 makes it itself, it ends then: MariaDB 11.8's library refuses what it
        # asks next.
        make = ["mariadb", "--no-defaults", f"--socket={socket_path}", "-e"]
        subprocess.run([*make, "CREATE DATABASE slurm_acct_db"], check=True, **AS_SLURM)
        self._start("slurmdbd", ["/usr/sbin/slurmdbd", "-D"], **AS_SLURM)
        cluster = self.base.name.replace(".", "-")
        named = {"account": "tests", "user": self.slurm.user.pw_name, "qos": "normal"}
        for words in (
            ("add", "cluster", cluster),
            ("add", "account", named["account"], f"Cluster={cluster}"),
            ("add", "user", named["user"], f"Account={named['account']}"),
            *(("modify", kind, named[kind], "set", limit) for kind, limit in limits.items()),
        ):
            wait_until(lambda words=words: self._is_done(*words))

    def _is_done(self, *words: str) -> bool:
        told = self.slurm.administer("sacctmgr", "--immediate", *words)
        return re.search("^ (Adding|Modified) |already exists", told, re.MULTILINE) is not None

    def _start(self, name: str, command: list[str], **identity: object) -> None:
        self._daemons[name] = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "SLURM_CONF": str(self.configuration),
                "MYSQL_UNIX_PORT": str(self.base / "accounts.sock"),
            },
            cwd=self.base,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **identity,
        )

    def send(self, name: str, number: int) -> None:
        """Send a daemon a signal that does not end it."""
        self._daemons[name].send_signal(number)

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """End a daemon by a signal."""
        daemon = self._daemons.pop(name)
        daemon.send_signal(number)
        daemon.wait(120)

    def is_up(self) -> bool:
        """Return whether the master answers and all nodes whose daemon runs take jobs."""
        nodes = ",".join(name for name in self._daemons if name in NODES)
        states = self.slurm.administer(
            "sinfo", "--noheader", "--partition=main", f"--nodes={nodes}", "--format=%T", "--Node"
        ).split()
        return len(states) == len(nodes.split(",")) and all(
            re.fullmatch("idle|mixed|allocated|completing", state) for state in states
        )

    def down(self) -> None:
        """End all that there is of it: jobs, daemons, what runs jobs, files."""
        for daemon in self._daemons.values():
            daemon.kill()
            daemon.wait()
        wait_until(self._kill_all)  # who still lives may write another file
        shutil.rmtree(self.base)

    def _kill_all(self) -> bool:
        """Kill all of its processes; return whether there were none."""
        found = False
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                # What runs a job has written over its environment, but is where its daemon was.
                ours = process.environ().get("SLURM_CONF") == str(
                    self.configuration
                ) or process.cwd() == str(self.base)
                if ours and process.pid != os.getpid():
                    process.kill()
                    found = True
        return not found


@contextlib.contextmanager
def own_slurm(
    like: Slurm,
    *,
    limits: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    **changes: object,
) -> Iterator[OwnSlurm]:
    """Bring up a Slurm that is configured like this one, but for these lines, and has these files
    beside its configuration; take it down at the end. With `limits`, as sacctmgr has them, it keeps
    accounts: see `begin_accounts`.
    """
    own = OwnSlurm(like, {**(ENFORCED if limits else {}), **changes}, files or {})
    try:
        if limits:
            own.begin_accounts(limits)
        own.begin("slurmctld", *NODES)
        yield own
    finally:
        own.slurm.kill_children()
        own.down()
