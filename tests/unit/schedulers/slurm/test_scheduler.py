"""What a launcher makes of what Slurm says of its tasks, with a Slurm that says what it is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

from gridengine.errors import ConfigurationError, SubmissionRefused
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers import SlurmScheduler
from gridengine.schedulers import command_launcher as module
from gridengine.schedulers.command import CommandRunner
from gridengine.schedulers.command_launcher import ENDING_SECONDS
from gridengine.schedulers.launcher import (
    BatchSystemRefusal,
    Handle,
    LaunchContext,
    Report,
    TryAgain,
    Unreachable,
    WorkerStatus,
)
from gridengine.schedulers.slurm.answers import SlurmLimits, ids_of
from gridengine.schedulers.slurm.commands import SlurmCommands
from gridengine.schedulers.slurm.scheduler import SlurmLauncher
from tests.support.interrupts import at_each_point


class Row(NamedTuple):
    """What squeue says of a task."""

    state: str
    start: str = ""
    reason: str = ""


class Said(CommandRunner):
    """A Slurm of rows that a test writes. `error` is what each command raises."""

    def __init__(self) -> None:
        super().__init__(SlurmCommands(), {"PATH": ""})
        self.rows: dict[str, Row] = {}
        self.fields: dict[str, dict[str, str]] = {}
        self.cancelled: list[str] = []
        self.submitted = 0
        self.told = ""
        self.ran: list[Sequence[str]] = []
        self.error: Exception | None = None

    def run(self, command: Sequence[str], seconds: float | None = None) -> str:
        self.ran.append(command)
        if command[0] == "squeue" and command[-1] == "--format=%F":
            return self.told
        if self.error is not None and command[0] not in ("scontrol", "sinfo"):
            raise self.error
        answers = {"sbatch": self._sbatch, "squeue": self._squeue, "scancel": self._scancel}
        return answers.get(command[0], self._scontrol)(*command[1:])

    submit = run

    def _sbatch(self, *words: str) -> str:
        self.submitted += 1
        return f"{self.submitted}\n"

    def _squeue(self, *words: str) -> str:
        return "\n".join(
            f"{'|'.join(id.split('_'))}|{row.state}|{row.start}|UNLIMITED|{row.reason}"
            for id, row in self.rows.items()
        )

    def _scancel(self, *words: str) -> str:
        named = (word.rstrip("]").partition("_[") for word in words if word[0] != "-")
        self.cancelled += [id for job, _, tasks in named for id in ids_of(job, tasks)]
        return ""

    def _scontrol(self, *words: str) -> str:
        jobs = ((*id.split("_"), fields) for id, fields in self.fields.items())
        return "\n".join(
            " ".join(
                f"{name}={text}"
                for name, text in {
                    "JobId": "99",
                    "ArrayJobId": job,
                    "ArrayTaskId": task,
                    **fields,
                }.items()
            )
            for job, task, fields in jobs
        )


class NoGuard:
    """In place of the process that cleans up when this one is gone."""

    def __init__(self, *arguments: object) -> None: ...

    def dismiss(self) -> None: ...

    def leave(self) -> int:
        return 0


@pytest.fixture
def slurm() -> Said:
    return Said()


class UnheardSrun:
    """An srun with a job whose node never reaches it."""

    is_running = is_unheard = True
    words = ""

    def __init__(self, command: Sequence[str], environment: object, log: str) -> None:
        self.log, self.job = log, "7"

    def wait_for_answer(self, deadline: float) -> bool:
        return True

    wait_for_end = wait_for_answer

    def end(self) -> None:
        self.is_running = self.is_unheard = False


@pytest.fixture
def srun() -> str:
    """Whether srun starts workers."""
    return "no"


@pytest.fixture
def launcher(
    slurm: Said,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    configure: Callable[..., None],
    srun: str,
) -> Iterator[SlurmLauncher]:
    configure(slurm_srun=srun)
    monkeypatch.setattr("gridengine.schedulers.slurm.scheduler.Srun", UnheardSrun)
    monkeypatch.setattr(module, "Guard", NoGuard)
    monkeypatch.setattr(module, "LISTING_SECONDS", 0.0)
    run = LaunchContext("test", tmp_path, tmp_path / "connection", print)
    system = SlurmCommands()
    launcher = SlurmLauncher(run, script="#!/bin/bash\n", system=system, runner=slurm)
    yield launcher
    launcher.close()


@pytest.mark.parametrize("srun", ["yes"])
def test_a_ctrl_c_while_a_worker_begins_to_start_leaves_no_srun_once_all_is_closed(
    launcher: SlurmLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[UnheardSrun] = []

    class NotedSrun(UnheardSrun):
        def __init__(self, *given: Any) -> None:
            nonlocal made
            super().__init__(*given)
            made += [self]  # no call, at whose end a Ctrl-C could come

        def wait_for_end(self, deadline: float) -> bool:
            return not self.is_running

    monkeypatch.setattr("gridengine.schedulers.slurm.scheduler.Srun", NotedSrun)
    launcher.launch_ahead(ANY)()  # the first time has more points: it imports
    launcher.close()
    for _ in at_each_point(lambda: launcher.launch_ahead(ANY)):
        launcher.close()
        assert not any(one.is_running for one in made)
    assert made


def started(launcher: SlurmLauncher, slurm: Said, *rows: Row) -> list[Handle]:
    """Return the handles of an array with a task for each row."""
    handles = launcher.launch(len(rows))
    slurm.rows = {handle.id: row for handle, row in zip(handles, rows, strict=True)}
    return handles


def test_jobs_are_named_after_their_first_calls(launcher: SlurmLauncher, slurm: Said) -> None:
    launcher.label = "main.<locals>.risky"
    first = launcher.request(1, ANY, str)["argv"]
    launcher.label = "another"
    assert launcher.request(1, ANY, str)["argv"] == first
    assert [word for word in first if word.startswith("--job-name=risky-test-")]


def test_a_single_question_tells_of_all_tasks(launcher: SlurmLauncher, slurm: Said) -> None:
    rows = Row("RUNNING", "1"), Row("PENDING", reason="Resources"), Row("SUSPENDED", "1")
    handles = started(launcher, slurm, *rows)
    reports = launcher.poll(handles)
    assert [reports[handle].state for handle in handles] == [
        WorkerStatus.RUNNING,
        WorkerStatus.QUEUED,
        WorkerStatus.SUSPENDED,
    ]
    assert "what it asks for is in use" in launcher.explain(handles[1:])


def test_a_task_that_can_never_start_has_an_error(launcher: SlurmLauncher, slurm: Said) -> None:
    (handle,) = started(launcher, slurm, Row("PENDING", reason="BadConstraints"))
    assert "can never start it" in str(launcher.poll([handle])[handle].error)


def test_the_end_of_a_task_is_told_once(launcher: SlurmLauncher, slurm: Said) -> None:
    (handle,) = started(launcher, slurm, Row("OUT_OF_MEMORY", "1"))
    slurm.fields = {handle.id: {"ExitCode": "0:9", "NodeList": "n7"}}
    report = launcher.poll([handle])[handle]
    assert report.state is WorkerStatus.FAILED
    assert report.reason == "it ran out of memory (OUT_OF_MEMORY): killed by SIGKILL"
    assert getattr(report.error, "host", "") == "n7"
    assert launcher.poll([handle]) == {}


@pytest.mark.parametrize("again", [Row("PENDING", reason="BeginTime"), Row("RUNNING", "2")])
def test_a_task_that_was_started_anew_is_lost_at_no_charge_and_cancelled(
    launcher: SlurmLauncher, slurm: Said, again: Row
) -> None:
    (handle,) = started(launcher, slurm, Row("RUNNING", "1"))
    assert launcher.poll([handle]) == {handle: Report(WorkerStatus.RUNNING)}
    slurm.rows = {handle.id: again}
    assert launcher.poll([handle])[handle].blameless
    assert slurm.cancelled == [handle.id]


def test_a_task_with_a_log_that_waits_was_started_before_though_nobody_saw_it_run(
    launcher: SlurmLauncher, slurm: Said
) -> None:
    one, other = started(launcher, slurm, *[Row("PENDING", reason="BeginTime")] * 2)
    Path(one.log).touch()
    reports = launcher.poll([one, other])
    assert (reports[one].blameless, reports[other].state) == (True, WorkerStatus.QUEUED)
    assert slurm.cancelled == [one.id]


def test_a_listing_that_lacks_a_task_is_no_death(launcher: SlurmLauncher, slurm: Said) -> None:
    (handle,) = started(launcher, slurm, Row("RUNNING", "1"))
    Path(handle.log).touch()
    rows, slurm.rows = slurm.rows, {}
    assert launcher.poll([handle]) == {}
    slurm.rows = rows
    assert handle in launcher.poll([handle])
    slurm.rows = {}
    assert launcher.poll([handle]) == {}
    assert "no longer knows it" in launcher.poll([handle])[handle].reason


def test_remaining_jobs_are_cancelled_by_name_when_the_launcher_closes(
    launcher: SlurmLauncher, slurm: Said
) -> None:
    started(launcher, slurm, Row("RUNNING", "1"), Row("PENDING"))
    launcher.close()
    name = launcher.facts()["name"]
    assert slurm.ran[-1] == ["scancel", "--quiet", f"--user={os.getuid()}", f"--name={name}"]


def test_a_task_that_does_not_come_to_its_end_is_given_up(
    launcher: SlurmLauncher, slurm: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (handle,) = started(launcher, slurm, Row("COMPLETING", "1"))
    assert launcher.poll([handle]) == {}
    later = module.time.monotonic() + ENDING_SECONDS + 1
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    assert "does not come to its end" in launcher.poll([handle])[handle].reason


def test_without_an_answer_nothing_is_known(launcher: SlurmLauncher, slurm: Said) -> None:
    (handle,) = started(launcher, slurm, Row("RUNNING", "1"))
    slurm.error = Unreachable("slurmctld is away")
    assert launcher.poll([handle]) == {}
    slurm.error = BatchSystemRefusal("no")
    assert launcher.poll([handle]) == {}
    slurm.error = None
    assert handle in launcher.poll([handle])


def test_tasks_of_a_submission_without_an_answer_are_cancelled_before_the_next(
    launcher: SlurmLauncher, slurm: Said
) -> None:
    slurm.error = Unreachable("slurmctld is away")
    with pytest.raises(TryAgain, match="slurmctld is away"):
        launcher.launch(1)
    slurm.error, slurm.rows = None, {"9_1": Row("PENDING"), "8_1": Row("COMPLETED")}
    launcher.launch(1)
    assert slurm.cancelled == ["9_1"]


def test_a_failed_cancellation_is_repeated_at_the_next_poll(
    launcher: SlurmLauncher, slurm: Said
) -> None:
    (handle,) = started(launcher, slurm, Row("RUNNING", "1"))
    slurm.error = Unreachable("slurmctld is away")
    launcher.cancel([handle])
    slurm.error = None
    launcher.poll([])
    assert slurm.cancelled == [handle.id]


def again(launcher: SlurmLauncher, *ids: str) -> list[Handle]:
    """Have a launcher go on with these tasks of an earlier process, which were called so."""
    handles = [Handle(id, f"/nowhere/worker.{id}.log") for id in ids]
    launcher.adopt(dict.fromkeys(handles, ANY), {"name": "night-run-1a2b3c"})
    return handles


def test_later_jobs_have_the_name_of_an_earlier_process_s(launcher: SlurmLauncher) -> None:
    again(launcher, "7_1")
    assert "--job-name=night-run-1a2b3c" in launcher.request(1, ANY, str)["argv"]
    assert launcher.facts() == {"name": "night-run-1a2b3c"}


@pytest.mark.parametrize("ask", ["poll", "launch"])
def test_tasks_of_an_earlier_process_are_watched_and_those_it_did_not_note_are_cancelled(
    launcher: SlurmLauncher, slurm: Said, ask: str
) -> None:
    handles = again(launcher, "7_1", "7_2")
    slurm.rows = {"7_1": Row("RUNNING", "1"), "7_2": Row("FAILED", "1"), "8_1": Row("PENDING")}
    if ask == "launch":
        launcher.launch(1)
        assert slurm.cancelled == ["8_1"]
    reports = launcher.poll(handles)
    states = [WorkerStatus.RUNNING, WorkerStatus.FAILED]
    assert [reports[handle].state for handle in handles] == states
    assert set(slurm.cancelled) == {"8_1"}


def test_a_task_of_an_earlier_process_that_slurm_has_forgotten_has_ended(
    launcher: SlurmLauncher, slurm: Said
) -> None:
    [handle] = again(launcher, "7_1")
    assert launcher.poll([handle]) == {}
    assert launcher.poll([handle])[handle].state is WorkerStatus.FAILED


@pytest.mark.parametrize(
    "name", ["SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU", "SBATCH_MEM_PER_NODE"]
)
def test_memory_that_a_variable_says_is_not_overridden(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    site = SlurmLimits(memory="--mem-per-cpu=2000M")
    assert SlurmCommands(site).completed([]) == ["--mem-per-cpu=2000M"]
    monkeypatch.setenv(name, "300M")
    assert SlurmCommands(site).completed([]) == []


def test_a_refusal_names_the_variables_that_may_be_its_source(
    launcher: SlurmLauncher, slurm: Said
) -> None:
    slurm.environment["SBATCH_PARTITION"] = "nosuch"
    slurm.error = BatchSystemRefusal("Invalid partition name specified")
    with pytest.raises(SubmissionRefused, match=r"SBATCH_PARTITION=nosuch \(of the environment\)"):
        launcher.launch(1)


def test_whole_nodes_for_smaller_workers_are_told_once(
    launcher: SlurmLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    launcher.__dict__["system"] = SlurmCommands(SlurmLimits(whole_cores=4))
    launcher.launch(1, Demand(Cores(4)))
    assert caplog.text == ""
    launcher.launch(1)
    launcher.launch(1)
    assert caplog.text.count("worker_resources=Cores(4)") == 1


def test_jobs_that_may_get_all_memory_are_told(
    launcher: SlurmLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    launcher.__dict__["system"] = SlurmCommands(SlurmLimits(hides_memory=True))
    launcher.launch(1, Demand(Memory(2)))
    assert caplog.text == ""
    launcher.launch(1)
    assert "resources=Memory(2)" in caplog.text


@pytest.mark.parametrize(
    ("jobs", "error"), [("", SubmissionRefused), ("17\n", TryAgain)], ids=["none", "some"]
)
def test_a_limit_that_is_reached_without_any_job_never_passes(
    launcher: SlurmLauncher, slurm: Said, jobs: str, error: type[Exception]
) -> None:
    slurm.error = BatchSystemRefusal(
        "AssocMaxSubmitJobLimit; Batch job submission failed: Job violates ..."
    )
    slurm.told = jobs
    with pytest.raises(error, match="AssocMaxSubmitJobLimit"):
        launcher.launch(5)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"array": "1-3"}, ConfigurationError, "--array is not for users to set"),
        ({"native": "-J name"}, ConfigurationError, "-J is not for users to set"),
        ({"native": "--wait"}, ConfigurationError, "--wait is not for users to set"),
        ({"native": "'"}, ConfigurationError, "cannot be read"),
        ({"native": 3}, TypeError, "native must be a string"),
        ({"partition": "a\nb"}, ConfigurationError, "partition must be one line"),
        ({"time": ["1"]}, TypeError, "time must be a string, a number or True"),
        ({"max_workers": 0}, ConfigurationError, "max_workers must be at least 1"),
        (
            {"start_timeout": 0},
            ConfigurationError,
            "start_timeout must be above zero, and finite, not 0",
        ),
        (
            {"start_timeout": float("nan")},
            ConfigurationError,
            "start_timeout must be above zero, and finite, not nan",
        ),
        ({"start_timeout": "5"}, ConfigurationError, "start_timeout='5' is not a time"),
        ({"strict": "no"}, TypeError, "strict must be True or False"),
    ],
)
def test_a_wrong_argument_is_named_at_once(
    given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        SlurmScheduler(**given)


def test_a_scheduler_shows_its_request() -> None:
    assert repr(SlurmScheduler()) == "SlurmScheduler()"
    assert (
        repr(SlurmScheduler(partition="main", time="1:00:00"))
        == "SlurmScheduler(native='--partition=main --time=1:00:00')"
    )


@pytest.mark.parametrize(("nodes", "host"), [("n7", "n7"), ("n[7-8]", ""), ("n1,n7", "")])
def test_the_node_of_a_failed_start_is_told_and_left_out_when_it_is_one(
    launcher: SlurmLauncher, slurm: Said, nodes: str, host: str
) -> None:
    (handle,) = started(launcher, slurm, Row("FAILED", "1"))
    slurm.fields = {handle.id: {"ExitCode": "1:0", "NodeList": nodes}}
    assert launcher.poll([handle])[handle].host == host
    launcher.excluded, launcher.left_out = ("n3",), ("n7",)
    assert "--exclude=n3,n7" in launcher.request(1, ANY, str)["argv"]


@pytest.mark.parametrize("srun", ["yes"])
def test_an_srun_that_its_node_cannot_reach_is_ended_and_sbatch_starts_the_next(
    launcher: SlurmLauncher, slurm: Said
) -> None:
    [handle] = launcher.launch(1)
    assert (handle.id, slurm.submitted) == ("7", 0)
    Path(handle.log).touch()
    slurm.rows = {"7_N/A": Row("RUNNING", "1")}
    assert launcher.poll([handle])[handle].state is WorkerStatus.RUNNING
    slurm.rows = {"7_N/A": Row("CANCELLED", "1")}
    report = launcher.poll([handle])[handle]
    assert report.blameless
    assert "could not open a connection to srun" in report.reason
    launcher.launch(1)
    assert slurm.submitted == 1


@pytest.mark.parametrize("srun", ["yes"])
def test_workers_that_exchange_files_are_left_to_sbatch(
    launcher: SlurmLauncher, slurm: Said
) -> None:
    assert "srun" in launcher.plan(1).request
    launcher.run = launcher.run._replace(addresses=("file:///runs/r",))
    assert "srun" not in launcher.plan(1).request
    launcher.launch(1)
    assert slurm.submitted == 1


@pytest.mark.parametrize("srun", ["yes"])
def test_a_worker_that_begins_ahead_of_calls_is_watched_once_srun_has_answered(
    launcher: SlurmLauncher, slurm: Said
) -> None:
    begun = launcher.launch_ahead(Demand(Cores(4)))
    assert launcher.tasks == {}
    [handle] = begun()
    assert (handle.id, [*launcher.tasks], slurm.submitted) == ("7", [handle], 0)
    assert launcher.request_words == "--cpus-per-task=4"


def test_without_srun_no_worker_begins_ahead_of_calls(launcher: SlurmLauncher, slurm: Said) -> None:
    launcher.in_doubt = True
    assert (launcher.launch_ahead(ANY)(), slurm.submitted, launcher.in_doubt) == ([], 0, True)


@pytest.mark.parametrize("srun", ["yes"])
def test_without_a_thread_for_srun_workers_are_left_to_sbatch(
    launcher: SlurmLauncher, slurm: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr("gridengine.schedulers.slurm.scheduler.Srun", refuse)
    assert (launcher.launch_ahead(ANY)(), slurm.submitted) == ([], 0)
    launcher.launch(1)
    assert slurm.submitted == 1


@pytest.mark.parametrize("srun", ["yes"])
@pytest.mark.parametrize("error", [OSError("no process can be made"), KeyboardInterrupt()])
def test_no_worker_is_left_that_nobody_would_watch(
    launcher: SlurmLauncher, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    begun = launcher.launch_ahead(ANY)
    with monkeypatch.context() as patched:
        patched.setattr(launcher, "start_guard", Mock(side_effect=error))
        with pytest.raises(type(error)):
            begun()
    assert [one.is_running for one in launcher._running] == [False]
    assert launcher.tasks == {}
