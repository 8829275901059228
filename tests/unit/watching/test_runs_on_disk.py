"""What is known of runs that are over."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import Identity, WatchAnswer
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.settings.schema import Settings
from gridengine.status.rows import Status
from gridengine.watching import dispatcher_lookup
from gridengine.watching import runs_on_disk as module
from gridengine.watching.dispatcher_lookup import answer_of
from gridengine.watching.names import NotKnown, SeveralMeant
from gridengine.watching.runs_on_disk import (
    MOST_LOOKED_AT,
    OtherRun,
    ended_answers,
    ended_words,
    heading,
    other_runs,
)

WHO = Identity(
    *("sweep.py", "20261123-093000-node7-4242-0a1b2c", 4242, "node7", "/s/sweep.py", "/s"),
    *(0.0, "Slurm", "1.2", "3.11"),
)
OLD = WatchAnswer(replace(WHO, run_id="20261101-000000-node7-17-0a1b2c", pid=17), Status())
LAST = WatchAnswer(WHO, Status(done=3))


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the reports of two runs, of which none is under way."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "runtime_files", lambda end: [])
    folder = tmp_path / "gridengine" / "reports"
    folder.mkdir(parents=True)
    for one in (OLD, LAST):
        (folder / f"{one.identity.run_id}.json").write_bytes(msgspec.json.encode(one))
    meant(monkeypatch, NotKnown("no dispatcher runs"))
    return folder


def told(name: str) -> tuple[int, bool]:
    """Return the process of what is answered of a run, and whether that is under way."""
    answer, runs = answer_of(name)
    return answer.identity.pid, runs


def meant(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Have none be connected to, for this reason."""

    def connect(name: str) -> None:
        raise error

    monkeypatch.setattr(dispatcher_lookup, "connect", connect)


@pytest.mark.parametrize("name", ["", "sweep", "sweep.py", "4242", "20261123"])
def test_a_run_that_is_over_is_found_by_its_names(reports: Path, name: str) -> None:
    assert told(name) == (4242, False)


def test_the_last_run_of_a_name_has_it_and_the_others_have_numbers(reports: Path) -> None:
    assert told("17") == (17, False)
    assert [one.identity.pid for one in ended_answers()] == [4242, 17]


def test_an_unknown_run_is_told_as_not_running(reports: Path) -> None:
    with pytest.raises(NotKnown, match="no dispatcher runs"):
        answer_of("nosuch")


@pytest.mark.parametrize(
    "error", [SeveralMeant("two"), ClusterError("silent"), ConfigurationError("it was killed")]
)
def test_no_ended_run_takes_the_place_of_a_running_one(
    reports: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    meant(monkeypatch, error)
    with pytest.raises(type(error)):
        answer_of("sweep")


@pytest.mark.parametrize("content", [b"", b'{"identity": 1}', b"\xff"])
def test_a_report_that_cannot_be_read_hides_no_other(reports: Path, content: bytes) -> None:
    (reports / "20261124.json").write_bytes(content)
    assert [one.identity.pid for one in ended_answers()] == [4242, 17]


def test_the_end_of_a_run_is_told() -> None:
    words = ended_words(WatchAnswer(WHO, Status(elapsed_seconds=60.0)))
    assert words.startswith("sweep.py, process 4242 on node7, ended at 19")
    assert words.endswith(":01:00")


def test_above_what_is_told_it_is_said_which_runs_are_not_kept() -> None:
    assert heading(LAST, "4242") == heading(LAST, WHO.run_id) == ended_words(LAST)
    assert heading(LAST, "").startswith("the last run that left a record: sweep.py, ")
    assert heading(LAST, "sweep").startswith("the last run 'sweep' that left a record: ")
    assert "nothing is kept of runs of this machine's processes" in heading(LAST, "sweep")


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this machine's dispatchers: process 4243 was killed, 4244 runs."""
    folder = tmp_path / "sockets"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(module, "runtime_files", lambda end: list(folder.glob(f"*{end}")))
    monkeypatch.setattr(module, "started", lambda pid: int(pid == 4244))
    for pid in (4243, 4244):
        record(folder, pid)
    return folder


def record(folder: Path, pid: int) -> None:
    who = replace(WHO, pid=pid, run_id=f"20261123-094500-node7-{pid}-0a1b2d")
    (folder / f"{pid}-0a1b2c.json").write_bytes(msgspec.json.encode(who))


def test_a_run_whose_process_was_killed_is_found_and_told_to_be(
    reports: Path, records: Path
) -> None:
    answer, runs = answer_of("sweep.py")
    assert (answer.identity.pid, answer.killed, runs) == (4243, True, False)
    assert "process 4243 on node7, was killed; it began at" in ended_words(answer)
    assert [one.identity.pid for one in ended_answers()] == [4243, 4242, 17]


def test_the_last_killed_runs_are_remembered(
    reports: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_KILLED", 2)
    for pid in (4245, 4246):
        record(records, pid)
    os.utime(records / "4243-0a1b2c.json", (0, 0))
    assert [one.identity.pid for one in ended_answers() if one.killed] == [4246, 4245]
    assert sorted(path.name[:4] for path in records.iterdir()) == ["4244", "4245", "4246"]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory; of runs that have a connection file somebody is to be reached."""
    monkeypatch.setattr(module, "settings", lambda: Settings(run_directory=tmp_path))
    monkeypatch.setattr(module, "is_under_way", lambda file: True)
    return tmp_path


def names(found: list[OtherRun]) -> list[str]:
    return [Path(one.folder).name for one in found]


def test_a_run_is_read_from_the_name_of_its_folder(runs: Path) -> None:
    folder = runs / "20261123-093000-node-7-4242-0a1b2c"
    folder.mkdir()
    began = time.mktime((2026, 11, 23, 9, 30, 0, 0, 0, -1))
    assert other_runs(set()) == [OtherRun(str(folder), "node-7", 4242, began, False)]


def test_workers_by_hand_are_on_a_host_as_others_are(runs: Path) -> None:
    (runs / "20261123-093000-up-node7-4242-0a1b2c").mkdir()
    assert [one.host for one in other_runs(set())] == ["node7"]


def test_a_run_with_a_reachable_connection_file_is_under_way(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = runs / "20261123-093000-node7-4242-0a1b2c"
    folder.mkdir()
    (folder / "connection.json").touch()
    assert [one.under_way for one in other_runs(set())] == [True]
    monkeypatch.setattr(module, "is_under_way", lambda file: False)
    assert [one.under_way for one in other_runs(set())] == [False]


def test_the_last_come_first_and_neither_what_is_known_nor_other_folders(runs: Path) -> None:
    made = [f"2026112{day}-093000-node7-1-0a1b2c" for day in (3, 1, 2)]
    for name in (*made, "dispatchers", "20261123", "notes-20261123-093000-node7-1-0a1b2c"):
        (runs / name).mkdir()
    assert names(other_runs({made[2]})) == [made[0], made[1]]


def test_only_the_last_of_very_many_runs_are_read(runs: Path) -> None:
    for number in range(MOST_LOOKED_AT + 5):
        (runs / f"20261123-0930{number:02}-node7-1-0a1b2c").mkdir()
    found = names(other_runs(set()))
    assert len(found) == MOST_LOOKED_AT
    assert found[0] == f"20261123-0930{MOST_LOOKED_AT + 4:02}-node7-1-0a1b2c"


def test_without_a_run_directory_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(run_directory=tmp_path / "nosuch")
    monkeypatch.setattr(module, "settings", lambda: settings)
    assert other_runs(set()) == []
