"""Calls on an HTCondor, and on workers started by hand, whose host shares no files with the
script's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import hosts
from tests.support.pools import Pool, pool_of
from tests.support.processes import completed
from tests.support.separate_node import CONFIGURATION, SeparateNode, separate_node

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
