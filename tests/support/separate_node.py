"""An HTCondor of two hosts that share no files: daemons of this machine that take jobs, and a node
in namespaces of its own, whose `/home`, `/root`, `/tmp` and project folder are empty.

The programs and most of the configuration are those of `schedulers/htcondor/up`. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.places import ROOT
from tests.support.pools import SOFTWARE
from tests.support.processes import completed
from tests.support.waiting import wait_until

CONFIGURATION = Path("/etc/condor/condor_config")
NODE = "gridapart"
OURS, THEIRS = "10.99.38.1", "10.99.38.2"
CABLE = "gridapart0", "gridapart1"
HIDDEN = ("/home", "/root", "/tmp", "/var/tmp", f"/{ROOT.parts[1]}")
DAEMONS = {OURS: "COLLECTOR, NEGOTIATOR, SCHEDD", THEIRS: "STARTD"}


def overlay(folder: Path, address: str) -> str:
    """Return what the configuration of the host with this address has beyond that of `up`."""
    own = folder / address
    return f"""
include : {CONFIGURATION}
LOCAL_DIR = {own}
SPOOL = {own}/spool
EXECUTE = {own}/execute
LOG = {own}/log
RUN = {own}/run
LOCK = {own}/run
CONDOR_HOST = {OURS}
NETWORK_INTERFACE = {address}
SHARED_PORT_PORT = 9638
DAEMON_LIST = MASTER SHARED_PORT {DAEMONS[address]}
FILESYSTEM_DOMAIN = {address}
# Daemons of two hosts know each other by a password; users of the one by a file in /tmp.
SEC_DEFAULT_AUTHENTICATION_METHODS = FS, PASSWORD
SEC_PASSWORD_FILE = {folder}/password
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
ALLOW_ADVERTISE_STARTD = *
"""


def node_script(folder: Path, user: pwd.struct_passwd) -> str:
    """Return the shell lines that make this process's namespaces a host, and run its daemons."""
    home = shlex.quote(user.pw_dir)
    return f"""
set -e
hostname {NODE}
cp -a /etc {folder}/etc
printf '127.0.0.1 localhost\\n{OURS} login\\n{THEIRS} {NODE}\\n' > {folder}/etc/hosts
mount --bind {folder}/etc /etc
for place in {' '.join(HIDDEN)}; do mount -t tmpfs -o mode=1777 none $place; done
install -d -o {user.pw_uid} -g {user.pw_gid} -m 700 {home}
touch {folder}/unshared
until ip link set {CABLE[1]} up 2> /dev/null; do sleep 0.1; done
ip link set lo up
ip address add {THEIRS}/24 dev {CABLE[1]}
exec {SOFTWARE}/htcondor/usr/sbin/condor_master -f
"""


def configured(folder: Path, address: str) -> dict[str, str]:
    """Return the environment of commands and daemons of the host with this address."""
    file = folder / f"{address}.conf"
    path = f"{SOFTWARE}/htcondor/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"CONDOR_CONFIG": str(file), "PATH": path, "LANG": "C.UTF-8"}


def _prepare(folder: Path) -> None:
    folder.chmod(0o755)
    for address in DAEMONS:
        (folder / f"{address}.conf").write_text(overlay(folder, address))
        for name in ("", "spool", "execute", "log", "run"):
            place = folder / address / name
            place.mkdir(exist_ok=True)
            shutil.chown(place, "condor", "condor")
    make = [SOFTWARE / "htcondor/usr/sbin/condor_store_cred", "-f", folder / "password", "-p", os.urandom(8).hex()]
    completed(make, check=True, env=configured(folder, OURS))


@contextlib.contextmanager
def separate_node(user: pwd.struct_passwd) -> Iterator[Mapping[str, str]]:
    """Run both hosts, and yield the variables by which the user's commands find the pool."""
    # Not in /tmp, which the node does not see.
    folder = Path(tempfile.mkdtemp(prefix="gridengine-apart.", dir="/var/lib"))
    running: list[subprocess.Popen[bytes]] = []
    try:
        _prepare(folder)
        subprocess.run(
            f"ip link add {CABLE[0]} type veth peer name {CABLE[1]} && "
            f"ip address add {OURS}/24 dev {CABLE[0]} && ip link set {CABLE[0]} up",
            shell=True,
            check=True,
        )
        master = [f"{SOFTWARE}/htcondor/usr/sbin/condor_master", "-f"]
        running.append(subprocess.Popen(master, env=configured(folder, OURS)))
        unshare = ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc"]
        unshare += ["--kill-child", "/bin/bash", "-c", node_script(folder, user)]
        running.append(subprocess.Popen(unshare, env=configured(folder, THEIRS)))
        wait_until((folder / "unshared").exists)
        move = ["ip", "link", "set", CABLE[1], "netns", str(running[-1].pid)]
        wait_until(lambda: not completed(move).returncode)
        ours = configured(folder, OURS)
        names = ["condor_status", "-autoformat", "Machine"]
        wait_until(lambda: completed(names, env=ours).stdout.count(NODE) >= 2)
        yield ours
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGQUIT if process is running[0] else signal.SIGKILL)
            process.wait(60)
        completed(["ip", "link", "delete", CABLE[0]])
        shutil.rmtree(folder)
