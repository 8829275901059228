"""Workers as processes of this machine: started, watched and stopped, whatever they do."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gridengine.errors import ConfigurationError, WorkerNotStarted
from gridengine.schedulers import InlineScheduler, ProcessScheduler
from gridengine.schedulers.base import Handle, Report, Run, TaskState
from gridengine.schedulers.process import ProcessLauncher

MakeLauncher = Callable[[str], ProcessLauncher]


@pytest.fixture
def make_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeLauncher]:
    """A launcher whose workers are this shell script."""
    made = []
    os.mkfifo(tmp_path / "ready")

    def make(script: str) -> ProcessLauncher:
        worker = tmp_path / "worker"
        worker.write_text(f"#!/bin/bash\n{script}\n")
        worker.chmod(worker.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(worker))
        made.append(ProcessLauncher(Run("test", tmp_path, tmp_path / "connection")))
        return made[-1]

    yield make
    for launcher in made:
        launcher.close()


READY = 'echo > "$(dirname "$0")/ready"'
"""Shell words that say to `wait_until_ready` that what stands before them is done."""


def wait_until_ready(folder: Path) -> None:
    (folder / "ready").read_text()


def wait_for(handle: Handle) -> int:
    """Wait for the end of a worker without reaping it."""
    ended = os.waitid(os.P_PID, int(handle.id), os.WEXITED | os.WNOWAIT)
    assert ended is not None
    return ended.si_status


def report_of(launcher: ProcessLauncher, handle: Handle) -> Report:
    return launcher.poll([handle])[handle]


def test_a_worker_is_started_with_the_connection_file_in_safe_mode(make_launcher: MakeLauncher, tmp_path: Path) -> None:
    launcher = make_launcher('echo "$*" > "$(dirname "$0")/arguments"')
    (handle,) = launcher.launch(1)
    wait_for(handle)
    assert (tmp_path / "arguments").read_text() == f"-P -m gridengine.worker {tmp_path}/connection\n"


def test_a_worker_that_runs_is_running(make_launcher: MakeLauncher) -> None:
    launcher = make_launcher("exec sleep 60")
    (handle,) = launcher.launch(1)
    assert report_of(launcher, handle) == Report(TaskState.RUNNING)


@pytest.mark.parametrize(
    ("script", "state", "reason"),
    [
        ("exit 0", TaskState.ENDED, "exit status 0"),
        ("exit 3", TaskState.FAILED, "exit status 3"),
        ("kill -SEGV $$", TaskState.FAILED, "killed by SIGSEGV"),
    ],
)
def test_how_a_worker_ended_is_told(make_launcher: MakeLauncher, script: str, state: TaskState, reason: str) -> None:
    launcher = make_launcher(script)
    (handle,) = launcher.launch(1)
    wait_for(handle)
    report = report_of(launcher, handle)
    assert (report.state, report.reason) == (state, reason)
    assert isinstance(report.error, WorkerNotStarted)
    assert reason in str(report.error)


def test_a_stopped_worker_is_suspended_and_not_gone(make_launcher: MakeLauncher) -> None:
    launcher = make_launcher("kill -STOP $$; exec sleep 60")
    (handle,) = launcher.launch(1)
    os.waitid(os.P_PID, int(handle.id), os.WSTOPPED | os.WNOWAIT)
    assert report_of(launcher, handle).state is TaskState.SUSPENDED


def test_an_interrupt_at_the_terminal_does_not_reach_a_worker(make_launcher: MakeLauncher) -> None:
    launcher = make_launcher("exec sleep 60")
    (handle,) = launcher.launch(1)
    assert os.getsid(int(handle.id)) == int(handle.id)


def test_a_worker_s_standard_input_ends_with_its_launcher(make_launcher: MakeLauncher, tmp_path: Path) -> None:
    launcher = make_launcher(f'trap \'\' TERM; {READY}; read line; echo left > "$(dirname "$0")/left"')
    launcher.launch(1)
    wait_until_ready(tmp_path)
    launcher.close()
    assert (tmp_path / "left").read_text() == "left\n"


def test_a_worker_that_takes_no_sigterm_is_ended_all_the_same(make_launcher: MakeLauncher, tmp_path: Path) -> None:
    launcher = make_launcher(f"trap '' TERM; {READY}; exec sleep 60")
    (handle,) = launcher.launch(1)
    wait_until_ready(tmp_path)
    launcher.cancel([handle])
    assert not psutil.pid_exists(int(handle.id))


def test_a_stopped_worker_is_ended_all_the_same(make_launcher: MakeLauncher) -> None:
    launcher = make_launcher("kill -STOP $$; exec sleep 60")
    (handle,) = launcher.launch(1)
    os.waitid(os.P_PID, int(handle.id), os.WSTOPPED | os.WNOWAIT)
    launcher.cancel([handle])
    assert not psutil.pid_exists(int(handle.id))


def test_to_cancel_a_worker_that_has_ended_is_no_error(make_launcher: MakeLauncher) -> None:
    launcher = make_launcher("exit 0")
    (handle,) = launcher.launch(1)
    wait_for(handle)
    launcher.cancel([handle])
    assert launcher.poll([handle]) == {}


def test_close_may_be_called_twice(make_launcher: MakeLauncher) -> None:
    launcher = make_launcher("exec sleep 60")
    launcher.launch(2)
    launcher.close()
    launcher.close()


def test_a_fork_does_not_end_its_parent_s_workers(make_launcher: MakeLauncher) -> None:
    launcher = make_launcher("exec sleep 60")
    (handle,) = launcher.launch(1)
    pid = os.fork()
    if pid == 0:
        launcher.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert report_of(launcher, handle).state is TaskState.RUNNING


def test_an_interpreter_that_cannot_be_started_is_an_error_that_names_it(make_launcher: MakeLauncher, tmp_path: Path) -> None:
    launcher = make_launcher("exit 0")
    (tmp_path / "worker").unlink()
    with pytest.raises(WorkerNotStarted, match=str(tmp_path / "worker")):
        launcher.launch(1)


@pytest.mark.parametrize("closed", [(0,), (1, 2), (0, 1, 2)])
def test_workers_start_where_standard_streams_are_closed(tmp_path: Path, closed: tuple[int, ...]) -> None:
    script = f"""
import os, sys
from pathlib import Path
from gridengine.schedulers.base import Run
from gridengine.schedulers.process import ProcessLauncher
for descriptor in {closed}:
    os.close(descriptor)
sys.stdout = sys.stderr = None
sys.executable = "/bin/true"
launcher = ProcessLauncher(Run("test", Path("."), Path("connection")))
(handle,) = launcher.launch(1)
ended = os.waitid(os.P_PID, int(handle.id), os.WEXITED | os.WNOWAIT)
os._exit(40 + ended.si_status)
"""
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=checkout_in_path(), timeout=60, check=False).returncode == 40


def checkout_in_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def test_relative_folders_of_the_python_path_are_not_passed_on(
    make_launcher: MakeLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"here{os.pathsep}{tmp_path}{os.pathsep}")
    launcher = make_launcher('printenv PYTHONPATH > "$(dirname "$0")/path"')
    (handle,) = launcher.launch(1)
    wait_for(handle)
    entries = (tmp_path / "path").read_text().strip().split(os.pathsep)
    assert entries[0] == str(tmp_path)
    assert all(Path(entry).is_absolute() for entry in entries)


def test_as_many_calls_at_a_time_as_there_are_processors_to_use() -> None:
    assert ProcessScheduler().slots == len(os.sched_getaffinity(0))
    assert ProcessScheduler().max_workers == 1


def test_max_workers_is_the_number_of_calls_at_a_time() -> None:
    assert ProcessScheduler(3).slots == 3
    assert repr(ProcessScheduler(max_workers=3)) == "ProcessScheduler(max_workers=3)"


@pytest.mark.parametrize(("value", "error"), [(0, ConfigurationError), (-1, ConfigurationError), ("2", TypeError), (True, TypeError)])
def test_a_wrong_number_of_workers_is_named(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_workers"):
        ProcessScheduler(value)  # type: ignore[arg-type]


def test_an_inline_scheduler_has_no_launcher(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        InlineScheduler().launcher(Run("test", tmp_path, tmp_path / "connection"))


def test_a_signal_without_a_name_is_told_by_its_number(make_launcher: MakeLauncher) -> None:
    launcher = make_launcher(f"kill -{signal.SIGRTMIN + 1} $$")
    (handle,) = launcher.launch(1)
    wait_for(handle)
    assert report_of(launcher, handle).reason == f"killed by signal {signal.SIGRTMIN + 1}"
