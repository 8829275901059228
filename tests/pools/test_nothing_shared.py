"""Calls on an HTCondor, and on workers started by hand, whose host shares no files with the
script's.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import hosts
from tests.support.places import ROOT
from tests.support.pools import SOFTWARE, Pool, pool_of
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


HELPERS = """
import os, socket

def where(index):
    print("call", index)
    home = os.environ["HOME"]
    return index, socket.gethostname(), os.getcwd() == home, os.path.exists("connection.json")
"""
SCRIPT = """
import json, os, stat, sys
from pathlib import Path
import gridengine, helpers

def told(_):
    mode = stat.S_IMODE(os.stat("connection.json").st_mode)
    named = [name for name, value in os.environ.items() if sys.argv[1] in value]
    return mode, named, os.listdir(sys.argv[1]) if os.path.exists(sys.argv[1]) else None

def nested(count):
    return sum(gridengine.map(abs, range(count)))

python = {} if len(sys.argv) < 3 else {"python": sys.argv[2]}
with gridengine.HTCondorScheduler(shared_files=False, max_workers=1, **python) as scheduler:
    where = gridengine.map(helpers.where, range(3), scheduler=scheduler)
    facts = gridengine.map(told, [0], scheduler=scheduler)[0]
    sums = gridengine.map(nested, [4], scheduler=scheduler)
    job = gridengine.Job(target=print, args=("from a job",), scheduler=scheduler)
    job.start()
    job.join()
    [worker] = scheduler.status().workers
print(json.dumps([where, facts, sums, job.stdout(), Path(worker.log).read_text()]))
"""
CLIENT = """
import json, gridengine, helpers
with gridengine.Client("mine") as client:
    print(json.dumps(client.map(helpers.where, range(2))))
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    if reason := hosts.why_none():
        pytest.skip(reason)
    yield from pool_of("htcondor", CONFIGURATION)


@pytest.fixture(scope="module")
def apart(pool: Pool, onefile: Path) -> Iterator[SeparateNode]:
    """The hosts; `login` has the one file and a module in the pool's folder."""
    shutil.copy(onefile, pool.folder / "gridengine.pyz")
    (pool.folder / "helpers.py").write_text(HELPERS)
    (pool.folder / "script.py").write_text(SCRIPT)
    (pool.folder / "client.py").write_text(CLIENT)
    for path in (pool.folder, *pool.folder.iterdir()):
        os.chown(path, pool.user.pw_uid, pool.user.pw_gid)
    with separate_node(pool.user) as made:
        yield made


def run(apart: SeparateNode, pool: Pool, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the one file with these words on `login`, as the user."""
    return completed([*apart.as_user("login", pool.folder), "./gridengine.pyz", *words])


def last_line(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_script_s_calls_run_on_a_node_that_sees_none_of_its_files(
    apart: SeparateNode, pool: Pool
) -> None:
    where, facts, sums, output, log = last_line(run(apart, pool, "script.py", str(pool.folder)))
    assert where == [[index, "node1", True, True] for index in range(3)]
    assert facts == [0o600, [], None]
    assert (sums, output) == ([6], "from a job\n")
    assert log.splitlines()[:3] == ["call 0", "call 1", "call 2"]


def test_an_archive_of_an_environment_is_unpacked_there(apart: SeparateNode, pool: Pool) -> None:
    pack = 'tar -czf env.tar.gz -C "$(./gridengine.pyz -c "import sys; print(sys.prefix)")" .'
    completed([*apart.as_user("login", pool.folder), "sh", "-c", pack], check=True)
    where, *_ = last_line(run(apart, pool, "script.py", str(pool.folder), "env.tar.gz"))
    assert [host for _, host, *_ in where] == ["node1"] * 3


def test_where_nodes_are_taken_to_share_files_the_error_says_how_else(
    apart: SeparateNode, pool: Pool
) -> None:
    script = "import gridengine as g; g.map(abs, [1], scheduler=g.HTCondorScheduler())"
    done = run(apart, pool, "-c", script)
    assert "no slot has TARGET.FileSystemDomain == MY.FileSystemDomain now" in done.stderr
    assert "shared_files=False has it bring what workers need" in done.stderr


def test_a_worker_by_hand_with_a_copied_file_shares_nothing(
    apart: SeparateNode, pool: Pool
) -> None:
    assert run(apart, pool, "dispatcher", "start", "mine", "--scheduler", "none").returncode == 0
    file = f"{pool.user.pw_dir}/.gridengine/runs/dispatchers/mine/worker.json"
    there = apart.as_user("node1", pool.user.pw_dir)
    for path in (file, f"{pool.folder}/gridengine.pyz", f"{pool.folder}/helpers.py"):
        copy = [*there, "sh", "-c", f"umask 077; cat > {Path(path).name}"]
        subprocess.run(copy, check=True, input=Path(path).read_bytes())
    begin = ["sh", "gridengine.pyz", "worker", "-n", "1", "--no-shared-files", "worker.json"]
    with subprocess.Popen([*there, *begin]) as worker:
        found = last_line(run(apart, pool, "client.py"))
        assert run(apart, pool, "dispatcher", "stop", "mine").returncode == 0
        assert worker.wait(60) == 0
    assert found == [[index, "node1", True, False] for index in range(2)]
