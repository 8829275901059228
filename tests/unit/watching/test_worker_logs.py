"""Which logs are meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import Line, WatchAnswer
from gridengine.status.figures import EndedCall, FailureStatus
from gridengine.status.rows import ConnectedWorkerStatus, FunctionStatus, RunStatus, Status
from gridengine.watching.dispatcher_lookup import answer_of
from gridengine.watching.names import NotKnown, SeveralMeant
from gridengine.watching.worker_logs import find_logs
from tests.support.watched import WHO, Machine

NAMES = "worker.4711.1.log", "worker.4711.2.log", "worker.4712.1.log"


@pytest.fixture
def folder(tmp_path: Path, machine: Machine) -> Path:
    """The folder of a run under way: call 5 runs on the first worker, call 6 failed on the
    second.
    """
    (tmp_path / "logs").mkdir()
    paths = [str(tmp_path / "logs" / name) for name in NAMES]
    for path in paths:
        Path(path).touch()
    run = RunStatus("1.5", "call 5 of f", "f", 1, 1.0, "node1", "4711.1", paths[0], "w1", 1, 3)
    failure = FailureStatus("1.6", "call 6 of f", "f", 1, 2.0, log=paths[1])
    worker = ConnectedWorkerStatus(
        *("w1", "node1", 7, "4711.1", paths[0], "busy", 60.0, 1.0, None, 1, 5, 1, 0, 0)
    )
    status = Status(runs=[run], failures=[failure, failure], workers=[worker])
    machine.says(WatchAnswer(replace(WHO, folder=str(tmp_path)), status, [Line(3.0, "it begins")]))
    return tmp_path / "logs"


def known(machine: Machine, **changes: object) -> None:
    """Have the run under way answer otherwise."""
    machine.says(replace(answer_of("sweep", "report")[0], **changes))


def found(which: str = "", *, failed: bool = False) -> list[str]:
    return [path.name for path in find_logs("sweep", which, failed=failed)[1]]


def test_logs_are_those_of_the_folder_after_the_dispatchers_own_lines(folder: Path) -> None:
    told, paths, may_come, *_ = find_logs("sweep", "", failed=False)
    [line] = told
    assert re.fullmatch(r"[\d -]*\d\d:\d\d:57 it begins", line)
    assert [path.name for path in paths] == list(NAMES)
    assert may_come
    assert not find_logs("sweep", "nosuch", failed=False).may_come


@pytest.mark.parametrize(
    ("which", "names"),
    [
        *(("5", NAMES[:1]), ("1.5", NAMES[:1]), ("call 5 of f", NAMES[:1]), ("6", NAMES[1:2])),
        *(("node1", NAMES[:1]), ("4711.1", NAMES[:1]), ("w1", NAMES[:1])),
        *(("worker.4712.1", NAMES[2:]), (NAMES[2], NAMES[2:]), ("nosuch", ())),
        *(("4712", ()), ("1", ()), ("4712.1", ())),
    ],
)
def test_logs_are_named_by_call_worker_or_file(
    folder: Path, which: str, names: tuple[str, ...]
) -> None:
    assert found(which) == list(names)


def test_the_log_of_a_call_that_is_done_is_that_of_the_worker_that_ran_it(
    folder: Path, machine: Machine
) -> None:
    log = str(folder / NAMES[2])
    done = EndedCall(
        "f", "n 4712.1", 1.0, 2.0, 3, False, "1.10", "call 10 of f", "n", "4712.1", log
    )
    known(machine, timeline=[done])
    for which in ("10", "call 10 of f", "12", "1.11", "4712.1", "n"):
        assert found(which) == [NAMES[2]]
    assert found("13") == found("9") == found("1.13") == []


def test_a_call_without_a_log_is_told_why(folder: Path, machine: Machine) -> None:
    known(machine, status=Status(functions=[FunctionStatus("f", done=20, numbered=20)]))
    assert find_logs("sweep", "4", failed=False).why.startswith(
        "call 4 is done; its worker is not known, because only an even sample of calls"
    )
    assert "'44' names no call" in find_logs("sweep", "44", failed=False).why
    known(machine, status=Status(local=True))
    assert "print to the output of the script" in find_logs("sweep", "44", failed=False).why


def test_logs_of_failed_calls_are_told_once(folder: Path) -> None:
    assert found(failed=True) == [NAMES[1]]


def test_a_log_that_is_gone_is_left_out(folder: Path) -> None:
    (folder / NAMES[1]).unlink()
    assert found(failed=True) == []
    assert found() == [NAMES[0], NAMES[2]]


def test_logs_of_an_unknown_run_are_in_its_folder(tmp_path: Path, machine: Machine) -> None:
    run = left(tmp_path, "20261123")
    for name in (run.name, "20261123", "0a1b2c", "17", str(run), ""):
        told, paths, may_come, *_ = find_logs(name, "worker.4712.1", failed=False)
        assert (told, [path.name for path in paths], may_come) == ([], [NAMES[2]], False)
    for other, failed in (("nosuch", False), ("", True), ("17", True)):
        with pytest.raises(NotKnown, match=r"no dispatcher|has ended"):
            find_logs(other, "", failed=failed)


def left(tmp_path: Path, begun: str) -> Path:
    """Return the folder of a run, with logs."""
    run = tmp_path / "runs" / f"{begun}-093000-node7-17-0a1b2c"
    (run / "logs").mkdir(parents=True)
    for name in NAMES:
        (run / "logs" / name).touch()
    return run


@pytest.mark.parametrize(("begun", "last"), [("20261124", True), ("20261122", False)])
def test_without_a_name_the_last_run_is_meant_whether_it_has_left_a_report_or_not(
    tmp_path: Path, machine: Machine, begun: str, last: bool
) -> None:
    run = left(tmp_path, begun)
    machine.ended(WatchAnswer(WHO, lines=[Line(3.0, "it begins", False)]))
    found = find_logs("", "", failed=False)
    names = [path.name for path in found.paths]
    assert (names, bool(found.told)) == ([*NAMES] * last, not last)
    assert (run.name in found.heading) is last
    assert find_logs("sweep", "", failed=False).told


@pytest.mark.parametrize("runs", [True, False])
def test_output_without_a_log_is_told_by_the_run_or_its_report(
    machine: Machine, runs: bool
) -> None:
    (machine.says if runs else machine.ended)(WatchAnswer(WHO, printed="call 5 speaks\n"))
    assert find_logs("sweep", "", failed=False)[:4] == ([], [], False, "call 5 speaks\n")
    assert find_logs("sweep", "5", failed=False).printed == ""  # nobody knows whose lines they are


def test_no_folder_takes_the_place_of_several_runs(tmp_path: Path, machine: Machine) -> None:
    left(tmp_path, "20261124")
    machine.says(*(WatchAnswer(replace(WHO, run_id=f"{n}", pid=n)) for n in (1, 2)))
    with pytest.raises(SeveralMeant):
        find_logs("", "", failed=False)
