"""What the launcher of all systems with commands makes of what these say, with a system that says
what it is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from gridengine.errors import SchedulerUnavailable, SubmissionRefused
from gridengine.schedulers import command_launcher as module
from gridengine.schedulers.batch_commands import Seen
from gridengine.schedulers.brought_files import BroughtFiles
from gridengine.schedulers.command import CommandRunner
from gridengine.schedulers.command_launcher import CommandLauncher
from gridengine.schedulers.launcher import (
    BatchSystemRefusal,
    LaunchContext,
    TryAgain,
    Unreachable,
    WorkerStatus,
)
from tests.unit.schedulers.test_batch_commands import Example

RUNS, WAITS = Seen(WorkerStatus.RUNNING), Seen(WorkerStatus.QUEUED)


class Told(Example):
    """`Example`, whose listing is what a test has in `seen`."""

    barred: Mapping[str, str] = {"no such user": "ask for an account"}
    unbrought = re.compile(",")
    array_limit = re.compile(r"at most (\d+) tasks")

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.known: dict[str, Seen] = {}

    def ids(self, output: str, count: int) -> list[str]:
        return super().ids(output.rpartition(" ")[2], count)

    def parse(self, output: str) -> dict[str, Seen]:
        if output:
            raise ValueError(output)
        return self.seen

    def endings(self, ended: Mapping[str, Seen]) -> list[list[str]]:
        return [["look", "--ended", *ended]]

    def parse_endings(self, ended: Mapping[str, Seen], outputs: Sequence[str]) -> dict[str, Seen]:
        return self.known

    def wait_all(self, name: str) -> list[str]:
        return ["wait", name]

    def why(self, id: str) -> list[str]:
        return ["look", "--why", id]

    def because(self, output: str) -> str:
        return output


class Runner(CommandRunner):
    """Runs nothing: `answers` has what commands print, or raise, by their first two words."""

    def __init__(self, system: Told) -> None:
        super().__init__(system, {"PATH": ""})
        self.ran: list[list[str]] = []
        self.answers_of: dict[str, str | Exception] = {"put": "1"}

    def run(self, command: Sequence[str], seconds: float | None = None) -> str:
        self.ran.append(list(command))
        words = " ".join(command)
        answer = next((said for key, said in self.answers_of.items() if words.startswith(key)), "")
        if isinstance(answer, Exception):
            if str(answer) == "no such job" and command[0] != "put":
                return ""
            raise answer
        return answer

    submit = run

    def of(self, name: str) -> list[list[str]]:
        return [command for command in self.ran if command[0] == name]


class NoGuard:
    """In place of the process that cleans up when this one is gone."""

    def __init__(self, *arguments: object) -> None: ...
    def dismiss(self) -> None: ...
    def leave(self) -> int:
        return 0


class Clock:
    """The time, as a test sets it."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic


class Scene:
    """A launcher, its system, what runs its commands, and the time."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.system, self.clock = Told(), clock
        self.runner = Runner(self.system)
        run = LaunchContext("test", folder, folder / "connection", print)
        script = "#!/bin/bash\n"
        self.launcher = CommandLauncher(run, script=script, system=self.system, runner=self.runner)

    def poll(self, *seen: Seen | None) -> dict[str, module.Report]:
        """Return the reports on the tasks of array 1 by their ids, after a listing of these; None
        is not listed.
        """
        ids = [f"1.{number}" for number in range(1, len(seen) + 1)]
        self.system.seen = {id: one for id, one in zip(ids, seen, strict=True) if one is not None}
        self.clock.now += 1.0
        reports = self.launcher.poll(list(self.launcher.tasks))
        return {handle.id: report for handle, report in reports.items()}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    clock = Clock()
    monkeypatch.setattr(module, "Guard", NoGuard)
    monkeypatch.setattr(module, "time", clock)
    made = Scene(tmp_path, clock)
    yield made
    made.launcher.close()


def test_a_submission_that_failed_and_named_jobs_leaves_none(scene: Scene) -> None:
    """As oarsub does: it prints an id, ends badly, says that the job is killed, and runs it."""
    scene.runner.answers_of["put"] = BatchSystemRefusal("the job is killed", "job 7")
    with pytest.raises(SubmissionRefused, match="the job is killed"):
        scene.launcher.launch(1)
    scene.runner.answers_of["put"] = "8"
    scene.system.seen = {"7.1": WAITS, "6.1": Seen(WorkerStatus.ENDED)}
    scene.launcher.launch(1)
    assert scene.runner.of("drop") == [["drop", "7.1"]]


def test_a_submission_that_names_too_few_jobs_is_refused_and_leaves_none(scene: Scene) -> None:
    scene.runner.answers_of["put"] = "thank you"
    words = "put has submitted 2 jobs to Example, and names 0 of them: 'thank you'"
    with pytest.raises(SubmissionRefused, match=words):
        scene.launcher.launch(2)
    scene.runner.answers_of["put"] = "8"
    scene.system.seen = {"7.1": RUNS, "7.2": WAITS}
    scene.launcher.launch(1)
    assert scene.runner.of("drop") == [["drop", "7.1", "7.2"]]


def test_words_that_tell_of_no_job_are_told_when_they_refuse_one(scene: Scene) -> None:
    scene.runner.answers_of["put"] = BatchSystemRefusal("dependency: no such job")
    with pytest.raises(SubmissionRefused, match="dependency: no such job"):
        scene.launcher.launch(1)


def test_deleting_a_job_that_is_gone_is_no_error(scene: Scene) -> None:
    handles = scene.launcher.launch(1)
    scene.runner.answers_of["drop"] = BatchSystemRefusal("no such job")
    scene.launcher.cancel(handles)
    assert not scene.launcher.in_doubt


def test_a_clean_refusal_has_nobody_look_for_jobs(scene: Scene) -> None:
    scene.runner.answers_of["put"] = BatchSystemRefusal("no queue of that name")
    with pytest.raises(SubmissionRefused, match="`look --queues` lists the queues"):
        scene.launcher.launch(1)
    scene.runner.answers_of["put"] = "8"
    scene.launcher.launch(1)
    assert scene.runner.of("look") == []


def test_a_submission_without_an_answer_is_tried_again_later(scene: Scene) -> None:
    scene.runner.answers_of["put"] = Unreachable("put gave no answer within 20 s")
    with pytest.raises(TryAgain, match="Example cannot be reached: put gave no answer"):
        scene.launcher.launch(1)
    assert scene.launcher.in_doubt


def test_a_user_who_may_not_submit_is_told_so(scene: Scene) -> None:
    scene.runner.answers_of["put"] = BatchSystemRefusal("no such user here")
    with pytest.raises(SchedulerUnavailable, match="ask for an account"):
        scene.launcher.launch(1)


def test_the_limit_on_arrays_is_learned_from_a_refusal(scene: Scene) -> None:
    real = scene.runner.run

    def limited(command: Sequence[str], seconds: float | None = None) -> str:
        if any(word in ("--tasks=5", "--tasks=4", "--tasks=3") for word in command):
            raise BatchSystemRefusal("at most 2 tasks")
        return real(command, seconds)

    scene.runner.submit = limited  # type: ignore[method-assign]
    assert len(scene.launcher.launch(5)) == 5
    counts = [command[2] for command in scene.runner.of("put")]
    assert counts == ["--tasks=2", "--tasks=2", "--tasks=1"]


def test_jobs_are_listed_at_most_once_a_second(scene: Scene) -> None:
    handles = scene.launcher.launch(1000)
    scene.system.seen = {handle.id: RUNS for handle in handles}
    assert len(scene.launcher.poll(handles)) == 1000
    assert scene.launcher.poll(handles) == {}
    scene.clock.now += 1.0
    assert len(scene.launcher.poll(handles)) == 1000
    assert len(scene.runner.of("look")) == 2


def test_a_lingering_job_is_deleted_once_reported(scene: Scene) -> None:
    scene.launcher.launch(2)
    held = Seen(WorkerStatus.FAILED, "it is held", blameless=True, linger=True)
    reports = scene.poll(RUNS, held)
    assert reports["1.2"].blameless
    assert scene.runner.of("drop") == [["drop", "1.2"]]
    scene.poll(RUNS, held)  # the last time that was not done
    assert scene.runner.of("drop") == [["drop", "1.2"]] * 2


def test_a_job_that_ran_and_waits_was_requeued(scene: Scene) -> None:
    scene.launcher.launch(2)
    scene.poll(Seen(WorkerStatus.RUNNING, start="1"), Seen(WorkerStatus.RUNNING, start=None))
    reports = scene.poll(WAITS, WAITS)
    assert (reports["1.1"].state, reports["1.1"].blameless) == (WorkerStatus.FAILED, True)
    assert reports["1.2"].state is WorkerStatus.QUEUED
    assert scene.runner.of("drop") == [["drop", "1.1"]]


def test_when_a_job_has_to_end_is_known_from_the_time_of_day(scene: Scene) -> None:
    scene.launcher.launch(1)
    report = scene.poll(Seen(WorkerStatus.RUNNING, ends_at=1061.0))["1.1"]
    assert report.remaining_seconds == 60.0


def test_a_listing_that_is_none_tells_nothing(scene: Scene) -> None:
    scene.launcher.launch(1)
    scene.runner.answers_of["look"] = "segmentation fault"
    assert scene.poll(None) == scene.poll(None) == scene.poll(None) == {}


def test_the_system_may_know_the_end_of_an_unlisted_job(scene: Scene) -> None:
    [one, _] = scene.launcher.launch(2)
    Path(one.log).touch()
    scene.system.known = {"1.1": Seen(WorkerStatus.FAILED, "exit status 3", host="n7")}
    assert scene.poll(None, None) == {}
    reports = scene.poll(None, None)
    assert reports["1.1"].reason == "exit status 3"
    assert getattr(reports["1.1"].error, "host", "") == "n7"
    assert (reports["1.2"].deleted, reports["1.2"].reason) == (
        True,
        "it was deleted while it waited",
    )
    assert ["look", "--ended", "1.1", "1.2"] in scene.runner.ran


def test_a_system_without_accounts_is_logged_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.launcher.launch(2)
    scene.runner.answers_of["look --ended"] = BatchSystemRefusal("accounting storage is disabled")
    with caplog.at_level("INFO", logger="gridengine"):
        scene.poll(Seen(WorkerStatus.FAILED), RUNS)
        scene.poll(None, Seen(WorkerStatus.FAILED))
    assert caplog.text.count("accounting storage is disabled") == 1


def test_a_live_job_that_only_its_id_finds_is_reported_and_deleted_by_it(scene: Scene) -> None:
    """As where a rule of the site renames jobs."""
    [handle] = scene.launcher.launch(1)
    Path(handle.log).touch()
    scene.system.known = {"1.1": RUNS}
    assert scene.poll(None) == {}
    assert scene.poll(None)["1.1"].state is WorkerStatus.RUNNING
    scene.system.known = {"1.1": Seen(None)}
    assert scene.poll(None) == scene.poll(None) == {}
    scene.launcher.close()
    assert scene.runner.of("drop")[-1] == ["drop", "1.1"]
    scene.clock.now += module.ENDING_SECONDS
    assert scene.poll(None) == {}
    assert scene.poll(None)["1.1"].reason == "it does not come to its end"


def test_a_reason_that_the_listing_has_is_not_asked_for(scene: Scene) -> None:
    handles = scene.launcher.launch(1)
    scene.runner.answers_of["look --why"] = "others come first"
    scene.poll(Seen(WorkerStatus.QUEUED, "held"))
    assert scene.launcher.explain(handles) == "held"
    scene.poll(Seen(WorkerStatus.QUEUED))
    assert scene.launcher.explain(handles) == "others come first"


def test_a_job_that_was_ended_since_it_can_never_start_is_a_refusal(scene: Scene) -> None:
    scene.launcher.launch(1)
    report = scene.poll(Seen(WorkerStatus.FAILED, "no node is that large"))["1.1"]
    assert isinstance(report.error, SubmissionRefused)
    assert "Example took the job and can never start it: no node" in str(report.error)


def test_a_reason_may_never_pass(scene: Scene) -> None:
    handles = scene.launcher.launch(1)
    assert scene.poll(WAITS)["1.1"].error is None
    scene.runner.answers_of["look --why"] = "no node is that large"
    assert scene.launcher.explain(handles) == "no node is that large"
    error = scene.poll(WAITS)["1.1"].error
    assert isinstance(error, SubmissionRefused)
    assert "Example took the job and can never start it: no node is that large" in str(error)


def test_many_tasks_are_deleted_by_commands_of_a_thousand(scene: Scene) -> None:
    scene.system.most_tasks = 5000
    scene.launcher.cancel(scene.launcher.launch(2500))
    assert [len(command) - 1 for command in scene.runner.of("drop")] == [1000, 1000, 500]


def test_a_fork_of_the_process_cancels_nothing_when_it_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = scene.launcher
    launcher.launch(1)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: launcher.owner + 1)
        launcher.close()
    assert scene.runner.of("drop") == []
    assert launcher.script.exists()
    launcher.close()
    assert scene.runner.of("drop") == [["drop", f"--name={launcher.name}"]]
    assert not launcher.script.exists()


def test_logs_that_jobs_bring_at_their_end_are_waited_for(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.launcher.brought = BroughtFiles(["python"])
    scene.runner.answers_of["wait"] = Unreachable("no answer within 8 s")
    scene.launcher.launch(1)
    scene.launcher.close()
    assert scene.runner.ran[-1] == ["wait", scene.launcher.name]
    assert "the logs of jobs that have not ended yet are lost" in caplog.text
    assert not scene.launcher.script.exists()


def test_jobs_that_share_files_are_not_waited_for(scene: Scene) -> None:
    scene.launcher.launch(1)
    scene.launcher.close()
    assert scene.runner.of("wait") == []
