"""Fork servers as processes of this machine: started, handed over, watched and stopped, whatever
they do.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import gridengine
from gridengine.schedulers import ProcessScheduler
from gridengine.schedulers.launcher import Handle, LaunchContext
from gridengine.schedulers.local import FORK_SERVER, ProcessLauncher

MakeLauncher = Callable[[str], ProcessLauncher]
Adopted = list[tuple[socket.socket, "subprocess.Popen[bytes]"]]


@pytest.fixture
def adopted() -> Iterator[Adopted]:
    """What a launcher has handed over."""
    ends: Adopted = []
    yield ends
    for end, _ in ends:
        end.close()


@pytest.fixture
def make_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adopted: Adopted
) -> Iterator[MakeLauncher]:
    """A launcher whose workers are this shell script."""
    made = []
    os.mkfifo(tmp_path / "ready")

    def make(script: str) -> ProcessLauncher:
        worker = tmp_path / "worker"
        worker.write_text(f"#!/bin/bash\n{script}\n")
        worker.chmod(worker.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(worker))
        made.append(
            ProcessLauncher(
                LaunchContext("test", Path(), Path(), lambda *pair: adopted.append(pair))
            )
        )
        return made[-1]

    yield make
    for _, process in adopted:
        process.kill()
    for launcher in made:
        launcher.close()


PATIENCE = 120
READY = 'echo > "$(dirname "$0")/ready"'
"""Shell words that say to `wait_until_ready` that what stands before them is done."""


def wait_until_ready(folder: Path) -> None:
    (folder / "ready").read_text()


def test_the_other_end_of_a_worker_s_socket_is_handed_over(
    make_launcher: MakeLauncher, adopted: Adopted
) -> None:
    launcher = make_launcher('for descriptor; do :; done; echo "it is $$" >&$descriptor')
    (handle,) = launcher.launch(1)
    [(end, process)] = adopted
    assert end.recv(100) == f"it is {handle.id}\n".encode()
    assert end.recv(100) == b""
    assert str(process.pid) == handle.id
    assert process.wait(PATIENCE) == 0


def test_a_worker_holds_no_other_worker_s_socket(
    make_launcher: MakeLauncher, adopted: Adopted
) -> None:
    launcher = make_launcher("exec sleep 60")
    first, _ = launcher.launch(2)
    launcher.cancel([first])
    [end] = [end for end, process in adopted if str(process.pid) == first.id]
    assert end.recv(100) == b""  # nobody else held it open


def test_a_worker_that_ends_when_its_socket_does_is_given_the_time(
    make_launcher: MakeLauncher, adopted: Adopted, tmp_path: Path
) -> None:
    launcher = make_launcher(f'{READY}; read line <&$4; echo left > "$(dirname "$0")/left"')
    launcher.launch(1)
    wait_until_ready(tmp_path)
    adopted[0][0].close()
    launcher.close()
    assert (tmp_path / "left").read_text() == "left\n"


def test_a_stopped_worker_is_ended_all_the_same(make_launcher: MakeLauncher) -> None:
    launcher = make_launcher("kill -STOP $$; exec sleep 60")
    (handle,) = launcher.launch(1)
    os.waitid(os.P_PID, int(handle.id), os.WSTOPPED | os.WNOWAIT)
    launcher.cancel([handle])
    assert not psutil.pid_exists(int(handle.id))


@pytest.mark.parametrize("closed", [(0,), (1, 2), (0, 1, 2)])
def test_workers_start_where_standard_streams_are_closed(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    script = f"""
import os, sys
from pathlib import Path
from gridengine.schedulers.launcher import LaunchContext
from gridengine.schedulers.local import ProcessLauncher
for descriptor in {closed}:
    os.close(descriptor)
sys.stdout = sys.stderr = None
adopted = []
run = LaunchContext("test", Path(), Path(), lambda *pair: adopted.append(pair))
launcher = ProcessLauncher(run)
launcher.launch(1)
[(end, process)] = adopted
ready = bool(end.recv(1000))
end.close()
os._exit(40 + ready + 2 * process.wait(60))
"""
    assert (
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env=checkout_in_path(),
            timeout=150,
            check=False,
        ).returncode
        == 41
    )


def checkout_in_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


def fork_servers() -> set[int]:
    found = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended
            if FORK_SERVER in child.cmdline():
                found.add(child.pid)
    return found


def test_a_fork_server_that_was_started_ahead_and_never_launched_ends_with_the_scheduler() -> None:
    before = fork_servers()
    scheduler = ProcessScheduler(1)
    scheduler._prepare()
    scheduler.close()
    assert fork_servers() <= before
    scheduler._prepare()
    assert fork_servers() <= before


def test_a_fork_server_that_was_started_ahead_ends_when_its_scheduler_is_collected() -> None:
    scheduler = ProcessScheduler(1)
    scheduler._prepare()
    process = scheduler._ahead[0].process
    del scheduler
    gc.collect()
    assert process.returncode == -signal.SIGKILL


def test_a_map_that_fails_before_its_first_call_leaves_no_process() -> None:
    before = fork_servers()
    with ProcessScheduler(1) as scheduler, pytest.raises(TypeError):
        gridengine.map(len, 5, scheduler=scheduler)  # type: ignore[arg-type]
    assert fork_servers() <= before


def test_a_default_timeout_of_sockets_is_for_the_users_own() -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.05)
    try:
        with ProcessScheduler(2) as scheduler:
            assert gridengine.map(slowly, range(4), scheduler=scheduler) == [0, 1, 2, 3]
            assert gridengine.Executor(scheduler=scheduler).submit(slowly, 3).result(120) == 3
    finally:
        socket.setdefaulttimeout(before)


def slowly(x: int) -> int:
    time.sleep(0.2)
    return x


def wait_for(handle: Handle) -> int:
    """Wait for the end of a worker without reaping it."""
    ended = os.waitid(os.P_PID, int(handle.id), os.WEXITED | os.WNOWAIT)
    assert ended is not None
    return ended.si_status


def test_a_worker_reads_nothing_from_standard_input(make_launcher: MakeLauncher) -> None:
    launcher = make_launcher("read line && exit 1; exit 0")
    (handle,) = launcher.launch(1)
    assert wait_for(handle) == 0
