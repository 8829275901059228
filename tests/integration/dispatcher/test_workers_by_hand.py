"""`gridengine worker`: workers by hand, beside those that a dispatcher has of its own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
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
