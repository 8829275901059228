"""An HTCondor of two hosts of namespaces that share no files. `login` takes jobs, and `node1` runs
them: its `/home`, `/root` and project folder are empty. Each has a `/tmp` of its own.

The programs and most of the configuration are those of `schedulers/htcondor/up`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT
from tests.support.pools import SOFTWARE
from tests.support.processes import completed
from tests.support.waiting import wait_until

CONFIGURATION = Path("/etc/condor/condor_config")
NAME = "apart"
ADDRESSES = {"login": "10.77.0.1", "node1": "10.77.0.11"}
DAEMONS = {"login": "COLLECTOR, NEGOTIATOR, SCHEDD", "node1": "STARTD"}
PROGRAMS = SOFTWARE / "htcondor" / "usr" / "sbin"


def overlay(folder: Path, host: str) -> str:
    """Return what the configuration of a host has beyond that of `schedulers/htcondor/up`."""
    own = folder / host
    return f"""
include : {CONFIGURATION}
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


class SeparateNode:
    """The two hosts, and the user whose home `login` has."""

    def __init__(self, user: pwd.struct_passwd, folder: Path) -> None:
        self.user = user
        self.folder = folder

    def words(self, host: str, *before: str) -> list[str]:
        """Return the words that run a command on a host: with the pool's commands, after these."""
        path = f"{SOFTWARE}/htcondor/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        variables = [f"CONDOR_CONFIG={self.folder}/{host}.conf", f"PATH={path}", "LANG=C.UTF-8"]
        hosts = str(ROOT / "schedulers" / "hosts")
        return [hosts, NAME, "in", host, "env", "-i", *variables, *before]

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
def separate_node(user: pwd.struct_passwd) -> Iterator[SeparateNode]:
    """Bring both hosts and their pool up, and take them down at the end."""
    hosts = [ROOT / "schedulers" / "hosts", NAME]
    folder = Path(tempfile.mkdtemp(prefix="gridengine-apart.", dir="/var/lib"))
    made = SeparateNode(user, folder)
    try:
        _prepare(folder)
        completed([*hosts, "up", "2", "/home"], check=True)
        for hidden in ("/home", "/root", f"/{ROOT.parts[1]}"):
            made.as_root("node1", "mount", "-t", "tmpfs", "-o", "mode=755", "none", hidden)
        own = ["-o", str(user.pw_uid), "-g", str(user.pw_gid), "-m", "700", user.pw_dir]
        made.as_root("node1", "install", "-d", *own)
        for host in ADDRESSES:
            made.as_root(host, str(PROGRAMS / "condor_master"))
        names = made.words("login", "condor_status", "-autoformat", "Machine")
        wait_until(lambda: "node1" in completed(names).stdout)
        yield made
    finally:
        completed([*hosts, "down"])
        shutil.rmtree(folder)
