"""Workers that cannot reach the dispatcher: they exchange files with it."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import gridengine
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.schedulers.launcher import LaunchContext, Launcher
from gridengine.settings.values import settings
from tests.support.agent_driver import ROOT
from tests.support.small_disk import filled, small_disk
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


def wait_for(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.01)
    return path


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


def test_output_and_pushed_values_of_jobs_arrive_while_they_run(
    scheduler: FilesScheduler, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def talk(path: str) -> str:
        print("it begins", flush=True)
        return wait_for(path)

    job = gridengine.Job(target=talk, args=(str(tmp_path / "go"),), scheduler=scheduler)
    job.start()
    printed = ""

    def is_printed() -> bool:
        nonlocal printed
        printed += capfd.readouterr().out
        return "it begins" in printed

    wait_until(is_printed)
    (tmp_path / "go").touch()
    job.join()
    assert job.exitcode == 0


def test_calls_are_cancelled(scheduler: FilesScheduler, tmp_path: Path) -> None:
    def note_and_wait(path: str) -> None:
        Path(path).write_text(str(os.getpid()))
        wait_for(path + ".never")

    job = gridengine.Job(target=note_and_wait, args=(str(tmp_path / "pid"),), scheduler=scheduler)
    job.start()
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    job.terminate()
    job.join()
    wait_until(lambda: not psutil.pid_exists(pid))


def test_a_worker_that_is_killed_loses_no_call(scheduler: FilesScheduler, tmp_path: Path) -> None:
    def kill_worker_once(path: str) -> int:
        if not Path(path).exists():
            Path(path).touch()
            agent = psutil.Process().parent().parent()
            assert agent is not None
            agent.kill()
            wait_for(path + ".never")
        return 7

    with gridengine.Executor(scheduler=scheduler, retries=2) as executor:
        assert executor.submit(kill_worker_once, str(tmp_path / "killed")).result() == 7


def test_nothing_is_left_of_a_run(runs: Path) -> None:
    with FilesScheduler(2) as scheduler:
        assert gridengine.map(square, [3], scheduler=scheduler) == [9]
        assert list(runs.glob("*/exchange/*/"))
    assert list(runs.glob("*/*")) == []


def test_a_full_disk_delays_calls_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", size="16m") as disk:
        monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(disk / "runs"))
        settings.cache_clear()
        with FilesScheduler(2) as scheduler, gridengine.Executor(scheduler=scheduler) as executor:
            assert executor.submit(square, 2).result() == 4
            with caplog.at_level(logging.WARNING, "gridengine"), filled(disk):
                coming = executor.submit(echo, bytes(3_000_000))
                wait_until(lambda: "No space left on device" in caplog.text)
                assert not coming.done()
            assert coming.result() == bytes(3_000_000)
            assert "possible again" in caplog.text
    settings.cache_clear()


def test_a_removed_folder_of_a_run_is_an_error(
    runs: Path, scheduler: FilesScheduler, tmp_path: Path
) -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        assert executor.submit(square, 2).result() == 4
        coming = executor.submit(wait_for, str(tmp_path / "never"))
        [exchange] = runs.glob("*/exchange")
        shutil.rmtree(exchange)
        with pytest.raises(ClusterError, match="somebody has removed"):
            coming.result()


def test_a_lease_that_is_too_short_for_files_is_refused(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDENGINE_LEASE_SECONDS", "3")
    settings.cache_clear()
    with (
        FilesScheduler(1) as scheduler,
        pytest.raises(ConfigurationError, match="lease_seconds=3 is too short"),
    ):
        gridengine.map(square, [1], scheduler=scheduler)


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
