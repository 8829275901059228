"""What coverage.py and exit handlers see of the end of a process that runs calls."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.processes import completed
from tests.support.script_driver import ROOT, MakeScript
from tests.support.waiting import wait_until

pytest.importorskip("coverage", minversion="7.13")

MODULE = """
def work(x):
    if x % 2:
        y = x * 2
    else:
        y = x * 3
    return y + 1
"""
LOCAL = """
import gridengine, measured
with gridengine.ProcessScheduler(2) as scheduler:
    assert gridengine.map(measured.work, range(4), scheduler=scheduler) == [1, 3, 7, 7]
"""
AT_EXIT = """
import gridengine, measured
assert gridengine.map(measured.work, range(4), scheduler="processes") == [1, 3, 7, 7]
"""
OVER_TCP = """
import gridengine, measured, signal
from tests.support.tcp_scheduler import TcpLauncher, TcpScheduler
TcpLauncher.leave_signal = signal.SIGTERM  # a worker that is killed leaves a torn file
with TcpScheduler(2) as scheduler:
    assert gridengine.map(measured.work, range(4), scheduler=scheduler) == [1, 3, 7, 7]
"""
THROUGH_A_CLIENT = """
import gridengine, measured
with gridengine.LocalDispatcher(2) as dispatcher, gridengine.Client(dispatcher.address) as client:
    assert client.map(measured.work, range(4)) == [1, 3, 7, 7]
"""


def share_measured(folder: Path, script: str, setting: str) -> float:
    """Run a script under coverage.py with this setting. Return how much of the module that its
    calls run counts as run, in percent.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")
    }
    environment["PYTHONPATH"] = str(ROOT)
    (folder / "measured.py").write_text(MODULE)
    (folder / "script.py").write_text(script)
    (folder / ".coveragerc").write_text(
        f"[run]\ninclude = measured.py\nparallel = true\n{setting}\n"
    )

    def coverage(*words: str) -> None:
        command = [sys.executable, "-m", "coverage", *words]
        done = completed(command, cwd=folder, env=environment)
        assert (done.returncode, done.stderr) == (0, "")

    coverage("run", "script.py")
    # A worker over TCP may still be writing.
    wait_until(lambda: not any(_works_in(folder, one) for one in psutil.process_iter()))
    coverage("combine", "-q")
    coverage("json", "-q")
    told = json.loads((folder / "coverage.json").read_text())
    share: float = told["files"]["measured.py"]["summary"]["percent_covered"]
    return share


def _works_in(folder: Path, process: psutil.Process) -> bool:
    try:
        return process.cwd() == str(folder)
    except psutil.Error:
        return False


@pytest.mark.parametrize(
    "setting", ["patch = subprocess", "patch = _exit", "concurrency = multiprocessing"]
)
def test_coverage_measures_the_code_of_calls(tmp_path: Path, setting: str) -> None:
    assert share_measured(tmp_path, LOCAL, setting) == 100


def test_coverage_measures_calls_of_a_script_that_closes_nothing(tmp_path: Path) -> None:
    assert share_measured(tmp_path, AT_EXIT, "patch = subprocess, fork, _exit") == 100


@pytest.mark.parametrize("script", [THROUGH_A_CLIENT, OVER_TCP])
def test_coverage_measures_the_code_of_calls_elsewhere(tmp_path: Path, script: str) -> None:
    assert share_measured(tmp_path, script, "patch = subprocess") == 100


def test_without_such_a_setting_the_script_alone_is_measured(tmp_path: Path) -> None:
    assert share_measured(tmp_path, LOCAL, "") < 50
    assert not list(tmp_path.glob(".coverage.*"))


REGISTER = """
import atexit, os, gridengine

def register(word):
    atexit.register(os.write, 1, word)
"""


def test_exit_handlers_are_called_of_workers_elsewhere_too(script: MakeScript) -> None:
    done = script(f"""{REGISTER}
with gridengine.LocalDispatcher(1) as dispatcher, gridengine.Client(dispatcher.address) as client:
    client.map(register, [b"second ", b"first "])
os.write(1, b"closed")
""").run()
    assert (done.stdout, done.stderr) == ("first second closed", "")


def test_exit_handlers_are_called_of_a_process_that_has_made_all_its_calls(
    script: MakeScript,
) -> None:
    done = script(f"""{REGISTER}
scheduler = gridengine.ProcessScheduler(1)
with gridengine.Executor(scheduler=scheduler, max_tasks_per_child=1) as executor:
    list(executor.map(register, [b"one ", b"two "]))
scheduler.close()
""").run()
    assert (done.stdout, done.stderr) == ("one two ", "")
