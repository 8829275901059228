"""How a job ended, by what DRMAA tells."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gridengine.errors import ConfigurationError, SubmissionRefused, TimeoutError
from gridengine.resources.demand import ANY
from gridengine.schedulers.batch_words import split_words
from gridengine.schedulers.grid_engine import launcher as module
from gridengine.schedulers.grid_engine.diagnostics import Limit
from gridengine.schedulers.grid_engine.drmaa import GRID_ENGINE_UNNAMED, System
from gridengine.schedulers.grid_engine.launcher import (
    MOST_LOOKS,
    DrmaaTask,
    GridEngineLauncher,
    ending_of,
)
from gridengine.schedulers.grid_engine.options import (
    GridEngineWords,
    OwnArguments,
    TaskOptions,
    check_submits,
)
from gridengine.schedulers.launcher import Handle, LaunchContext, Unreachable, WorkerStatus
from gridengine.schedulers.requests import refusal, unavailable

ONE = Handle("7.1", "/nowhere/worker.1.1.log")
TWO = Handle("7.2", "/nowhere/worker.1.2.log")


def test_the_end_of_a_job_is_told_in_words() -> None:
    assert ending_of({"status": 0, "usage": {}}).report.state is WorkerStatus.ENDED
    assert ending_of({"status": 3, "usage": {}}).report.reason == "exit status 3"
    assert ending_of({"signal": "SIGKILL", "usage": {}}).report.reason == "killed by SIGKILL"


@pytest.mark.parametrize(
    ("usage", "deleted", "started"),
    [
        ({"start_time": "1795211090.0000"}, True, True),
        ({}, True, False),
        ({"submission_time": "1795211089.0000"}, False, False),
    ],
    ids=["deleted while it ran", "deleted while it waited", "could not be started"],
)
def test_why_a_job_was_aborted_is_told_by_its_usage(
    usage: dict[str, str], deleted: bool, started: bool
) -> None:
    end = ending_of({"aborted": True, "usage": usage})
    assert (end.report.deleted, end.started) == (deleted, started)


def test_a_job_that_is_no_longer_known_did_not_end_well() -> None:
    assert ending_of({"words": "does not exist"}).report.state is WorkerStatus.FAILED


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ('Job was rejected because job requests unknown queue "nosuch.q"', "`qconf -sql`"),
        ('job rejected: the requested parallel environment "no" does not exist', "`qconf -spl`"),
        ('unknown resource "nosuch"', "`qconf -sc`"),
        ("the advance reservation id 777 is invalid", "`qrstat`"),
        (
            "the job duration is longer than duration of the advance reservation id 1",
            "must fit into the reservation",
        ),
        ("your user id 0 is lower than minimum user id 1 of cluster configuration", "plain user"),
        ('denied: missing value for resource "gpu"', "`qconf -sc`"),
        ('job rejected: the requested project "nosuch" does not exist', "`qconf -sprjl`"),
        ('Unknown option "/project/me"', "`man qsub`"),
        ('job rejected: no access to project "it" for user "me"', "`qconf -sprj NAME`"),
        ('invalid option argument "-nosuch"', "`man qsub`"),
        ('attribute "h_rt" is not a time value', "h_rt='2:00:00'"),
        ('attribute "h_vmem" is not a memory value', "h_vmem='4G'"),
        ('can\'t resolve hostname "nosuch"', "`qhost`"),
        ("no suitable queues", "ask for less"),
        ('denied: host "node7" is not a submit host', "`qconf -as HOST`"),
        ("error reading answer list from qmaster", "no blanks in a name"),
    ],
)
def test_a_refusal_has_grid_engine_s_words_and_a_remedy(words: str, remedy: str) -> None:
    error = refusal(GridEngineWords(), words, ["-q nosuch.q"], 1)
    assert isinstance(error, SubmissionRefused)
    assert f"{words}; it was asked for: -q nosuch.q" in error.message
    assert remedy in (error.hint or "")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("no DRMAA library was found (SGE_ROOT is not set)", "source your site's settings.sh"),
        ('no session was opened (/lib): SGE_ROOT directory "/x" doesn\'t exist', "settings.sh"),
        ("/x.so: cannot open shared object file: No such file or directory", "drmaa_library="),
        ("unable to send message to qmaster using port 6444", "is sge_qmaster running"),
        ("who knows", "`gridengine doctor`"),
    ],
)
def test_a_session_that_does_not_open_has_a_remedy(words: str, remedy: str) -> None:
    error = unavailable(GridEngineWords(), words)
    assert words in error.message
    assert remedy in (error.hint or "")


class Told:
    """A session, and diagnostics, that say what a test has them say."""

    def __init__(self) -> None:
        self.state: tuple[str, dict[str, Any] | None] = "failed", None
        self.reason = ""
        self.deleted: list[str] = []
        self.lacking = False
        self.asked: list[str] = []

    def lacks(self, job: str) -> bool:
        self.asked.append(job)
        return self.lacking

    def status(self, jobs: Sequence[str], seconds: float) -> dict[str, Any]:
        return dict.fromkeys(jobs, self.state)

    def terminate(self, jobs: Sequence[str]) -> None:
        self.deleted += jobs

    def error_state(self, job: str) -> str:
        return self.reason

    def limits(self, ids: Iterable[str]) -> dict[str, Limit]:
        return {}

    def logged_failure(self, job: str) -> None:
        return None

    def __exit__(self) -> None:
        """Others use the session, too: it goes on."""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[GridEngineLauncher, Any]:
    """A launcher of a task that is known to have failed, and not yet how."""
    monkeypatch.setattr(module, "END_SECONDS", 0.0)
    run = LaunchContext("test", tmp_path, tmp_path / "connection", print)
    launcher, said = GridEngineLauncher(run, script="true", own=OwnArguments()), Told()
    vars(launcher).update(_session=said, _diagnostics=said, tasks={ONE: DrmaaTask(TaskOptions())})
    assert launcher.poll([ONE]) == {}
    return launcher, said


def test_the_end_of_a_task_may_be_told_late(told: tuple[GridEngineLauncher, Any]) -> None:
    launcher, said = told
    vars(launcher).update(tasks={ONE: DrmaaTask(TaskOptions(values={"h_vmem": "4G"}))})
    for _ in range(MOST_LOOKS - 1):
        assert launcher.poll([ONE]) == {}
    said.state = "failed", {"signal": "SIGKILL", "usage": {}}
    assert launcher.poll([ONE])[ONE].reason == "killed by SIGKILL (its limits: h_vmem=4G)"
    assert said.deleted == []


def test_a_task_that_ran_and_of_which_no_usage_is_told_was_deleted_while_it_ran(
    told: tuple[GridEngineLauncher, Any],
) -> None:
    """As Grid Engine deletes the jobs of an advance reservation that is over."""
    launcher, said = told
    vars(launcher).update(tasks={ONE: DrmaaTask(TaskOptions(), queued=False)})
    said.state = "failed", {"aborted": True, "usage": {}}
    report = launcher.poll([ONE])[ONE]
    assert (report.reason, report.deleted) == ("deleted while it ran", True)


@pytest.mark.parametrize(("reason", "polls"), [("no such folder", 1), ("", MOST_LOOKS)])
def test_a_task_in_the_error_state_is_deleted_at_once_and_one_of_which_nothing_is_told_later(
    told: tuple[GridEngineLauncher, Any], reason: str, polls: int
) -> None:
    launcher, said = told
    said.reason = reason
    reports = [launcher.poll([ONE]) for _ in range(polls)]
    assert [bool(one) for one in reports] == [False] * (polls - 1) + [True]
    assert said.deleted == [ONE.id]
    assert (reason or "does not say why") in reports[-1][ONE].reason


def test_a_launcher_that_closes_deletes_its_tasks_though_others_use_its_session(
    told: tuple[GridEngineLauncher, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, said = told
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: launcher.owner + 1)
        launcher.close()
    assert said.deleted == [], "they are not a fork's to delete"
    launcher.close()
    assert said.deleted == [ONE.id]


@pytest.mark.parametrize("lacks", [True, False])
def test_a_job_of_which_nothing_is_known_for_long_is_given_up_where_grid_engine_lacks_it(
    told: tuple[GridEngineLauncher, Any], lacks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, said = told
    vars(launcher).update(tasks={ONE: DrmaaTask(TaskOptions()), TWO: DrmaaTask(TaskOptions())})
    said.state, said.lacking = ("undetermined", None), lacks
    assert launcher.poll([ONE, TWO]) == {}
    assert said.asked == []
    monkeypatch.setattr(module, "UNKNOWN_SECONDS", 0.0)
    reports = launcher.poll([ONE, TWO])
    assert said.asked == ["7"]
    assert list(reports) == [ONE, TWO] * lacks
    if lacks:
        assert reports[TWO].uncertain
        assert "does not have this job, to which it gave the number 7" in str(reports[TWO].error)


def test_a_job_that_is_known_again_is_not_asked_for(
    told: tuple[GridEngineLauncher, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, said = told
    vars(launcher).update(tasks={ONE: DrmaaTask(TaskOptions())})
    monkeypatch.setattr(module, "UNKNOWN_SECONDS", 0.0)
    for said.state in (("undetermined", None), ("running", None)):
        launcher.poll([ONE])
    assert (launcher.tasks[ONE].unknown_since, said.asked) == (None, [])


def test_the_time_limit_of_a_task_is_asked_once_and_told_each_time(
    told: tuple[GridEngineLauncher, Any],
) -> None:
    launcher, said = told
    asked: list[list[str]] = []

    def limits_of(ids: Iterable[str]) -> dict[str, Limit]:
        asked.append(list(ids))
        return {ONE.id: Limit(50.0, "h_rt=60 of queue short.q@vm")}

    limited = DrmaaTask(TaskOptions(values={"h_rt": "60"}))
    vars(launcher).update(tasks={ONE: DrmaaTask(TaskOptions()), TWO: limited})
    said.limits = limits_of
    said.state = "queued_active", None
    launcher.poll([ONE, TWO])
    said.state = "running", None
    for _ in range(2):
        reports = launcher.poll([ONE, TWO])
        assert reports[ONE].lasts_seconds == 50
        assert reports[ONE].limited_by == "h_rt=60 of queue short.q@vm"
        assert reports[TWO].lasts_seconds == math.inf  # the script knows it
    assert asked == [[ONE.id]]


@pytest.mark.parametrize(("ran", "fault"), [("60.0", TimeoutError), ("59.0", None)])
def test_a_task_that_was_killed_at_the_end_of_its_time_was_over_it(
    ran: str, fault: type[Exception] | None
) -> None:
    assert DrmaaTask(TaskOptions(), limit=Limit(60.0)).fault({"ru_wallclock": ran}) is fault


class Kept:
    """A session that notes what of it is taken over, and what is to stay."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, list[str]]] = []
        self.kept: set[str] = set()
        self.error: Exception | None = None

    def take_over(self, contact: str, jobs: list[str]) -> None:
        self.taken.append((contact, jobs))

    def keep(self, jobs: set[str], others: set[str]) -> None:
        if self.error is not None:
            raise self.error
        self.kept = (self.kept - others) | jobs

    def start(self) -> System:
        return GRID_ENGINE_UNNAMED


@pytest.fixture
def later(tmp_path: Path) -> tuple[GridEngineLauncher, Kept]:
    """A launcher of a dispatcher that was started again."""
    run = LaunchContext("test", tmp_path, tmp_path / "connection", print, epoch=2)
    launcher, kept = GridEngineLauncher(run, script="true", own=OwnArguments()), Kept()
    vars(launcher).update(_session=kept)
    return launcher, kept


def test_tasks_of_an_earlier_process_are_watched_in_their_session_and_stay(
    later: tuple[GridEngineLauncher, Kept],
) -> None:
    launcher, session = later
    launcher.adopt({ONE: ANY, TWO: ANY}, {"contact": "session=1"})
    assert session.taken == [("session=1", ["7.1", "7.2"])]
    assert list(launcher.tasks) == [ONE, TWO]
    assert session.kept == {"7.1", "7.2"}


def test_the_session_of_an_earlier_process_that_has_left_no_tasks_is_left_alone(
    later: tuple[GridEngineLauncher, Kept],
) -> None:
    launcher, session = later
    launcher.adopt({}, {"contact": "session=1"})
    assert session.taken == []


def test_a_session_is_told_again_which_tasks_stay_when_it_could_not_be(
    later: tuple[GridEngineLauncher, Kept],
) -> None:
    launcher, session = later
    launcher.keep([ONE, TWO])
    session.error = Unreachable("no answer")
    with pytest.raises(Unreachable):
        launcher.keep([TWO])
    session.error = None
    launcher.keep([TWO])
    assert session.kept == {"7.2"}


@pytest.mark.parametrize("native", ["-w v", "-l h_rt=60 -w p", "-verify"])
def test_an_option_with_which_no_job_is_taken_is_refused(native: str) -> None:
    with pytest.raises(ConfigurationError, match="has Grid Engine check jobs and take none"):
        check_submits(split_words(native))


def test_an_option_that_takes_the_script_from_workers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="-clear has Grid Engine forget the script"):
        check_submits(split_words("-l h_rt=60 -clear"))


@pytest.mark.parametrize("native", ["-w e", "-w n", "-N v", "-N '-w v'"])
def test_other_libraries_are_taken(native: str) -> None:
    check_submits(split_words(native))


@pytest.mark.parametrize(
    "line",
    [
        "gridengine: the prologue failed with status 3 on n7; the worker was not started",
        "gridengine: the worker could not be started on n7",
    ],
)
def test_the_host_of_a_failed_start_is_read_from_its_log(
    told: tuple[GridEngineLauncher, Any], tmp_path: Path, line: str
) -> None:
    launcher, said = told
    log = tmp_path / "log"
    log.write_text(f"{line}\n")
    handle = Handle("7.1", str(log))
    launcher.tasks = {handle: DrmaaTask(TaskOptions())}
    said.state = "failed", {"status": 3}
    report = launcher.poll([handle])[handle]
    assert (report.host, getattr(report.error, "host", "")) == ("n7", "n7")
