"""What was launched, kept in a file for a dispatcher that is started again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gridengine.dispatcher.launcher_thread import LaunchRecord
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus
from tests.support.noting_launcher import FIRST, SECOND, THIRD, NotingLauncher

LARGE = Demand(Cores(4) & Memory(8))


def save(record: LaunchRecord) -> NotingLauncher:
    """Save a record of a launcher's, and return that."""
    launcher = NotingLauncher()
    record.save(launcher)  # type: ignore[arg-type]
    return launcher


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "launches.json"


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


def test_a_launcher_that_could_not_be_told_what_is_on_record_is_told_later(
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
