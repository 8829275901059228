"""`gridengine worker`: workers by hand, beside those that a dispatcher has of its own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dispatchers import Shell
from tests.support.waiting import wait_until

WHERE = """
import gridengine, os, sys, time
client = gridengine.Client("sweeps")
want = int(sys.argv[1])
found = set()
while len(found) < want:
    found |= set(client.map(lambda _: (time.sleep(0.05), os.getppid())[1], range(20)))
print(len(found))
"""


PLACES = """
import gridengine, os
from gridengine import Memory, Token
client = gridengine.Client("mine")
executor = gridengine.Executor(scheduler=client)
place = lambda: (os.getppid(), os.environ["OMP_NUM_THREADS"])
asked = [Token("licence"), Memory(4)]
futures = [executor.with_options(resources=one).submit(place) for one in asked for _ in range(5)]
client.flush()
print("waiting", flush=True)
places = [future.result() for future in futures]
print(len(set(places[:5])), len(set(places[5:])), len({pid for pid, _ in places}), places[0][1])
"""


@pytest.fixture
def bare_shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.kill_all()


@pytest.fixture
def shell(bare_shell: Shell) -> Shell:
    options = ["--scheduler", "processes", "--max-workers", "1"]
    bare_shell.done("dispatcher", "start", "sweeps", *options)
    return bare_shell


@pytest.mark.parametrize("by_file", [False, True])
def test_workers_by_hand_work_beside_the_dispatchers_own_and_leave_with_it(
    shell: Shell, by_file: bool
) -> None:
    file = shell.dispatchers / "sweeps" / "worker.json"
    adding = shell.begin("worker", "-n", "2", str(file) if by_file else "sweeps")
    assert shell.python(WHERE, "3") == "3\n"
    shell.done("dispatcher", "stop", "sweeps")
    output, _ = adding.communicate(timeout=60)
    assert adding.returncode == 0, output
    assert output.count("ended") == 2


def test_the_end_of_the_command_ends_the_workers_and_their_calls_go_on_elsewhere(
    shell: Shell,
) -> None:
    shell.python(WHERE, "1")
    adding = shell.begin("worker", "-n", "1", "sweeps")
    wait_until(lambda: shell.status("sweeps")["workers"] == 2)
    adding.send_signal(signal.SIGTERM)
    adding.communicate(timeout=60)
    assert shell.python(WHERE, "1") == "1\n"
    wait_until(lambda: shell.status("sweeps")["workers"] == 1)


def test_calls_wait_for_the_worker_that_holds_what_they_ask_for_and_explain_says_how_to_start_it(
    bare_shell: Shell,
) -> None:
    shell = bare_shell
    shell.done("dispatcher", "start", "mine", "--scheduler", "none")
    script = subprocess.Popen(
        [sys.executable, "-c", PLACES],
        env=shell.environment,
        cwd=shell.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "waiting\n"
    explained = " ".join(shell.done("explain", "mine").split())
    assert "5 calls that ask for Memory(4) wait: no worker holds Memory(4)." in explained
    assert "Next: start one: gridengine worker mine --token licence." in explained
    in_a_job = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "here", "SLURM_CPUS_ON_NODE": "2"}
    shell.environment = {**shell.environment, **in_a_job, "OMP_NUM_THREADS": "5"}
    adding = [
        shell.begin("worker", "--token", "licence", "mine"),
        shell.begin("worker", "--cores", "2", "--memory", "4", "mine"),
    ]
    output, errors = script.communicate(timeout=60)
    assert (script.returncode, output) == (0, "1 1 2 5\n"), errors
    assert errors.count("start one: gridengine worker mine --memory 4\n") == 1
    shell.done("dispatcher", "stop", "mine")
    for one in adding:
        one.communicate(timeout=60)
        assert one.returncode == 0


APART = """
import gridengine, os, module
with gridengine.Client("mine") as client:
    print(client.map(module.name, [0]), client.map(lambda _: os.getcwd(), [0]))
"""


def test_a_worker_that_shares_no_files_runs_calls_in_its_own_folder_with_its_modules(
    bare_shell: Shell, tmp_path: Path
) -> None:
    shell, there = bare_shell, tmp_path / "there"
    there.mkdir()
    for folder, name in ((shell.folder, "here"), (there, "there")):
        (folder / "module.py").write_text(f"def name(_): return {name!r}")
    shell.done("dispatcher", "start", "mine", "--scheduler", "none")
    words = shell.command("worker", "-n", "1", "--no-shared-files", "worker.json")
    shutil.copy(shell.dispatchers / "mine" / "worker.json", there)
    with subprocess.Popen(words, env=shell.environment, cwd=there) as adding:
        assert shell.python(APART) == f"['there'] ['{there}']\n"
        shell.done("dispatcher", "stop", "mine")
        assert adding.wait(60) == 0


def test_workers_by_hand_exchange_files_with_a_dispatcher_that_starts_none(
    bare_shell: Shell,
) -> None:
    shell = bare_shell
    shell.done("dispatcher", "start", "sweeps", "--scheduler", "none", "--transport", "files")
    addresses = json.loads((shell.dispatchers / "sweeps" / "worker.json").read_text())["addresses"]
    assert [one.partition(":")[0] for one in addresses] == ["file"]
    adding = shell.begin("worker", "-n", "1", "sweeps")
    assert shell.python(WHERE, "1") == "1\n"
    shell.done("dispatcher", "stop", "sweeps")
    adding.communicate(timeout=60)
    assert adding.returncode == 0
