"""The thread that owns a launcher: what it is asked for, what it tells, and what it keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gridengine.dispatcher.core.events import Explained, Launch, Launched, LaunchFailed, Polled
from gridengine.dispatcher.launcher_thread import LauncherThread, LaunchRecord
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, LaunchContext, Report, TryAgain, WorkerStatus
from tests.support.waiting import wait_until

FIRST, SECOND, THIRD = (Handle(f"{n}", f"/runs/logs/worker.{n}.1.log") for n in range(1, 4))
CONTEXT = LaunchContext("run", Path(), Path(), lambda *_: None, epoch=2)


class NotingLauncher:
    """Of the workers that it is asked for the first has always ended."""

    label = request_words = ""

    def __init__(self, run: LaunchContext = CONTEXT) -> None:
        self.adopted: tuple[object, object] | None = None
        self.asked: list[Handle] = []
        self.cancelled: list[Handle] = []
        self.kept: list[Handle] | None = None
        self.closed = False

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        return [FIRST, SECOND][:count]

    def poll(self, handles: Sequence[Handle]) -> dict[Handle, Report]:
        self.asked += handles
        return {FIRST: Report(WorkerStatus.ENDED)}

    def cancel(self, handles: Sequence[Handle]) -> None:
        self.cancelled += handles

    def explain(self, handles: object) -> str:
        return ""

    def facts(self) -> dict[str, str]:
        return {"name": "night"}

    def adopt(self, handles: object, facts: object) -> None:
        self.adopted = handles, facts

    def keep(self, handles: list[Handle]) -> None:
        self.kept = handles

    def close(self) -> None:
        self.closed = True


LAUNCHERS: list[NotingLauncher] = []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "launches.json"


def record(path: Path) -> None:
    """Have it on record that another process has launched two."""
    record = LaunchRecord(path)
    record.add([FIRST, SECOND], ANY)
    record.save(NotingLauncher())  # type: ignore[arg-type]


def thread(
    path: Path | None = None, *, run: LaunchContext = CONTEXT, **methods: Callable[..., Any]
) -> tuple[LauncherThread, list[object]]:
    """Return a thread, and what it tells. Its launcher has these methods in place of its own."""
    LAUNCHERS.clear()
    events: list[object] = []

    def make(run: LaunchContext) -> NotingLauncher:
        LAUNCHERS.append(NotingLauncher(run))
        vars(LAUNCHERS[-1]).update(methods)
        return LAUNCHERS[-1]

    record = None if path is None else LaunchRecord(path)
    made = LauncherThread(make, run, events.append, record)  # type: ignore[arg-type]
    return made, events


def test_requests_are_served_in_order_and_the_end_comes_last() -> None:
    launcher, events = thread()
    launcher.launch(Launch(2))
    launcher.poll([SECOND])
    launcher.explain([FIRST], 5.0)
    launcher.cancel([FIRST])
    launcher.close()
    assert [type(event) for event in events] == [Launched, Polled, Explained]
    [made] = LAUNCHERS
    assert (made.asked, made.cancelled, made.closed) == ([SECOND], [FIRST], True)


def test_a_launcher_that_was_made_already_is_closed_though_it_was_asked_for_nothing() -> None:
    made: Any = NotingLauncher()
    events: list[object] = []
    LauncherThread(lambda run: made, CONTEXT, events.append, made=made).close()
    assert made.closed


def test_a_thread_that_is_asked_for_nothing_makes_no_launcher() -> None:
    launcher, events = thread()
    launcher.poll([])
    launcher.close()
    assert LAUNCHERS == events == []


@pytest.mark.parametrize(
    ("error", "words", "for_now", "kind"),
    [
        (TryAgain("the queue is full"), "the queue is full", True, ClusterError),
        (ConfigurationError("no such queue"), "no such queue", False, ConfigurationError),
        (ZeroDivisionError("own"), "the scheduler failed: ZeroDivisionError", False, ClusterError),
        (KeyboardInterrupt(), "the scheduler failed: KeyboardInterrupt", False, ClusterError),
    ],
)
def test_why_nothing_was_launched_is_told(
    error: BaseException, words: str, for_now: bool, kind: type[Exception]
) -> None:
    launcher, events = thread(launch=Mock(side_effect=error))
    launcher.launch(Launch(2))
    launcher.close()
    [failed] = events
    assert isinstance(failed, LaunchFailed)
    assert type(failed.error) is kind
    assert words in str(failed.error)
    assert failed.for_now is for_now


def test_no_worker_is_launched_that_would_not_find_the_run_directory(tmp_path: Path) -> None:
    run = CONTEXT._replace(directory=tmp_path / "removed")
    launcher, events = thread(run=run)
    launcher.launch(Launch(2))
    launcher.close()
    [failed] = events
    assert isinstance(failed, LaunchFailed)
    assert type(failed.error) is ClusterError
    assert f"somebody has removed the run directory {run.directory}" in str(failed.error)
    assert LAUNCHERS == []


def test_a_batch_system_that_does_not_answer_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def down(self: NotingLauncher, handles: Sequence[Handle]) -> None:
        raise OSError("timed out")

    with monkeypatch.context() as patch:
        patch.setattr(NotingLauncher, "poll", down)
        launcher, events = thread()
        launcher.poll([FIRST])
        wait_until(lambda: "the scheduler does not answer" in caplog.text)
    assert events == []
    wait_until(lambda: launcher.poll([FIRST]) or events)
    launcher.close()


def test_words_of_a_worker_without_an_answer_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quiet, loud = Handle("1", str(tmp_path / "1.log")), Handle("2", str(tmp_path / "2.log"))
    Path(loud.log).write_text("gets no answer of its dispatcher: tcp://10.0.0.7: timed out\n")
    launcher, events = thread()
    launcher.read_log([quiet], 60)
    launcher.read_log([loud], 60)
    with caplog.at_level(logging.WARNING):
        launcher.close()
    assert events == [Explained(loud, "tcp://10.0.0.7: timed out", running=True)]
    assert "cluster job 2 has run for 60 s" in caplog.text


def test_the_launcher_of_a_later_process_goes_on_with_it(path: Path) -> None:
    record(path)
    launcher, events = thread(path)
    launcher.poll([FIRST])
    wait_until(lambda: events)
    [made] = LAUNCHERS
    assert made.adopted is not None
    assert made.adopted[1] == {"name": "night"}
    assert isinstance(events[0], Polled)
    wait_until(lambda: FIRST not in LaunchRecord(path).handles)
    launcher.close()


def test_a_launcher_that_cannot_go_on_now_does_so_later(path: Path) -> None:
    adopt = Mock(side_effect=[ClusterError("the batch system is down"), None])
    record(path)
    launcher, events = thread(path, adopt=adopt)
    for _ in range(3):
        launcher.explain([FIRST], 1.0)
    launcher.poll([FIRST])
    wait_until(lambda: events)
    assert len(LAUNCHERS) == 1
    assert adopt.call_count == 2
    launcher.close()


def test_launched_workers_are_kept_until_the_end(path: Path) -> None:
    launcher, events = thread(path)
    launcher.launch(Launch(2))
    wait_until(lambda: events)
    assert isinstance(events[0], Launched)
    wait_until(lambda: path.exists() and len(LaunchRecord(path).handles) == 2)
    launcher.close()
    assert LAUNCHERS[0].closed
    assert not path.exists()


def test_stopped_workers_leave_the_record(path: Path) -> None:
    launcher, _ = thread(path)
    launcher.launch(Launch(2))
    launcher.cancel([FIRST])
    wait_until(lambda: path.exists() and list(LaunchRecord(path).handles) == [SECOND])
    launcher.close()
    assert LAUNCHERS[0].cancelled == [FIRST]


def test_the_name_of_jobs_is_on_record_before_the_first_submission(path: Path) -> None:
    def killed(count: int, demand: Demand) -> list[Handle]:
        seen.append(LaunchRecord(path))
        raise ClusterError("nobody hears of what was submitted")

    seen: list[LaunchRecord] = []
    launcher, events = thread(path, launch=killed)
    launcher.launch(Launch(2))
    wait_until(lambda: events)
    assert [(one.facts, one.handles) for one in seen] == [({"name": "night"}, {})]
    again, _ = thread(path)
    again.explain([FIRST], 1.0)
    wait_until(lambda: LAUNCHERS and LAUNCHERS[0].adopted == ({}, {"name": "night"}))
    again.close()
    launcher.close()


def test_a_worker_that_has_left_is_polled_until_it_has_ended(path: Path) -> None:
    launcher, events = thread(path)
    launcher.launch(Launch(2))
    wait_until(lambda: events)
    launcher.poll([SECOND])
    wait_until(lambda: len(events) == 2)
    launcher.poll([])
    wait_until(lambda: len(events) == 3)
    assert LAUNCHERS[0].asked == [SECOND, FIRST, SECOND]
    launcher.close()


def test_a_failing_record_is_told_and_written_later(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    launcher, events = thread(path)
    path.mkdir()
    launcher.launch(Launch(2))
    wait_until(lambda: events)
    assert isinstance(events[0], Launched)
    assert "Is a directory" in caplog.text
    path.rmdir()
    launcher.poll([SECOND])
    wait_until(lambda: len(events) == 2)
    assert list(LaunchRecord(path).handles) == [SECOND]
    launcher.close()


def test_a_launcher_without_requests_stops_the_workers_of_an_earlier_one(path: Path) -> None:
    record(path)
    launcher, _ = thread(path)
    launcher.close()
    [made] = LAUNCHERS
    assert made.adopted is not None
    assert made.closed
    assert not path.exists()


def test_workers_of_an_earlier_process_that_cannot_be_stopped_stay_on_record(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record(path)
    launcher, _ = thread(path, adopt=Mock(side_effect=ClusterError("the batch system is down")))
    launcher.close()
    assert LAUNCHERS[0].closed
    assert list(LaunchRecord(path).handles) == [FIRST, SECOND]
    assert "cannot be stopped: ClusterError('the batch system is down'" in caplog.text


LARGE = Demand(Cores(4) & Memory(8))


def save(record: LaunchRecord) -> NotingLauncher:
    """Save a record of a launcher's, and return that."""
    launcher = NotingLauncher()
    record.save(launcher)  # type: ignore[arg-type]
    return launcher


def saved(path: Path) -> LaunchRecord:
    record = LaunchRecord(path)
    record.add([FIRST, SECOND], ANY)
    record.add([THIRD], LARGE)
    save(record)
    return record


def test_a_record_is_read_back_with_its_demands_and_closed_to_others(path: Path) -> None:
    saved(path)
    assert path.stat().st_mode & 0o777 == 0o600
    again = LaunchRecord(path)
    assert again.facts == {"name": "night"}
    assert [(list(one.handles), one.demand) for one in again.launched()] == [
        ([FIRST, SECOND], ANY),
        ([THIRD], LARGE),
    ]


def test_ended_and_stopped_workers_leave_the_record(path: Path) -> None:
    record = saved(path)
    running, ended = Report(WorkerStatus.RUNNING), Report(WorkerStatus.FAILED)
    record.note_reports({FIRST: running, SECOND: ended})
    record.remove([THIRD])
    save(record)
    assert list(LaunchRecord(path).handles) == [FIRST]


def test_an_unchanged_record_is_not_written(path: Path) -> None:
    record = saved(path)
    path.unlink()
    record.note_reports({FIRST: Report(WorkerStatus.RUNNING)})
    record.remove([Handle("unknown")])
    save(record)
    assert not path.exists()


def test_the_launcher_has_those_stay_that_are_on_record(path: Path) -> None:
    record = saved(path)
    assert save(record).kept is None
    record.remove([SECOND])
    assert save(record).kept == [FIRST, THIRD]


def test_a_launcher_that_could_not_be_told_the_recorded_jobs_is_told_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*args: object) -> None:
        raise ClusterError("the batch system is down")

    record = saved(path)
    record.remove([SECOND])
    with monkeypatch.context() as patch:
        patch.setattr(NotingLauncher, "keep", down)
        with pytest.raises(ClusterError):
            save(record)
    assert save(record).kept == [FIRST, THIRD]


def test_a_file_that_is_no_record_is_an_error(path: Path) -> None:
    path.write_text("no")
    path.chmod(0o600)
    with pytest.raises(ConfigurationError):
        LaunchRecord(path)


def test_a_demand_of_a_users_own_kind_is_left_out_and_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Own(Cores):
        """A kind of a user's own."""

    record = LaunchRecord(path)
    record.add([FIRST], Demand(Own(2)))
    record.add([SECOND], ANY)
    with caplog.at_level(logging.WARNING):
        save(record)
    assert list(LaunchRecord(path).handles) == [SECOND]
    assert "will not know" in caplog.text
