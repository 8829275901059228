"""Processes of this machine as workers, without any."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

from gridengine.call_context import EXPORTED, KEPT, SCRATCH
from gridengine.call_context.process_resources import THREADS
from gridengine.errors import ConfigurationError, GridEngineError, WorkerNotStarted
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import Demand, decode_demand
from gridengine.resources.kinds import Cores, Token
from gridengine.schedulers import ProcessScheduler, local
from gridengine.schedulers.launcher import Handle, TryAgain, WorkerStatus
from gridengine.schedulers.local import (
    FORK_SERVER,
    LocalLauncher,
    ProcessLauncher,
    SpawnedForkServer,
    TcpProcessLauncher,
    names_of_variables,
    report_of,
    start_error,
    worker_environment,
)
from gridengine.schedulers.worker_command import interpreter_flags
from gridengine.settings.systems import SYSTEMS
from gridengine.worker.forkserver import RECORD


class Process:
    """A process that ends with this status when it is sent SIGTERM, or only when it is killed."""

    def __init__(self, pid: int, *, stubborn: bool = False) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stubborn = stubborn
        self.sent: list[int] = []

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        self.sent.append(number)
        if number == signal.SIGKILL or not self.stubborn:
            self.returncode = -number

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = 0.0) -> int:
        if self.returncode is None:
            raise subprocess.TimeoutExpired("worker", timeout)
        return self.returncode


class Launcher(LocalLauncher):
    """Starts these, or raises what is in their place."""

    leave_seconds = 0.0

    def __init__(self, *found: Process | Exception) -> None:
        super().__init__()
        self._left = list(found)

    def _start(self, demand: Demand) -> Any:
        one = self._left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    def plan(self, count: int, demand: Any = None) -> Any:
        raise NotImplementedError


def test_workers_that_began_are_told_when_the_system_takes_no_more() -> None:
    launcher = Launcher(Process(7), Process(8), TryAgain("enough"), Process(9))
    assert launcher.launch(4) == [Handle("7"), Handle("8")]


@pytest.mark.parametrize("error", [TryAgain("enough"), WorkerNotStarted("no")])
def test_the_reason_is_told_when_no_worker_begins(error: Exception) -> None:
    with pytest.raises(type(error)):
        Launcher(error).launch(2)


def test_workers_that_do_not_leave_in_time_are_killed() -> None:
    kind, stubborn = Process(7), Process(8, stubborn=True)
    launcher = Launcher(kind, stubborn)
    handles = launcher.launch(2)
    launcher.cancel([*handles, Handle("99")])
    assert (kind.sent, stubborn.sent) == (
        [signal.SIGTERM],
        [signal.SIGTERM, signal.SIGKILL],
    )
    assert launcher.poll(handles) == {}
    launcher.cancel(handles)
    launcher.close()
    assert kind.sent == [signal.SIGTERM]


@pytest.mark.parametrize("forked", [False, True])
def test_all_that_are_left_end_with_the_launcher_and_none_with_a_fork_of_its_process(
    monkeypatch: pytest.MonkeyPatch, forked: bool
) -> None:
    found = [Process(7), Process(8)]
    launcher = Launcher(*found)
    launcher.launch(2)
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + forked)
    launcher.close()
    assert [one.sent for one in found] == [[] if forked else [signal.SIGTERM]] * 2


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        (0, WorkerStatus.ENDED, "exit status 0"),
        (3, WorkerStatus.FAILED, "exit status 3"),
        (-9, WorkerStatus.FAILED, "SIGKILL"),
        (-35, WorkerStatus.FAILED, "killed by signal 35"),
    ],
)
def test_the_end_of_a_process_is_told(status: int, state: WorkerStatus, words: str) -> None:
    one = Process(7)
    one.returncode = status
    launcher = Launcher(one)
    [handle] = launcher.launch(1)
    report = launcher.poll([handle, Handle("99")])[handle]
    assert report.state is state
    assert words in report.reason


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (psutil.STATUS_SLEEPING, WorkerStatus.RUNNING),
        (psutil.STATUS_STOPPED, WorkerStatus.SUSPENDED),
        (psutil.STATUS_TRACING_STOP, WorkerStatus.SUSPENDED),
        (psutil.NoSuchProcess(7), None),
        (OSError(errno.EMFILE, "too many open files"), None),
    ],
)
def test_a_stopped_process_is_reported_and_an_unknown_state_is_not(
    seen: Any, state: WorkerStatus | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Seen:
        def __init__(self, pid: int) -> None:
            if isinstance(seen, Exception):
                raise seen

        def status(self) -> Any:
            return seen

    monkeypatch.setattr(psutil, "Process", Seen)
    report = report_of(Process(7))  # type: ignore[arg-type]
    assert (report.state if report is not None else None) is state


@pytest.mark.parametrize(
    ("number", "kind", "hint"),
    [
        (errno.EAGAIN, TryAgain, None),
        (errno.ENOMEM, TryAgain, None),
        (errno.EMFILE, WorkerNotStarted, "raise `ulimit -n`"),
        (errno.ENOENT, WorkerNotStarted, None),
    ],
)
def test_a_passing_failure_is_tried_again(
    number: int, kind: type[Exception], hint: str | None
) -> None:
    error = start_error(OSError(number, os.strerror(number)))
    assert type(error) is kind
    assert os.strerror(number) in str(error)
    if isinstance(error, GridEngineError):
        assert error.hint == hint


@pytest.mark.parametrize(
    ("in_job", "kept"), [(False, ""), (True, "MKL_NUM_THREADS=OMP_NUM_THREADS")]
)
def test_the_number_of_threads_of_a_batch_job_is_kept(
    in_job: bool, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*THREADS, *(name for system in SYSTEMS for name in system.job)):
        monkeypatch.delenv(name, raising=False)
    job = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n", "SLURM_CPUS_ON_NODE": "2"}
    for name, value in job.items() if in_job else ():
        monkeypatch.setenv(name, value)
    environment = {"OMP_NUM_THREADS": "5", "MKL_NUM_THREADS": "3", "EDITOR": "vi"}
    found = names_of_variables(environment)
    assert sorted(found[KEPT].split("=")) == kept.split("=")
    assert found[EXPORTED] == "OMP_NUM_THREADS=MKL_NUM_THREADS=EDITOR"


def test_a_worker_that_shares_no_files_is_told_its_folder() -> None:
    assert names_of_variables({}, "/there")[SCRATCH] == "/there"
    assert names_of_variables({})[SCRATCH] == ""


@pytest.mark.parametrize("held", [ZERO, Cores(2) & Token("a b")])
def test_the_command_line_tells_a_worker_its_resources(held: Resource) -> None:
    argv = TcpProcessLauncher(Path("/w.json")).plan(1, Demand(held)).request["argv"]
    assert isinstance(argv, list)
    before, told = argv[: argv.index("/w.json")], argv[argv.index("/w.json") + 1 :]
    assert before[-1] == "gridengine.worker"
    assert [decode_demand(msgspec.json.decode(one), 1.0).resources for one in told] == [
        held for _ in range(held != ZERO)
    ]


def test_a_worker_has_the_environment_without_paths_that_would_import_other_modules() -> None:
    given = {"A": "b", "PYTHONPATH": "lib:/a", "PYTHONINSPECT": "1"}
    made = worker_environment(given)
    assert made["A"] == "b"
    assert "PYTHONINSPECT" not in made
    assert made["PYTHONPATH"].split(":")[0] == "/a"
    assert given["PYTHONINSPECT"] == "1"


class Coverage:
    """In the place of coverage.py as it measures this process."""

    def __init__(self, patch: Sequence[str], concurrency: Sequence[str]) -> None:
        self.Coverage = self
        self.config = self
        self.patch, self.concurrency, self.parallel = patch, concurrency, False

    def current(self) -> Coverage:
        return self

    def serialize(self) -> str:
        return f"parallel={self.parallel}"


@pytest.mark.parametrize(
    ("patch", "concurrency", "passed_on"),
    [
        ([], ["thread"], None),
        (["_exit"], [], "parallel=True"),
        ([], ["thread", "multiprocessing"], "parallel=True"),
        (["_exit", "subprocess"], [], None),  # coverage.py has set the variable itself
    ],
)
def test_a_worker_is_measured_where_coverage_is_to_measure_forked_processes(
    monkeypatch: pytest.MonkeyPatch,
    patch: list[str],
    concurrency: list[str],
    passed_on: str | None,
) -> None:
    measuring = Coverage(patch, concurrency)
    monkeypatch.setitem(sys.modules, "coverage", measuring)
    assert worker_environment({}).get("COVERAGE_PROCESS_CONFIG") == passed_on
    assert measuring.parallel is False


pytestmark = pytest.mark.usefixtures("here")


def test_a_dry_run_of_processes_shows_their_command_line() -> None:
    (argv,) = ProcessScheduler(2).dry_run().request.values()
    assert isinstance(argv, list)
    assert argv[1:] == [
        *interpreter_flags(),
        "-P",
        "-c",
        FORK_SERVER,
        "SOCKET",
    ]


def test_a_fork_server_that_still_imports_is_out_of_reach_of_the_terminals_ctrl_c() -> None:
    started = SpawnedForkServer.start({})
    try:
        assert os.getsid(started.process.pid) == started.process.pid
    finally:
        started.end()


def test_a_fork_server_serves_though_its_agent_has_a_thousand_files_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))

    def pair_of_high_numbers() -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            return ours, socket.socket(fileno=fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 1500))

    monkeypatch.setattr(local, "_socket_pair", pair_of_high_numbers)
    started = SpawnedForkServer.start({})
    try:
        assert len(started.sock.recv(RECORD.size)) == RECORD.size  # it is ready
        started.sock.close()
        assert started.process.wait(60) == 0
    finally:
        started.end()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("changed", ["nothing", "environment", "process"])
def test_a_fork_server_that_was_started_ahead_serves_its_own_process_and_environment(
    monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    fresh, ahead = (
        SpawnedForkServer(SimpleNamespace(close=int), Process(pid), environment, os.getpid())  # type: ignore[arg-type]
        for pid, environment in ((7, {}), (8, worker_environment(os.environ)))
    )
    monkeypatch.setattr(SpawnedForkServer, "start", lambda added: fresh)
    if changed == "environment":
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
    if changed == "process":
        monkeypatch.setattr(os, "getpid", lambda: ahead.owner + 1)
    adopted: list[Any] = []
    run: Any = SimpleNamespace(adopt=lambda sock, process: adopted.append(process))
    ProcessLauncher(run, deque([ahead])).launch(1)
    assert adopted == [ahead.process if changed == "nothing" else fresh.process]
    assert ahead.process.sent == [signal.SIGKILL] * (changed == "environment")  # type: ignore[attr-defined]


def test_max_workers_is_the_number_of_calls_at_a_time() -> None:
    assert ProcessScheduler(3).slots == 3
    assert repr(ProcessScheduler(max_workers=3)) == "ProcessScheduler(max_workers=3)"


def test_as_many_calls_run_at_a_time_as_there_are_usable_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: 7)
    assert (ProcessScheduler().slots, ProcessScheduler().max_workers) == (7, 1)


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ConfigurationError), (-1, ConfigurationError), ("2", TypeError), (True, TypeError)],
)
def test_a_wrong_number_of_workers_is_named(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_workers"):
        ProcessScheduler(value)  # type: ignore[arg-type]
