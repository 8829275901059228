"""What is known of runs that are over."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.errors import ClusterError
from gridengine.status.rows import Status
from gridengine.watching.dispatcher_lookup import answer_of
from gridengine.watching.names import NotKnown, SeveralMeant
from gridengine.watching.runs_on_disk import (
    MOST_KILLED,
    MOST_LOOKED_AT,
    OtherRun,
    ended_answers,
    ended_words,
    heading,
    other_runs,
)
from tests.support.watched import WHO, FakeWatched, Machine, save_connection, silent

OLD = WatchAnswer(replace(WHO, run_id="20261101-000000-node7-17-0a1b2c", pid=17), Status())
LAST = WatchAnswer(WHO, Status(done=3))


@pytest.fixture
def reports(tmp_path: Path, machine: Machine) -> Path:
    """A folder with the reports of two runs, of which none is under way."""
    machine.ended(OLD, LAST)
    return tmp_path / "state" / "gridengine" / "reports"


def told(name: str) -> tuple[int, bool]:
    """Return the process of what is answered of a run, and whether that is under way."""
    answer, runs = answer_of(name)
    return answer.identity.pid, runs


@pytest.mark.parametrize("name", ["", "sweep", "sweep.py", "4242", "20261123"])
def test_a_run_that_is_over_is_found_by_its_names(reports: Path, name: str) -> None:
    assert told(name) == (4242, False)


def test_the_last_run_of_a_name_has_it_and_the_others_have_numbers(reports: Path) -> None:
    assert told("17") == (17, False)
    assert [one.identity.pid for one in ended_answers()] == [4242, 17]


def test_an_unknown_run_is_told_as_not_running(reports: Path) -> None:
    with pytest.raises(NotKnown, match="no dispatcher 'nosuch' runs"):
        answer_of("nosuch")


@pytest.mark.parametrize("running", [1, 2])
def test_no_ended_run_takes_the_place_of_a_running_one(
    reports: Path, machine: Machine, running: int
) -> None:
    for pid in range(1, 1 + running):
        machine.add(FakeWatched(silent if running == 1 else None), pid)
    with pytest.raises(ClusterError if running == 1 else SeveralMeant):
        answer_of("sweep")


@pytest.mark.parametrize("content", [b"", b'{"identity": 1}', b"\xff"])
def test_a_report_that_cannot_be_read_hides_no_other(reports: Path, content: bytes) -> None:
    (reports / "20261124.json").write_bytes(content)
    assert [one.identity.pid for one in ended_answers()] == [4242, 17]


def test_the_end_of_a_run_is_told() -> None:
    words = ended_words(WatchAnswer(WHO, Status(elapsed_seconds=60.0)))
    assert words.startswith("sweep.py, process 4242 on login1, ended at 19")
    assert words.endswith(":01:00")


def test_the_heading_names_the_runs_of_which_nothing_is_kept() -> None:
    assert heading(LAST, "4242") == heading(LAST, WHO.run_id) == ended_words(LAST)
    assert heading(LAST, "").startswith("the last run that left a record: sweep.py, ")
    assert heading(LAST, "sweep").startswith("the last run 'sweep' that left a record: ")
    assert "nothing is kept of runs of this machine's processes" in heading(LAST, "sweep")


KILLED, RUNS = 900_004_243, os.getpid()
"""Processes: no system numbers one so high."""


def killed(machine: Machine, pid: int) -> Path:
    return machine.killed(pid, f"20261123-094500-node7-{pid:010}-0a1b2d")


def test_a_run_whose_process_was_killed_is_found_and_told_to_be(
    reports: Path, machine: Machine
) -> None:
    for pid in (KILLED, RUNS):
        killed(machine, pid)
    answer, runs = answer_of("sweep.py")
    assert (answer.identity.pid, answer.killed, runs) == (KILLED, True, False)
    assert f"process {KILLED} on login1, was killed; it began at" in ended_words(answer)
    assert [one.identity.pid for one in ended_answers()] == [KILLED, 4242, 17]


def test_the_last_killed_runs_are_remembered(reports: Path, machine: Machine) -> None:
    pids = [KILLED + n for n in range(MOST_KILLED, -1, -1)]
    *later, first = [killed(machine, pid) for pid in pids]
    os.utime(first, (0, 0))
    runs = killed(machine, RUNS)
    assert [one.identity.pid for one in ended_answers() if one.killed] == pids[:-1]
    assert {*machine.folder.iterdir()} == {*later, runs}


@pytest.fixture
def runs(tmp_path: Path, machine: Machine) -> Path:
    """The run directory."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


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


def test_a_run_with_a_reachable_connection_file_is_under_way(runs: Path) -> None:
    folder = runs / "20261123-093000-node7-4242-0a1b2c"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        save_connection(folder, f"tcp://127.0.0.1:{server.getsockname()[1]}")
        assert [one.under_way for one in other_runs(set())] == [True]
    assert [one.under_way for one in other_runs(set())] == [False]


def test_the_newest_unknown_runs_come_first_and_other_folders_are_left_out(runs: Path) -> None:
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


def test_without_a_run_directory_there_are_none(machine: Machine) -> None:
    assert other_runs(set()) == []
