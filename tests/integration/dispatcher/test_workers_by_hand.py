"""`gridengine worker`: workers by hand, beside those that a dispatcher has of its own."""

from __future__ import annotations

import signal
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
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    made.done("dispatcher", "start", "sweeps", "--scheduler", "processes", "--max-workers", "1")
    yield made
    made.kill_all()


@pytest.mark.parametrize("by_file", [False, True])
def test_they_work_beside_the_dispatchers_own_and_leave_when_it_ends(
    shell: Shell, by_file: bool
) -> None:
    file = shell.dispatchers / "sweeps" / "worker.json"
    adding = shell.begin("worker", "-n", "2", str(file) if by_file else "sweeps")
    assert shell.python(WHERE, "3") == "3\n"
    shell.done("dispatcher", "stop", "sweeps")
    output, _ = adding.communicate(timeout=60)
    assert adding.returncode == 0, output
    assert output.count("ended") == 2


def test_who_ends_the_command_ends_the_workers_and_their_calls_go_on_elsewhere(
    shell: Shell,
) -> None:
    shell.python(WHERE, "1")
    adding = shell.begin("worker", "-n", "1", "sweeps")
    wait_until(lambda: shell.status("sweeps")["workers"] == 2)
    adding.send_signal(signal.SIGTERM)
    adding.communicate(timeout=60)
    assert shell.python(WHERE, "1") == "1\n"
    wait_until(lambda: shell.status("sweeps")["workers"] == 1)
