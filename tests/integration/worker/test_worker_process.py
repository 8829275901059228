"""A worker as a scheduler starts it, at a real socket: how it comes, works and goes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gridengine._version import __version__
from gridengine.call_context import JOB_END
from gridengine.schedulers.worker_command import worker_command
from gridengine.wire.connection_file import Connection
from gridengine.wire.messages import VERSION, Goodbye, Hello, Results, Started, Stop
from tests.support.agent_driver import ROOT, alive, leave_a_grandchild, written
from tests.support.processes import completed
from tests.support.waiting import wait_until
from tests.support.worker_driver import WorkerDriver


def linger(path: str) -> None:
    leave_a_grandchild(path + ".grandchild")
    wait_until(written(Path(path + ".grandchild")))
    Path(path).write_text(f"{os.getpid()} {os.getppid()} {Path(path + '.grandchild').read_text()}")
    signal.pause()


def processes(path: Path) -> list[int]:
    wait_until(written(path))
    return list(map(int, path.read_text().split()))


def test_a_worker_whose_log_has_a_path_that_is_no_text_works(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    driver = WorkerDriver(folder)
    try:
        hello, _ = driver.wait_for(Hello)
        assert isinstance(hello, Hello)
        assert hello.log == f"{tmp_path}/caf\\xe9/log"
        driver.assign(print, "hello")
        driver.wait_for(Results)
    finally:
        driver.close()


@pytest.mark.parametrize("way", ["stop", "SIGTERM", "SIGKILL", "SIGUSR2"])
def test_an_ended_worker_leaves_no_process(driver: WorkerDriver, tmp_path: Path, way: str) -> None:
    driver.assign(linger, str(tmp_path / "pids"))
    driver.wait_for(Started)
    pids = processes(tmp_path / "pids")
    if way == "stop":
        driver.server.send(driver.peer, Stop())
    else:
        driver.process.send_signal(signal.Signals[way])
    if way != "SIGKILL":
        goodbye, _ = driver.wait_for(Goodbye)
        assert goodbye == Goodbye("told to stop" if way == "stop" else "terminated", [1])
    assert driver.exit_status() == (-signal.SIGKILL if way == "SIGKILL" else 0)
    wait_until(lambda: not any(map(alive, pids)))
    assert driver.log.read_text() == ""


@pytest.mark.promise
def test_a_worker_that_nobody_answers_says_where_it_tried_and_ends_its_own_job(
    tmp_path: Path,
) -> None:
    driver = WorkerDriver(tmp_path)
    connection = Connection.load(driver.path)
    driver.close()
    nobody = tmp_path / "nobody.json"
    replace(connection, lease_seconds=1.0, start_seconds=1.0).save(nobody)
    done = completed(
        worker_command(sys.executable, nobody),
        env={**os.environ, "PYTHONPATH": str(ROOT), JOB_END: f"touch '{tmp_path}/job has ended'"},
    )
    assert done.returncode == 2
    assert f"{connection.addresses[0]} (Connection refused); it tries on" in done.stderr
    assert "try: set GRIDENGINE_HOST" in done.stderr
    assert (tmp_path / "job has ended").exists()


def test_a_missing_connection_file_is_named_without_a_traceback(tmp_path: Path) -> None:
    command = worker_command(sys.executable, tmp_path / "missing")
    done = completed(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 2
    assert str(tmp_path / "missing") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_sends_its_identity(driver: WorkerDriver) -> None:
    hello, _ = driver.wait_for(Hello)
    assert isinstance(hello, Hello)
    assert (hello.protocol, hello.version, hello.run_id, hello.slots) == (
        VERSION,
        __version__,
        "run",
        1,
    )
    assert (hello.pid, hello.log) == (driver.process.pid, str(driver.log))
