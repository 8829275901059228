"""Workers that cannot reach the dispatcher: they exchange files with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import gridengine
from gridengine.schedulers.launcher import LaunchContext, Launcher
from gridengine.settings.values import settings
from tests.support.agent_driver import ROOT
from tests.support.tcp_scheduler import FilesScheduler, TcpLauncher
from tests.support.waiting import wait_until

LARGE = 30_000_000
LEASE_SECONDS = 10.0


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of run directories."""
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path / "runs"))
    settings.cache_clear()
    yield tmp_path / "runs"
    settings.cache_clear()


@pytest.fixture
def scheduler(runs: Path) -> Iterator[FilesScheduler]:
    with FilesScheduler(2) as made:
        yield made


def square(number: int) -> int:
    return number * number


def squares_of_squares(number: int) -> list[int]:
    return gridengine.map(square, range(number))


def fail(number: int) -> None:
    raise ValueError(number)


def kill_runner(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def echo(data: bytes) -> bytes:
    return data


def interfaces_and_why_no_connection(port: int) -> tuple[list[str], str]:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError as error:
        return [name for _, name in socket.if_nameindex()], str(error)
    return [name for _, name in socket.if_nameindex()], ""


class Unreachable(FilesScheduler):
    """Its workers have no network at all."""

    def launcher(self, run: LaunchContext) -> Launcher:
        launcher = TcpLauncher(run)
        launcher._command = ["unshare", "--net", *launcher._command]
        return launcher


@pytest.mark.promise
def test_workers_without_a_network_run_calls(runs: Path) -> None:
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        pytest.skip("only root may start processes without a network")
    with socket.create_server(("127.0.0.1", 0)) as listener, Unreachable(2) as scheduler:
        [(interfaces, why)] = gridengine.map(
            interfaces_and_why_no_connection, [listener.getsockname()[1]], scheduler=scheduler
        )
        assert gridengine.map(square, range(1000), scheduler=scheduler) == [
            number * number for number in range(1000)
        ]
        sockets = psutil.Process().net_connections("tcp")
        assert [one.laddr[1] for one in sockets] == [listener.getsockname()[1]]
    assert interfaces == ["lo"]
    assert why, "a worker has reached this machine"


def test_values_errors_and_nested_calls_come_back(scheduler: FilesScheduler) -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        nested = executor.submit(squares_of_squares, 5)
        failed = executor.submit(fail, 7)
        crashed = executor.submit(kill_runner, 1)
        large = executor.submit(echo, bytes(LARGE))
        assert nested.result() == [0, 1, 4, 9, 16]
        with pytest.raises(ValueError, match="7"):
            failed.result()
        with pytest.raises(gridengine.WorkerCrashed):
            crashed.result()
        assert large.result() == bytes(LARGE)


def test_nothing_is_left_of_a_run(runs: Path) -> None:
    with FilesScheduler(2) as scheduler:
        assert gridengine.map(square, [3], scheduler=scheduler) == [9]
        assert list(runs.glob("*/exchange/*/"))
    assert list(runs.glob("*/*")) == []


SCRIPT = """
import gridengine, os, time
from pathlib import Path
from tests.support.tcp_scheduler import FilesScheduler

def wait(folder):
    Path(folder, str(os.getpid())).touch()
    Path(folder, str(os.getppid())).touch()
    time.sleep(1000)

if __name__ == "__main__":
    with FilesScheduler(1) as scheduler:
        gridengine.map(wait, [{folder!r}], scheduler=scheduler)
"""


def test_workers_end_when_their_dispatcher_is_killed(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    (tmp_path / "script.py").write_text(SCRIPT.format(folder=str(tmp_path / "pids")))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "GRIDENGINE_RUN_DIRECTORY": str(tmp_path / "runs"),
        "GRIDENGINE_LEASE_SECONDS": str(LEASE_SECONDS),
    }
    script = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], env=environment)

    def pids() -> list[int]:
        return [int(one.name) for one in (tmp_path / "pids").iterdir()]

    try:
        wait_until(lambda: len(pids()) == 2)
    finally:
        script.kill()
        script.wait()
    wait_until(lambda: not any(map(psutil.pid_exists, pids())))
