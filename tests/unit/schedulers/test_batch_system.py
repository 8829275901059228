"""What batch systems have in common, with one that has nothing but limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gridengine import GridEngineScheduler, SlurmScheduler
from gridengine.errors import ConfigurationError, SubmissionRefused
from gridengine.resources.demand import Demand
from gridengine.schedulers.batch_system import BatchLauncher, exit_report
from gridengine.schedulers.launcher import (
    Handle,
    LaunchContext,
    Report,
    TryAgain,
    Unreachable,
    failed,
)
from gridengine.schedulers.requests import TooMany, refused


class Limited(BatchLauncher[Demand]):
    """A batch system with room for so many tasks, in arrays of a certain size, that says what its
    limit is or does not.
    """

    def __init__(
        self, folder: Path, *, room: int = 10**6, largest: int = 10**6, says: bool = True
    ) -> None:
        super().__init__(LaunchContext("test", folder, folder / "connection", print), script="true")
        self.room, self.most, self.says = room, largest, says
        self.asked: list[int] = []
        self.deleted: list[str] = []
        self.reachable = True

    def request(
        self, count: int, demand: Demand, log: Callable[[object], str]
    ) -> Mapping[str, object]:
        return {"tasks": count, "log": log("TASK")}

    def submit(self, count: int, demand: Demand, log: Callable[[object], str]) -> Sequence[str]:
        self.asked.append(count)
        if count > self.most:
            raise TooMany("too large", self.most)
        if count > self.room:
            raise TooMany("too many") if self.says else SubmissionRefused("no")
        self.room -= count
        return [f"{len(self.asked)}_{task}" for task in range(1, count + 1)]

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        raise NotImplementedError

    def launched(self, handles: Sequence[Handle], demand: Demand) -> None:
        self.tasks.update(dict.fromkeys(handles, demand))

    def delete(self, ids: Sequence[str]) -> None:
        if not self.reachable:
            raise Unreachable("the master is away")
        self.deleted += ids

    def close(self) -> None:
        raise NotImplementedError


def test_each_task_has_a_log_of_its_own(tmp_path: Path) -> None:
    launcher = Limited(tmp_path)
    handles = [*launcher.launch(2), *launcher.launch(1)]
    assert handles == [
        Handle("1_1", f"{tmp_path}/logs/worker.1.1.log"),
        Handle("1_2", f"{tmp_path}/logs/worker.1.2.log"),
        Handle("2_1", f"{tmp_path}/logs/worker.2.1.log"),
    ]


def test_a_limit_on_the_size_of_arrays_is_met_once_and_then_known(tmp_path: Path) -> None:
    launcher = Limited(tmp_path, largest=100)
    assert len(launcher.launch(250)) == 250
    assert launcher.asked == [250, 100, 100, 50]
    assert len(launcher.launch(150)) == 150
    assert launcher.asked[4:] == [100, 50]


def test_fewer_tasks_are_started_where_the_site_limits_their_number(tmp_path: Path) -> None:
    launcher = Limited(tmp_path, room=30)
    assert len(launcher.launch(100)) == 25
    assert launcher.asked == [100, 50, 25]


def test_a_full_site_is_asked_again_later(tmp_path: Path) -> None:
    launcher = Limited(tmp_path, room=0)
    with pytest.raises(TryAgain, match="too many"):
        launcher.launch(5)
    assert launcher.asked == [5, 2, 1]


def test_a_refusal_after_some_were_taken_is_told_with_the_next_launch(tmp_path: Path) -> None:
    launcher = Limited(tmp_path, room=15, largest=10, says=False)
    assert len(launcher.launch(20)) == 10
    with pytest.raises(SubmissionRefused):
        launcher.launch(10)


def test_braces_in_the_run_directory_are_no_placeholders(tmp_path: Path) -> None:
    folder = tmp_path / "{0} {}"
    folder.mkdir()
    assert Limited(folder).launch(1)[0].log == f"{folder}/logs/worker.1.1.log"


def test_a_dry_run_tells_the_submission_and_writes_nothing(tmp_path: Path) -> None:
    plan = Limited(tmp_path).plan(3)
    assert (plan.count, plan.request, plan.script) == (
        3,
        {"tasks": 3, "log": f"{tmp_path}/logs/worker.1.TASK.log"},
        "true",
    )
    assert list(tmp_path.iterdir()) == []


def test_only_tasks_that_are_watched_are_deleted_and_they_are_watched_no_longer(
    tmp_path: Path,
) -> None:
    launcher = Limited(tmp_path)
    first, second = launcher.launch(2)
    launcher.cancel([first, Handle("9_9")])
    launcher.cancel([first])
    assert launcher.deleted == [first.id]
    assert list(launcher.tasks) == [second]


def test_tasks_that_cannot_be_deleted_yet_are_told_and_watched_no_longer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    launcher = Limited(tmp_path)
    handles = launcher.launch(2)
    launcher.reachable = False
    launcher.cancel(handles)
    assert "2 cluster tasks could not be deleted yet: the master is away" in caplog.text
    assert not launcher.tasks


def test_a_fork_of_the_process_deletes_nothing(tmp_path: Path) -> None:
    launcher = Limited(tmp_path)
    handles = launcher.launch(1)
    launcher.owner += 1
    launcher.cancel(handles)
    assert launcher.deleted == []


@pytest.mark.parametrize(
    ("line", "cause", "remedy"),
    [
        (
            "gridengine: the prologue failed with status 7 on node7; the worker was not started",
            "a line of its prologue failed",
            "prologue=",
        ),
        (
            "/opt/python: No module named gridengine",
            "the package gridengine is not there",
            "python=",
        ),
        ("gridengine: the worker could not be started on node7", "its Python", "python="),
        ("the worker on node7 gets no answer of its dispatcher: x", "connect", "GRIDENGINE_HOST"),
        ("the worker on node7 gets no answer of its dispatcher: x", "connect", "transport='files'"),
        (
            "the worker on node7 gets no answer of its dispatcher: file:///runs/x/exchange",
            "cannot write to the run directory",
            "RUN_DIRECTORY",
        ),
        ("/runs/x/connection.json is not a connection file", "run directory", "RUN_DIRECTORY"),
        ("anything else", "exit status 7", "must be there on the node"),
    ],
)
def test_why_a_worker_was_not_started_is_read_from_its_log(
    tmp_path: Path, line: str, cause: str, remedy: str
) -> None:
    log = tmp_path / "log"
    log.write_text(f"before\n{line}\n")
    error = exit_report(Handle("1", str(log)), failed("exit status 7")).error
    assert error is not None
    assert cause in error.message
    assert remedy in (error.hint or "")
    assert error.log_tail == f"before\n{line}"


def test_a_worker_without_a_log_may_have_it_elsewhere(tmp_path: Path) -> None:
    error = exit_report(Handle("1", str(tmp_path / "log")), failed("could not be started")).error
    assert error is not None
    assert "sends output elsewhere" in str(error.hint)


def test_a_refused_option_of_a_file_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gridengine.toml").write_text(
        '[grid_engine]\nqueue = "nosuch.q"\nnative = "-P it"\ngpus = "-l gpu={n}"\n'
    )
    monkeypatch.chdir(tmp_path)
    text = str(refused("no", "-l gpu=2 -q nosuch.q -p 3", None, "grid_engine"))
    file = tmp_path / "gridengine.toml"
    assert f"grid_engine.queue = 'nosuch.q' is set by {file}:2" in text
    assert f"grid_engine.gpus = '-l gpu={{n}}' is set by {file}:4" in text
    assert "-P it" not in text
    assert "said" not in str(refused("no", "-q other.nosuch.q", None, "slurm"))


def test_the_transport_is_the_argument_s_or_the_setting_s(configure: Callable[..., None]) -> None:
    assert SlurmScheduler().transport == "tcp"
    assert GridEngineScheduler(transport="files").transport == "files"
    configure(transport="files")
    assert SlurmScheduler().transport == GridEngineScheduler().transport == "files"
    assert SlurmScheduler(transport="tcp").transport == "tcp"


@pytest.mark.parametrize("wrong", ["file", "", 7, True, ["files"]])
def test_a_transport_that_there_is_not_is_named_with_those_that_there_are(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="transport must be 'tcp' or 'files', not ") as it:
        SlurmScheduler(transport=wrong)
    assert repr(wrong) in it.value.message


def test_workers_with_nothing_to_do_are_kept_as_long_as_the_setting_says(
    configure: Callable[..., None],
) -> None:
    configure(idle_seconds=7)
    assert SlurmScheduler().idle_seconds == GridEngineScheduler().idle_seconds == 7.0


def test_a_command_that_a_node_does_not_find_is_reported_with_the_remedy(tmp_path: Path) -> None:
    log = tmp_path / "worker.1.1.log"
    log.write_text(
        "/runs/r/worker.sh: line 7: exec: apptainer: not found\n"
        "gridengine: the worker could not be started on n1\n"
    )
    error = exit_report(Handle("7", str(log)), failed("exit status 127")).error
    assert error is not None
    assert error.message.endswith(": exit status 127; its command is not in the PATH there")
    assert "prologue=" in (error.hint or "")
