"""Workers of this machine: their agents are in this process, their fork servers and runners below
it. How they come, last and go.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import gridengine
from gridengine.dispatcher.worker_links import LocalWorkers
from gridengine.errors import ConfigurationError, WorkerNotStarted
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.schedulers.local import FORK_SERVER
from gridengine.schedulers.worker_command import interpreter_flags
from gridengine.settings.values import settings
from gridengine.worker.forkserver import Exited, Forked, ForkServer, RunnerDescriptors
from tests.support.agent_driver import PATIENCE, ROOT, alive, leave_a_grandchild, written
from tests.support.processes import completed
from tests.support.waiting import wait_until


@pytest.fixture
def scheduler() -> Iterator[gridengine.ProcessScheduler]:
    with gridengine.ProcessScheduler(1) as scheduler:
        yield scheduler


def fork_server(_: object = None) -> int:
    return os.getppid()


def linger(path: str) -> None:
    """Leave a process that has got away, write down who is here, and stay."""
    leave_a_grandchild(path + ".away")
    wait_until(written(Path(path + ".away")))
    Path(path + ".new").write_text(
        f"{os.getppid()} {os.getpid()} {Path(path + '.away').read_text()}"
    )
    Path(path + ".new").rename(path)
    signal.pause()


def processes(path: Path) -> list[int]:
    """Return the fork server, the runner and the process that has got away, once they are there."""
    wait_until(written(path))
    return list(map(int, path.read_text().split()))


# ---------------------------------------------------------------- nothing to find

LOOK = """
import json, os, psutil, gridengine
with gridengine.ProcessScheduler(2) as scheduler:
    values = gridengine.map(abs, [-1, -2], scheduler=scheduler)
    everybody = [psutil.Process(), *psutil.Process().children(recursive=True)]
    connections = [one for each in everybody for one in each.net_connections("all")]
    names = [[*folders, *files] for _, folders, files in os.walk(os.environ["TMPDIR"])]
    print(json.dumps({
        "values": values,
        "processes": len(everybody),
        "addresses": [str(one.laddr) for one in connections if one.laddr],
        "command lines": [word for each in everybody[1:] for word in each.cmdline()[1:]],
        "files": sum(names, []),
    }))
"""


def test_local_work_has_no_address_and_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    places = dict.fromkeys(
        ["TMPDIR", "XDG_RUNTIME_DIR", "GRIDENGINE_RUN_DIRECTORY", "HOME"], str(folder)
    )
    environment = {**os.environ, **places, "PYTHONPATH": str(ROOT)}
    done = completed([sys.executable, "-c", LOOK], env=environment, cwd="/")
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    assert seen["values"] == [1, 2]
    assert seen["processes"] >= 3
    assert seen["addresses"] == []
    assert {word for word in seen["command lines"] if not word.isdigit()} == {
        *interpreter_flags(),
        "-P",
        "-c",
        FORK_SERVER,
    }
    assert seen["files"] == []
    assert list(folder.iterdir()) == []


# ---------------------------------------------------------------- coming


def test_the_error_of_a_fork_server_that_cannot_start_has_its_exit_status(
    scheduler: gridengine.ProcessScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(WorkerNotStarted, match="exit status 3"):
        gridengine.map(abs, [-1], scheduler=scheduler)


def test_a_fork_server_that_comes_when_all_is_closed_is_turned_away() -> None:
    workers = LocalWorkers(
        gridengine.ProcessScheduler(1), run_id="run", settings=settings(), wake=lambda: None
    )
    ours, theirs = socket.socketpair()
    workers.close()
    with theirs, subprocess.Popen(["true"]) as process:
        workers.adopt(ours, process)
        assert theirs.recv(100) == b""


@pytest.mark.promise
def test_too_few_open_files_for_the_runners_are_named_with_the_limit() -> None:
    script = """
import resource, gridengine
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
gridengine.map(abs, [1], scheduler=gridengine.ProcessScheduler(100))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = completed([sys.executable, "-c", script], env=environment)
    assert ConfigurationError.__name__ in done.stderr
    assert "no more than 200 (the hard limit, `ulimit -Hn`)" in done.stderr


# ---------------------------------------------------------------- lasting


@pytest.mark.promise
def test_when_the_fork_server_is_killed_its_calls_are_run_on_a_new_one(
    scheduler: gridengine.ProcessScheduler, tmp_path: Path
) -> None:
    path = tmp_path / "pids"

    def call(x: int) -> tuple[int, int]:
        if not path.exists():
            linger(str(path))
        return x, os.getppid()

    with gridengine.imap(call, [1], scheduler=scheduler) as results:
        first, its_runner, away = processes(path)
        os.kill(first, signal.SIGKILL)
        ((x, second),) = results
    wait_until(lambda: not alive(its_runner))
    with contextlib.suppress(ProcessLookupError):  # without a session of its own it has ended
        os.kill(away, signal.SIGKILL)  # nobody is left who knows of it
    assert x == 1
    assert second != first


@pytest.mark.promise
def test_a_stopped_fork_server_is_waited_for_and_goes_on(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    [(first, runner)] = gridengine.map(
        lambda _: (os.getppid(), os.getpid()), [0], scheduler=scheduler
    )
    os.kill(first, signal.SIGSTOP)
    os.kill(runner, signal.SIGKILL)  # a new one can be forked only when the fork server goes on
    job = gridengine.Job(target=fork_server, scheduler=scheduler)
    job.start()
    wait_until(lambda: state_of_the_worker(scheduler) is WorkerStatus.SUSPENDED)
    assert job.is_alive()
    os.kill(first, signal.SIGCONT)
    assert job.result(PATIENCE) == first


def state_of_the_worker(scheduler: gridengine.ProcessScheduler) -> WorkerStatus | None:
    [worker] = scheduler._shared._core.state.workers.values()  # type: ignore[union-attr]
    return None if worker.launch is None else worker.launch.state


# ---------------------------------------------------------------- going


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)


@pytest.mark.parametrize("before", [lambda pid: None, stop], ids=["running", "stopped"])
def test_close_ends_a_fork_server_and_all_below_it(
    before: Callable[[int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gridengine.worker.forkserver._LEAVE_SECONDS", 1e6
    )  # it has to end: that nobody waits for it any more is not enough
    path = tmp_path / "pids"
    with gridengine.ProcessScheduler(1) as scheduler:
        job = gridengine.Job(target=linger, args=(str(path),), daemon=True, scheduler=scheduler)
        job.start()
        pids = processes(path)
        before(pids[0])
    assert not any(map(alive, pids))


def test_nothing_is_left_of_a_fork_server_that_was_idle_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gridengine.ProcessScheduler, "idle_seconds", 0.0)
    with gridengine.ProcessScheduler(1) as scheduler:
        seen = set()
        for _ in range(3):
            [pid] = gridengine.map(fork_server, [0], scheduler=scheduler)
            wait_until(lambda: not alive(pid))  # noqa: B023
            seen.add(pid)
        assert len(seen) == 3
        wait_until(lambda: not any(map(psutil.pid_exists, seen)))  # no zombie either


DISPATCHER = """
import os, signal, sys
import gridengine
from tests.integration.worker.test_local_workers import linger

scheduler = gridengine.ProcessScheduler(1)
job = gridengine.Job(target=linger, args=(sys.argv[1],), scheduler=scheduler)
job.start()
next_line = sys.stdin.readline()  # until the call has begun
child = os.fork() if sys.argv[2] == "forked" else 0
if child == 0 and sys.argv[2] == "forked":
    signal.pause()
print(child, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("way", ["alone", "forked"])
def test_when_the_dispatcher_is_killed_its_fork_server_ends_and_all_below_it(
    way: str, tmp_path: Path
) -> None:
    """Even when a process that was forked from the dispatcher lives on, and with it the socket."""
    path = tmp_path / "pids"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", DISPATCHER, str(path), way],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as dispatcher:
        assert dispatcher.stdin is not None
        assert dispatcher.stdout is not None
        pids = processes(path)
        dispatcher.stdin.write("\n")
        dispatcher.stdin.flush()
        child = int(dispatcher.stdout.readline())
        dispatcher.kill()
        try:
            wait_until(lambda: not any(map(alive, pids)))
            assert alive(child) == (way == "forked")
        finally:
            if child:
                os.kill(child, signal.SIGKILL)


def announce(x: int) -> int:
    """Signal each process of this worker as a batch system would before a limit."""
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
        for pid in (os.getppid(), os.getpid()):
            os.kill(pid, number)
    return x


def test_signals_that_announce_a_limit_end_no_call(scheduler: gridengine.ProcessScheduler) -> None:
    before = gridengine.map(fork_server, [0], scheduler=scheduler)
    assert gridengine.map(announce, range(3), scheduler=scheduler, retries=0) == [0, 1, 2]
    assert gridengine.map(fork_server, [0], scheduler=scheduler) == before


RUNNERS = 1000


def test_a_thousand_commands_are_taken_while_nobody_reads_their_results() -> None:
    fork_server = ForkServer.fork_off(lambda ends: os._exit(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    ends = RunnerDescriptors(channel=nothing, stdout=nothing, stderr=nothing, words=nothing)
    commanding = threading.Thread(
        target=lambda: [fork_server.fork(number, ends) for number in range(RUNNERS)], daemon=True
    )
    commanding.start()
    commanding.join(200)
    assert not commanding.is_alive(), "it waits for a fork server that waits for it"
    events: list[object] = []
    while sum(isinstance(event, Exited) for event in events) < RUNNERS:
        assert select.select([fork_server], [], [], 200)[0]
        events += fork_server.receive()
    assert [event.runner for event in events if isinstance(event, Forked)] == list(range(RUNNERS))
    assert {event.runner for event in events if isinstance(event, Exited)} == set(range(RUNNERS))
    fork_server.close()
    os.close(nothing)
