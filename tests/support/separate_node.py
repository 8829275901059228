"""A batch system of two hosts of namespaces that share no files. `login` takes jobs, and `node1`
runs them: its `/home`, `/root` and project folder are empty. Each has a `/tmp` of its own.

Most of each system is what `schedulers/*/up` makes.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import ROOT
from tests.support.pools import SOFTWARE, Pool
from tests.support.processes import completed
from tests.support.waiting import wait_until

CONDOR = Path("/etc/condor/condor_config")
ADDRESSES = {"login": "10.77.0.1", "node1": "10.77.0.11"}
DAEMONS = {"login": "COLLECTOR, NEGOTIATOR, SCHEDD", "node1": "STARTD"}
PROGRAMS = SOFTWARE / "htcondor" / "usr" / "sbin"


def overlay(folder: Path, host: str) -> str:
    """Return what the configuration of a host has beyond that of `schedulers/htcondor/up`."""
    own = folder / host
    return f"""
include : {CONDOR}
LOCAL_DIR = {own}
SPOOL = {own}/spool
EXECUTE = {own}/execute
LOG = {own}/log
RUN = {own}/run
LOCK = {own}/run
CONDOR_HOST = {ADDRESSES["login"]}
NETWORK_INTERFACE = {ADDRESSES[host]}
DAEMON_LIST = MASTER SHARED_PORT {DAEMONS[host]}
FILESYSTEM_DOMAIN = {host}
# Daemons of two hosts know each other by a password; the user is known by a file in /tmp.
SEC_DEFAULT_AUTHENTICATION_METHODS = FS, PASSWORD
SEC_PASSWORD_FILE = {folder}/password
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
ALLOW_ADVERTISE_STARTD = *
"""


@dataclass(frozen=True)
class SeparateNode:
    """The two hosts, and the user, whose home `login` has.

    Attributes: `name` of the hosts; `pool`, whose commands and user they have; `variables` of a
    host, by its name.
    """

    name: str
    pool: Pool
    variables: Mapping[str, list[str]]

    @property
    def user(self) -> pwd.struct_passwd:
        """Who uses them."""
        return self.pool.user

    def words(self, host: str, *before: str) -> list[str]:
        """Return the words that run a command on a host: with the pool's commands, after these."""
        path = f"PATH={self.pool.commands}:/usr/sbin:/usr/bin:/sbin:/bin"
        variables = [*self.variables.get(host, []), path, "LANG=C.UTF-8"]
        hosts = str(ROOT / "schedulers" / "hosts")
        return [hosts, self.name, "in", host, "env", "-i", *variables, *before]

    def as_root(self, host: str, *words: str) -> str:
        """Run a command on a host, which must succeed, and return its output."""
        done = completed(self.words(host, *words))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def as_user(self, host: str, folder: Path | str) -> list[str]:
        """Return the words that run a command on a host as the user, in this folder."""
        known = [f"HOME={self.user.pw_dir}", f"USER={self.user.pw_name}"]
        ids = ["--reuid", str(self.user.pw_uid), "--regid", str(self.user.pw_gid)]
        own = ["setpriv", *ids, "--clear-groups", "env", "--chdir", str(folder), *known]
        return self.words(host, *own)

    def hide_files(self) -> None:
        """Have the node see none of the folders that the user's scripts are in."""
        for hidden in ("/home", "/root", f"/{ROOT.parts[1]}"):
            self.as_root("node1", "mount", "-t", "tmpfs", "-o", "mode=755", "none", hidden)
        own = ["-o", str(self.user.pw_uid), "-g", str(self.user.pw_gid), "-m", "700"]
        self.as_root("node1", "install", "-d", *own, self.user.pw_dir)


def _prepare(folder: Path) -> None:
    folder.chmod(0o755)
    for host in ADDRESSES:
        (folder / f"{host}.conf").write_text(overlay(folder, host))
        for name in ("", "spool", "execute", "log", "run"):
            place = folder / host / name
            place.mkdir(exist_ok=True)
            shutil.chown(place, "condor", "condor")
    make = [PROGRAMS / "condor_store_cred", "-f", folder / "password", "-p", os.urandom(8).hex()]
    environment = {"CONDOR_CONFIG": str(folder / "login.conf"), "PATH": "/usr/bin:/bin"}
    completed(make, check=True, env=environment)


@contextlib.contextmanager
def htcondor_apart(pool: Pool) -> Iterator[SeparateNode]:
    """Bring both hosts and their HTCondor up, and take them down at the end."""
    hosts = [ROOT / "schedulers" / "hosts", "apart"]
    folder = Path(tempfile.mkdtemp(prefix="gridengine-apart.", dir="/var/lib"))
    variables = {host: [f"CONDOR_CONFIG={folder}/{host}.conf"] for host in ADDRESSES}
    made = SeparateNode("apart", pool, variables)
    try:
        _prepare(folder)
        completed([*hosts, "up", "2", "/home"], check=True)
        made.hide_files()
        for host in ADDRESSES:
            made.as_root(host, str(PROGRAMS / "condor_master"))
        names = made.words("login", "condor_status", "-autoformat", "Machine")
        wait_until(lambda: "node1" in completed(names).stdout)
        yield made
    finally:
        completed([*hosts, "down"])
        shutil.rmtree(folder)


PBS_STATE = "/var/spool/gridengine-pbs-hosts"
SSHD = """
HostKey /etc/ssh/apart.host
AuthorizedKeysFile /etc/ssh/apart.key.pub
Subsystem sftp internal-sftp
"""


@contextlib.contextmanager
def pbs_apart(pool: Pool) -> Iterator[SeparateNode]:
    """Bring both hosts and their PBS up, and take them down at the end. Its node copies files by
    scp from an sshd on `login`, which lets the user in by a key that only the node has.
    """
    made = SeparateNode("pbs", pool, {})
    try:
        pool.bring("up", "--hosts", "2")
        made.hide_files()
        _let_in(made)
        # As if no folder were on a file system that both have.
        made.as_root("node1", "sed", "-i", "/usecp/d", f"{PBS_STATE}/mom_priv/config")
        made.as_root("node1", "pkill", "pbs_mom")
        mom = str(SOFTWARE / "pbs" / "sbin" / "pbs_mom")
        wait_until(lambda: completed(made.words("node1", mom)).returncode == 0)
        node = made.words("login", "pbsnodes", "node1")
        wait_until(lambda: "state = free" in completed(node).stdout)
        yield made
    finally:
        completed([ROOT / "schedulers" / "hosts", "pbs", "down"])


def _let_in(made: SeparateNode) -> None:
    """Start the sshd, and give the node's user the key."""
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"]
    identity = f"{made.user.pw_dir}/.ssh/id_ed25519"
    user = made.as_user("node1", made.user.pw_dir)
    completed([*user, "mkdir", "-m", "700", ".ssh"], check=True)
    completed([*user, *key, identity], check=True)
    public = made.as_root("node1", "cat", f"{identity}.pub")
    known = "printf 'Host *\\nStrictHostKeyChecking no\\n' > /etc/ssh/ssh_config"
    made.as_root("node1", "sh", "-c", known)
    write = 'printf %s "$1" > /etc/ssh/apart.key.pub; printf %s "$2" > /etc/ssh/apart'
    made.as_root("login", "sh", "-c", write, "sh", public, SSHD)
    made.as_root("login", *key, "/etc/ssh/apart.host")
    made.as_root("login", "usermod", "-p", "*", made.user.pw_name)  # sshd lets no locked user in
    made.as_root("login", "mkdir", "-p", "/run/sshd")
    made.as_root("login", "/usr/sbin/sshd", "-f", "/etc/ssh/apart")
