"""`gridengine up`, `worker` and `drain`: workers that are started, and those that leave a host."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import up_worker_drain
from gridengine.cli.main import main
from gridengine.cli.up_worker_drain import ExtraWorkers, run_all
from gridengine.dispatcher.standalone import background
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, StartOptions
from gridengine.dispatcher.watch_messages import DRAIN, WatchAnswer
from gridengine.errors import ConfigurationError, SchedulerUnavailable, SubmissionRefused
from gridengine.journal.lock_file import Holder
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.kinds import Cores, GPUs, Memory, Token
from gridengine.schedulers import ProcessScheduler, SlurmScheduler
from gridengine.schedulers.detect import usable_cores
from gridengine.schedulers.launcher import (
    Handle,
    LaunchContext,
    Launcher,
    LaunchPlan,
    Report,
    TryAgain,
    WorkerStatus,
)
from gridengine.status.rows import Status
from gridengine.wire.connection_file import write_private
from tests.support.watched import WHO, FakeWatched, Machine, save_connection, silent

QUEUED, RUNNING, ENDED, FAILED = (
    Report(WorkerStatus.QUEUED),
    Report(WorkerStatus.RUNNING),
    Report(WorkerStatus.ENDED),
    Report(WorkerStatus.FAILED, "killed by SIGKILL"),
)


class ScriptedLauncher(Launcher):
    """Launches at most so many workers at a time, and reports of each what a test says in turn."""

    def __init__(self, batches: Sequence[int], reports: Mapping[str, Sequence[Report]]) -> None:
        self.batches = list(batches)
        self.reports = {name: list(told) for name, told in reports.items()}
        self.names = iter(reports)

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        batch = self.batches.pop(0)
        if not batch:
            raise TryAgain("the master is away")
        return [Handle(next(self.names), "/runs/a.log") for _ in range(min(batch, count))]

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        return {handle: self.reports[handle.id].pop(0) for handle in handles}

    def cancel(self, handles: Sequence[Handle]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _no_pauses(configure: Callable[..., None]) -> None:
    configure(poll_seconds=0.001)


def test_each_change_of_a_worker_is_said_once() -> None:
    lines: list[str] = []
    launcher = ScriptedLauncher([1], {"7": [QUEUED, QUEUED, RUNNING, RUNNING, ENDED]})
    workers = ExtraWorkers(launcher, ANY, lines.append)
    run_all([(workers, 1)])
    assert lines == [
        "1 worker asked for: 7",
        "worker 7 queued",
        "worker 7 running",
        "worker 7 ended",
    ]
    assert workers.failed == 0


def test_a_worker_that_failed_is_counted_and_its_log_named() -> None:
    lines: list[str] = []
    launcher = ScriptedLauncher([2], {"7": [FAILED], "8": [ENDED]})
    workers = ExtraWorkers(launcher, ANY, lines.append)
    run_all([(workers, 2)])
    assert workers.failed == 1
    at = lines.index("worker 7 failed: killed by SIGKILL")
    assert lines[at + 1] == "  its log: /runs/a.log"


def test_workers_that_the_batch_system_does_not_take_now_are_asked_for_again() -> None:
    lines: list[str] = []
    launcher = ScriptedLauncher([1, 0, 1], {"7": [RUNNING, RUNNING, ENDED], "8": [ENDED]})
    run_all([(ExtraWorkers(launcher, ANY, lines.append), 2)])
    assert "no workers for now: the master is away" in lines
    assert [line for line in lines if "asked for" in line] == [
        "1 worker asked for: 7",
        "1 worker asked for: 8",
    ]


def test_a_refusal_is_the_error() -> None:
    class Refusing(ScriptedLauncher):
        def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
            raise SubmissionRefused("unknown queue")

    with pytest.raises(SubmissionRefused, match="unknown queue"):
        run_all([(ExtraWorkers(Refusing([], {}), ANY, print), 1)])


@pytest.mark.parametrize("slots", [1, 2, 1000])
def test_there_are_as_many_workers_as_use_all_processors_that_a_batch_job_has(
    slots: int, tmp_path: Path
) -> None:
    save_connection(tmp_path, slots=slots)
    file, cores = tmp_path / "connection.json", usable_cores()
    assert up_worker_drain.default_count(ProcessScheduler(1), file) == max(1, cores // slots)
    assert up_worker_drain.default_count(ProcessScheduler(1), tmp_path / "not there") == cores


@pytest.fixture
def address() -> Iterator[str]:
    """The address of somebody who accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


NOBODY = "tcp://127.0.0.1:1"
"""An address at which nobody listens."""


@pytest.fixture
def runs(tmp_path: Path, address: str, configure: Callable[..., None]) -> list[Path]:
    """The folders of four runs, the last begun last: one is under way, one has ended in order, one
    was killed, and one is of another version.
    """
    configure(run_directory=tmp_path)
    folders = [tmp_path / f"20261123-0930{n:02}-node7-{n}-0a1b2c" for n in range(4)]
    for folder in folders:
        folder.mkdir()
    save_connection(folders[0], NOBODY, address)
    save_connection(folders[2], NOBODY)
    write_private(folders[3] / "connection.json", b"{}")
    return folders


def test_when_none_is_named_the_run_that_is_under_way_is_meant(runs: list[Path]) -> None:
    assert up_worker_drain.connection_files([], print) == [runs[0] / "connection.json"]


def test_runs_under_way_are_meant_and_the_others_are_said_to_be_over(
    runs: list[Path], address: str
) -> None:
    later = runs[0].parent / "20261124-093000-node7-9-0a1b2c"
    later.mkdir()
    save_connection(later, address)
    lines: list[str] = []
    found = up_worker_drain.connection_files([str(one) for one in (*runs, later)], lines.append)
    assert found == [runs[0] / "connection.json", later / "connection.json"]
    assert lines == [
        f"left out: {runs[1]} has no connection.json: that run has ended",
        f"{runs[2]} is left out: its dispatcher cannot be reached from here",
        f"{runs[3]} is left out: its dispatcher cannot be reached from here",
    ]


def test_workers_of_several_runs_are_waited_for_together() -> None:
    lines: list[str] = []
    first = ScriptedLauncher([1], {"7": [RUNNING, ENDED]})
    second = ScriptedLauncher([0, 1], {"8": [RUNNING, FAILED]})
    groups = [ExtraWorkers(launcher, ANY, lines.append) for launcher in (first, second)]
    up_worker_drain.run_all([(workers, 1) for workers in groups])
    assert lines.index("worker 7 running") < lines.index("worker 8 running")
    assert lines[-2:] == ["worker 8 failed: killed by SIGKILL", "  its log: /runs/a.log"]
    assert [workers.failed for workers in groups] == [0, 1]


def test_a_run_that_has_ended_is_said_to_have(runs: list[Path]) -> None:
    with pytest.raises(ConfigurationError, match="that run has ended"):
        up_worker_drain.connection_files([str(runs[1])], print)


def test_when_no_run_is_under_way_the_error_says_so(runs: list[Path]) -> None:
    with pytest.raises(ConfigurationError, match="no run of those named is under way"):
        up_worker_drain.connection_files([str(one) for one in runs[1:]], print)


def test_beside_a_script_on_this_machine_alone_the_error_says_that_it_takes_no_workers(
    tmp_path: Path, configure: Callable[..., None]
) -> None:
    configure(run_directory=tmp_path / "runs")
    with pytest.raises(ConfigurationError, match=f"no run below {tmp_path}/runs") as caught:
        up_worker_drain.connection_files([], print)
    assert "One whose calls run on this machine alone takes no workers" in str(caught.value)


def test_a_run_that_may_not_be_looked_at_is_left_out(runs: list[Path], address: str) -> None:
    file = runs[2] / "connection.json"
    file.unlink()
    save_connection(runs[2], address)
    file.chmod(0o644)
    assert up_worker_drain.connection_files([], print) == [runs[0] / "connection.json"]


def test_a_batch_system_that_cannot_be_used_is_the_error_and_leaves_no_folder(
    tmp_path: Path, configure: Callable[..., None]
) -> None:
    class Closed(SlurmScheduler):
        def launcher(self, run: LaunchContext) -> Launcher:
            raise SchedulerUnavailable("no session opens")

    configure(run_directory=tmp_path)
    file = tmp_path / "connection.json"
    with (
        pytest.raises(SchedulerUnavailable, match="no session opens"),
        up_worker_drain.extra_workers(Closed(), file, ZERO, print),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kept", "found"), [("slurm", "slurm"), ("", None), ("inline", None), ("other", None)]
)
def test_workers_are_started_by_the_scheduler_of_the_dispatcher(
    tmp_path: Path, kept: str, found: str | None
) -> None:
    save_connection(tmp_path, scheduler=kept)
    assert up_worker_drain.scheduler_of(tmp_path / "connection.json") == found
    assert up_worker_drain.scheduler_of(tmp_path / "none.json") is None


def drain(machine: Machine, *found: FakeWatched) -> Result:
    for one in found:
        machine.add(one)
    return CliRunner().invoke(main, ["drain", "node7", "node8"])


def leaving(count: int) -> FakeWatched:
    """Return a dispatcher that has so many workers there."""
    return FakeWatched(lambda ask: WatchAnswer(WHO, Status(), count=count))


def test_the_workers_of_all_dispatchers_leave(machine: Machine) -> None:
    one, other = leaving(1), leaving(2)
    result = drain(machine, one, other)
    assert (result.exit_code, result.output) == (0, "3 workers will leave\n")
    assert one.asked == other.asked == [(DRAIN, ["node7", "node8"])]


def test_a_silent_dispatcher_keeps_no_other_from_its_workers(machine: Machine) -> None:
    result = drain(machine, FakeWatched(silent), leaving(1))
    assert result.exit_code == 1
    assert "1 worker will leave" in result.output
    assert "it does not answer" in result.output


@pytest.mark.parametrize("found", [(), (0,)])
def test_a_drain_of_no_worker_has_an_exit_status(machine: Machine, found: tuple[int, ...]) -> None:
    result = drain(machine, *map(leaving, found))
    assert (result.exit_code, result.output) == (
        1,
        "no worker is on node7, node8; `gridengine top` shows where they are\n",
    )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Resource]]:
    """How many workers were started, and what each holds."""
    found: list[tuple[int, Resource]] = []

    @contextmanager
    def extra_workers(
        scheduler: Any, file: Path, resources: Resource, say: Any, scratch: str = ""
    ) -> Iterator[Any]:
        yield SimpleNamespace(failed=0, resources=resources)

    def run_all(groups: Any) -> None:
        found.extend((count, workers.resources) for workers, count in groups)

    monkeypatch.setattr(up_worker_drain, "extra_workers", extra_workers)
    monkeypatch.setattr(up_worker_drain, "run_all", run_all)
    return found


@pytest.fixture
def worker(tmp_path: Path) -> Any:
    def run(*words: str) -> Result:
        save_connection(tmp_path, name="worker.json")
        return CliRunner().invoke(main, ["worker", *words, str(tmp_path / "worker.json")])

    return run


@pytest.mark.parametrize(
    ("words", "count", "held"),
    [
        ((), usable_cores(), ZERO),
        (("-n", "3"), 3, ZERO),
        (("--cores", "4", "--memory", "512M"), 1, Cores(4) & Memory(0.5)),
        (("--token", "licence"), 1, Cores(1) & Token("licence")),
        (("-n", "3", "--token", "licence"), 3, Cores(1) & Token("licence")),
        (("-n", "1", "--gpus", "2"), 1, Cores(1) & GPUs(2)),
    ],
)
def test_as_many_workers_start_as_requested_and_each_holds_the_given_resources(
    words: tuple[str, ...], count: int, held: Resource, started: Any, worker: Any
) -> None:
    result = worker(*words)
    assert (result.exit_code, started) == (0, [(count, held)]), result.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-n", "2", "--gpus", "1"), "CUDA_VISIBLE_DEVICES"),
        (("--memory", "lots"), "'lots' is not an amount of memory"),
        (("--cores", "0"), "0 is not in the range"),
        (("--time", "1:00:00"), "No such option"),
    ],
)
def test_resources_that_cannot_be_held_are_refused(
    words: tuple[str, ...], told: str, started: Any, worker: Any
) -> None:
    result = worker(*words)
    assert (result.exit_code, started) == (2, [])
    assert told in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("scheduler", "resources", "words", "exit_code"),
    [
        ("slurm", [], ("--cores", "1"), 1),
        ("slurm", [], (), 0),
        ("slurm", [("Cores", [2, None])], ("--cores", "1"), 0),
        ("none", [], ("--cores", "1"), 0),
    ],
)
def test_without_shared_workers_no_worker_with_given_resources_is_started(
    machine: Machine,
    started: Any,
    scheduler: str,
    resources: Any,
    words: Any,
    exit_code: int,
) -> None:
    folder = DispatcherFolder.of("sweeps")
    folder.make()
    background.write_options(folder, StartOptions(scheduler, resources=resources))
    save_connection(folder.path, name="worker.json")
    with contextlib.closing(folder.take_lock()) as lock:
        lock.write(Holder.here())
        result = CliRunner().invoke(main, ["worker", *words, "sweeps"])
    assert (result.exit_code, bool(started)) == (exit_code, not exit_code), result.output
    assert ("leave out --cores" in result.output) is bool(exit_code)


# ------------------------------------------------------------------ dry runs, before a script runs


@pytest.fixture
def no_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    """A run directory without the runs of who runs the tests, and a batch system that says
    nothing.
    """
    configure(run_directory=tmp_path)
    for name in ("scontrol", "sinfo"):
        (tmp_path / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SGE_ROOT", raising=False)


@pytest.mark.usefixtures("no_runs")
@pytest.mark.parametrize("scheduler", ["processes", "grid_engine", "slurm"])
def test_a_dry_run_needs_no_run_under_way(scheduler: str) -> None:
    told = CliRunner().invoke(main, ["up", "--dry", "--scheduler", scheduler])
    assert told.exit_code == 0, told.output
    assert "RUN/connection.json" in told.output


@pytest.mark.usefixtures("no_runs")
def test_a_dry_run_for_a_run_on_slurm_shows_a_slurm_job(tmp_path: Path) -> None:
    save_connection(tmp_path, "tcp://10.0.0.7:4711", scheduler="slurm")
    told = CliRunner().invoke(main, ["up", str(tmp_path / "connection.json"), "--dry"])
    assert told.exit_code == 0, told.output
    assert "sbatch" in told.output
