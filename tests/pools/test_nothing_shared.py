"""Calls on an HTCondor, on a PBS, and on workers started by hand, whose host shares no files with
the script's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import hosts
from tests.support.pools import SOFTWARE, Pool, pool_of
from tests.support.processes import completed
from tests.support.separate_node import CONDOR, SeparateNode, htcondor_apart, pbs_apart

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
with gridengine.SCHEDULER(shared_files=False, max_workers=1, **python) as scheduler:
    where = gridengine.map(helpers.where, range(3), scheduler=scheduler)
    facts = gridengine.map(told, [0], scheduler=scheduler)[0]
    sums = gridengine.map(nested, [4], scheduler=scheduler)
    job = gridengine.Job(target=print, args=("from a job",), scheduler=scheduler)
    job.start()
    job.join()
    [worker] = scheduler.status().workers
# PBS brings it back when the job has ended.
print(json.dumps([where, facts, sums, job.stdout(), Path(worker.log).read_text()]))
"""
CLIENT = """
import json, gridengine, helpers
with gridengine.Client("mine") as client:
    print(json.dumps(client.map(helpers.where, range(2))))
"""


class Apart(NamedTuple):
    """How a batch system of two hosts is brought up, and a mark of the machine's own."""

    scheduler: str
    mark: Path
    bring_up: Callable[[Pool], AbstractContextManager[SeparateNode]]
    own_paths: list[str]
    """The variables of jobs that name folders of the host that submits."""


SYSTEMS = {
    "htcondor": Apart("HTCondorScheduler", CONDOR, htcondor_apart, []),
    "pbs": Apart("PBSScheduler", Path("/etc/pbs.conf"), pbs_apart, ["PBS_O_WORKDIR"]),
}


@pytest.fixture(scope="module", params=SYSTEMS)
def apart(request: pytest.FixtureRequest, onefile: Path) -> Iterator[SeparateNode]:
    """The hosts; `login` has the one file and a module in the pool's folder."""
    if reason := hosts.why_none():
        pytest.skip(reason)
    system = SYSTEMS[request.param]
    if request.param == "pbs" and not (SOFTWARE / "pbs" / "made").exists():
        pytest.skip("no OpenPBS was built; as root: OPENPBS_SOURCE=... schedulers/pbs/up --yes")
    with contextlib.contextmanager(pool_of)(request.param, system.mark) as pool:
        shutil.copy(onefile, pool.folder / "gridengine.pyz")
        script = SCRIPT.replace("SCHEDULER", system.scheduler)
        for name, text in {"helpers": HELPERS, "script": script, "client": CLIENT}.items():
            (pool.folder / f"{name}.py").write_text(text)
        for path in (pool.folder, *pool.folder.iterdir()):
            os.chown(path, pool.user.pw_uid, pool.user.pw_gid)
        with system.bring_up(pool) as made:
            yield made


htcondor_alone = pytest.mark.parametrize("apart", ["htcondor"], indirect=True, scope="module")


def run(apart: SeparateNode, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the one file with these words on `login`, as the user."""
    folder = apart.pool.folder
    return completed([*apart.as_user("login", folder), "./gridengine.pyz", *words])


def last_line(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_script_s_calls_run_on_a_node_that_sees_none_of_its_files(apart: SeparateNode) -> None:
    folder = str(apart.pool.folder)
    where, facts, sums, output, log = last_line(run(apart, "script.py", folder))
    assert where == [[index, "node1", True, True] for index in range(3)]
    assert facts == [0o600, SYSTEMS[apart.pool.name].own_paths, None]
    assert (sums, output) == ([6], "from a job\n")
    assert log.splitlines()[:3] == ["call 0", "call 1", "call 2"]


def test_an_archive_of_an_environment_is_unpacked_there(apart: SeparateNode) -> None:
    folder = apart.pool.folder
    pack = 'tar -czf env.tar.gz -C "$(./gridengine.pyz -c "import sys; print(sys.prefix)")" .'
    completed([*apart.as_user("login", folder), "sh", "-c", pack], check=True)
    where, *_ = last_line(run(apart, "script.py", str(folder), "env.tar.gz"))
    assert [host for _, host, *_ in where] == ["node1"] * 3


def test_nothing_of_jobs_is_left_on_the_node(apart: SeparateNode) -> None:
    last_line(run(apart, "script.py", str(apart.pool.folder)))
    home = apart.as_root("node1", "ls", apart.user.pw_dir)
    assert [name for name in home.split() if name.startswith("pbs.")] == []


@htcondor_alone
def test_where_nodes_are_taken_to_share_files_the_error_says_how_else(apart: SeparateNode) -> None:
    script = "import gridengine as g; g.map(abs, [1], scheduler=g.HTCondorScheduler())"
    done = run(apart, "-c", script)
    assert "no slot has TARGET.FileSystemDomain == MY.FileSystemDomain now" in done.stderr
    assert "shared_files=False has it bring what workers need" in done.stderr


@htcondor_alone
def test_a_worker_by_hand_with_a_copied_file_shares_nothing(apart: SeparateNode) -> None:
    folder = apart.pool.folder
    assert run(apart, "dispatcher", "start", "mine", "--scheduler", "none").returncode == 0
    file = f"{apart.user.pw_dir}/.gridengine/runs/dispatchers/mine/worker.json"
    there = apart.as_user("node1", apart.user.pw_dir)
    for path in (file, f"{folder}/gridengine.pyz", f"{folder}/helpers.py"):
        copy = [*there, "sh", "-c", f"umask 077; cat > {Path(path).name}"]
        subprocess.run(copy, check=True, input=Path(path).read_bytes())
    begin = ["sh", "gridengine.pyz", "worker", "-n", "1", "--no-shared-files", "worker.json"]
    with subprocess.Popen([*there, *begin]) as worker:
        found = last_line(run(apart, "client.py"))
        assert run(apart, "dispatcher", "stop", "mine").returncode == 0
        assert worker.wait(60) == 0
    assert found == [[index, "node1", True, False] for index in range(2)]
