"""The package in one file, with a Python that has nothing installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import completed

Run = Callable[..., subprocess.CompletedProcess[str]]
MAP = """
import os, sys, gridengine

def parent(x):
    return os.getppid(), sys.prefix

if __name__ == "__main__":
    with gridengine.ProcessScheduler(max_workers=2) as scheduler:
        (found, prefix), *_ = gridengine.map(parent, range(4), scheduler=scheduler)
    assert found != os.getpid()
    print(prefix == sys.prefix, gridengine.__file__.startswith(sys.prefix), sys.argv[1:])
"""


CLIENT = """
import gridengine

with gridengine.Client("night") as client:
    print(client.map(abs, range(-3, 0)))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Python that imports nothing but its standard library."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    done = subprocess.run([folder / "bin" / "python", "-c", "import zmq"], capture_output=True)
    assert b"No module named 'zmq'" in done.stderr
    return folder / "bin"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def start(file: Path, bare: Path, home: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [file, *words],
        cwd=home,
        env={"HOME": str(home), "PATH": f"{bare}:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def run(onefile: Path, bare: Path, home: Path) -> Run:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        process = start(onefile, bare, home, *words)
        output, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    return run


def test_doctor_of_the_one_file_finds_all_in_order(run: Run) -> None:
    done = run("doctor", "--scheduler", "processes", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {f"{one['of']} {one['check']}": one for one in json.loads(done.stdout)["findings"]}
    assert found["processes job"]["state"] == "ok"


def test_scripts_of_the_one_file_and_their_calls_have_the_package(run: Run, home: Path) -> None:
    (home / "script.py").write_text(MAP)
    done = run("script.py", "--rate", "1")
    assert done.stdout == "True True ['--rate', '1']\n", done.stderr


def test_dispatcher_client_and_workers_are_all_of_it(run: Run, home: Path) -> None:
    (home / "client.py").write_text(CLIENT)
    started = run("dispatcher", "start", "night", "--scheduler", "processes")
    assert started.returncode == 0, started.stderr
    try:
        done = run("client.py")
    finally:
        stopped = run("dispatcher", "stop", "night")
    assert done.stdout == "[3, 2, 1]\n", done.stderr
    assert stopped.returncode == 0, stopped.stderr


def test_the_one_file_stands_for_a_python(run: Run) -> None:
    code = "import sys; print(sys.flags.safe_path, sys.flags.optimize, sys.argv)"
    assert run("-P", "-O", "-c", code, "x").stdout == "True 1 ['-c', 'x']\n"
    assert run("-P", "-m", "gridengine.worker").returncode == 2


def test_unpacked_files_are_the_users_alone(run: Run, home: Path) -> None:
    assert run("--version").returncode == 0
    assert (home / ".cache" / "gridengine").stat().st_mode & 0o777 == 0o700


def test_several_first_starts_at_once_all_come_to_run(
    onefile: Path, bare: Path, tmp_path: Path
) -> None:
    several = [start(onefile, bare, tmp_path, "--version") for _ in range(3)]
    outputs = [process.communicate(timeout=120) for process in several]
    assert [process.returncode for process in several] == [0, 0, 0], outputs


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_files_unpacked_by_another_user_are_not_run(onefile: Path, bare: Path, home: Path) -> None:
    folder = home / "his"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    environment = {"HOME": str(home), "PATH": f"{bare}:/usr/bin:/bin", "PEX_ROOT": str(folder)}
    done = completed([onefile, "--version"], env=environment)
    assert done.returncode == 1
    assert "belongs to another user" in done.stderr


def test_the_one_file_runs_by_a_named_interpreter(onefile: Path, home: Path) -> None:
    done = completed(
        [sys.executable, "-E", onefile, "--version"],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.startswith("gridengine"), done.stderr
