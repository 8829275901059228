"""The plugin for pytest, as a user's tests see it: by a file of tests and pytest's command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.processes import completed
from tests.support.script_driver import ROOT

RunPytest: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
HEAD = """
import os, signal, subprocess, sys
import pytest
import gridengine

def pid(x):
    return os.getpid()

"""
WHERE = f"""{HEAD}
def test_where(gridengine_scheduler):
    assert gridengine.current_scheduler() is gridengine_scheduler
    print("it is", type(gridengine_scheduler).__name__)
    print("here:", gridengine.map(pid, [1]) == [os.getpid()])
"""


@pytest.fixture
def run_pytest(tmp_path: Path) -> RunPytest:
    """Return what runs pytest on a file of tests, with these words on its command line."""

    def run(source: str, *words: str, ini: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_users.py").write_text(source)
        (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
        # The entry point of the package in this folder, which need not be the installed one.
        plugin = ["-p", "no:gridengine", "-p", "gridengine.pytest_plugin", "-p", "no:cacheprovider"]
        return completed(
            [sys.executable, "-m", "pytest", "-rP", *plugin, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    return run


@pytest.mark.parametrize(
    ("words", "ini", "kind", "here"),
    [
        ([], "", "InlineScheduler", True),
        (["--gridengine=processes"], "", "ProcessScheduler", False),
        (["--gridengine=tcp"], "", "Client", False),
        ([], "gridengine = processes", "ProcessScheduler", False),
        (["--gridengine=inline"], "gridengine = tcp", "InlineScheduler", True),
    ],
)
def test_the_option_or_the_ini_value_says_where_calls_run_that_name_no_scheduler(
    run_pytest: RunPytest, words: list[str], ini: str, kind: str, here: bool
) -> None:
    done = run_pytest(WHERE, *words, ini=ini)
    assert done.returncode == 0, done.stdout
    assert f"it is {kind}\nhere: {here}\n" in done.stdout


PAGE = "\n".join(
    re.findall(
        r"^```python\n(.*?)^```",
        (ROOT / "docs" / "testing.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)


@pytest.mark.parametrize(
    ("where", "passed"),
    [("inline", "2 passed, 1 skipped"), ("processes", "3 passed"), ("tcp", "3 passed")],
)
def test_the_tests_of_the_page_pass_wherever_their_calls_run(
    run_pytest: RunPytest, where: str, passed: str
) -> None:
    done = run_pytest(PAGE, f"--gridengine={where}")
    assert done.returncode == 0, done.stdout
    assert passed in done.stdout


def test_pools_that_name_a_number_of_processes_follow_too(run_pytest: RunPytest) -> None:
    done = run_pytest(f"""{HEAD}
def test_pool(gridengine_scheduler):
    with gridengine.Pool(4) as pool:
        assert pool.map(pid, [1, 2]) == [os.getpid()] * 2
    with gridengine.Executor(max_workers=4) as executor:
        assert executor.submit(pid, 1).result() == os.getpid()
""")
    assert done.returncode == 0, done.stdout


def test_a_test_that_does_not_use_it_has_the_default_of_the_settings(run_pytest: RunPytest) -> None:
    done = run_pytest(
        f"""{HEAD}
os.environ["GRIDENGINE_SCHEDULER"] = "processes"

def test_with(gridengine_scheduler):
    gridengine.map(pid, [1])

def test_without():
    assert gridengine.map(pid, [1]) != [os.getpid()]
"""
    )
    assert done.returncode == 0, done.stdout


LEFT = f"""{HEAD}
def leave(x):
    child = subprocess.Popen(["sleep", "100"], start_new_session=True)
    print("child", child.pid, file=open("child", "w"))
    os.kill(os.getppid(), signal.SIGKILL)  # the fork server, which would end the child
    signal.pause()

def test_leaves(gridengine_scheduler):
    with pytest.raises(gridengine.GridEngineError):
        gridengine.map(leave, [1], retries=0)

def test_is_innocent(gridengine_scheduler):
    gridengine.map(pid, [1])
"""


def test_a_process_that_is_left_is_an_error_of_its_test_that_names_it(
    run_pytest: RunPytest, tmp_path: Path
) -> None:
    done = run_pytest(LEFT, "--gridengine=processes")
    pid = int((tmp_path / "child").read_text().split()[1])
    os.kill(pid, 9)
    assert "2 passed, 1 error" in done.stdout
    assert "ERROR at teardown of test_leaves" in done.stdout
    assert f"there are left: the process {pid} (sleep 100)" in done.stdout


def test_a_folder_that_is_left_is_an_error_of_its_test_that_names_it(run_pytest: RunPytest) -> None:
    done = run_pytest(
        f"""{HEAD}
import shutil

def test_leaves(gridengine_scheduler):
    gridengine.map(pid, [1])
    os.kill(gridengine_scheduler.describe()["pid"], signal.SIGKILL)
    shutil.rmtree = lambda *arguments, **options: None
""",
        "--gridengine=tcp",
    )
    assert "1 passed, 1 error" in done.stdout
    assert "of the workers of gridengine_scheduler (tcp) there are left: the folder " in done.stdout


def test_no_worker_of_any_scheduler_of_a_test_outlives_it(run_pytest: RunPytest) -> None:
    done = run_pytest(
        f"""{HEAD}
import psutil

def test_job_and_map(gridengine_scheduler):
    gridengine.map(pid, [1], scheduler="processes")
    job = gridengine.Job(target=pid, args=(1,))
    job.start()
    job.join()

def test_nothing_is_there():
    assert psutil.Process().children(recursive=True) == []
""",
        "--gridengine=processes",
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("words", "ini"), [(["--gridengine=slrm"], ""), ([], "gridengine = slrm")])
def test_a_scheduler_that_there_is_not_is_told_before_any_test(
    run_pytest: RunPytest, words: list[str], ini: str
) -> None:
    done = run_pytest(WHERE, *words, ini=ini)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "there is no scheduler 'slrm'; there are tcp, processes, " in done.stderr


def test_nothing_of_the_package_is_loaded_for_tests_that_do_not_use_it(
    run_pytest: RunPytest,
) -> None:
    done = run_pytest("""
import sys

def test_loaded():
    loaded = {name for name in sys.modules if name.partition(".")[0] == "gridengine"}
    own = {"gridengine", "gridengine._version", "gridengine.errors", "gridengine.pytest_plugin"}
    assert loaded == own
""")
    assert done.returncode == 0, done.stdout
