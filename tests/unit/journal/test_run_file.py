"""The file of a run: names, payloads, and files that cannot be used."""

from __future__ import annotations

import mmap
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from gridengine.errors import JournalError
from gridengine.journal import run_file, writer
from gridengine.journal.lock_file import Holder, LockFile, is_locked
from gridengine.journal.run_file import (
    VERSION,
    RunFile,
    StoredBlock,
    connect,
    explained,
    lock_of,
    open_run,
    open_to_read,
    path_of,
    payload_of,
    release,
)
from gridengine.settings import files


def somebody_elses(facts: os.stat_result) -> str:
    return "it belongs to another user"


@pytest.mark.parametrize("name", ["", "a/b", "x" * 201, "a\0", "a\nb"])
def test_a_name_that_can_be_no_file_is_refused(name: str) -> None:
    with pytest.raises(JournalError, match="is not a name of a run"):
        path_of(name)


def test_a_folder_is_one_for_the_file(tmp_path: Path) -> None:
    assert path_of("a", tmp_path) == tmp_path / "a.sqlite"
    assert path_of("a", tmp_path / "b.db") == tmp_path / "b.db"


@pytest.mark.parametrize(
    "payload", [[b"\x80abc"], [b"\x80abc", b"", bytearray(100), memoryview(b"x" * 70_000)]]
)
def test_a_payload_is_read_as_it_was_written(payload: list[bytes]) -> None:
    blob = bytes(run_file._Blob(payload).__conform__(None))
    assert [bytes(one) for one in payload_of(blob)] == [bytes(one) for one in payload]


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"a.sqlite: No such file or directory") as caught:
        RunFile("a", tmp_path / "nosuch" / "a.sqlite")
    assert f"a folder {tmp_path}/nosuch in which" in str(caught.value.hint)


def test_programs_of_one_process_share_a_run(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    first, second = (open_run("a", path, wait=False) for _ in range(2))
    assert first is second
    release(first)
    assert second.begin() == run_file.MOST_CALLS
    release(second)
    third = open_run("a", path, wait=False)
    assert third is not first
    release(third)


def test_a_file_that_is_refused_is_let_go_of(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    run_file.connect(path).close()
    path.chmod(0o666)
    with pytest.raises(JournalError, match="others may write to it"):
        RunFile("a", path)
    path.chmod(0o600)
    RunFile("a", path).close()


def test_a_file_begun_and_never_written_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.touch()
    run = RunFile("a", path)
    run.begin()
    run.close()
    again = RunFile("a", path)
    assert again.session == 1
    again.close()


# ---------------------------------------------------------------- run schema


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.sqlite"


def execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_new_file_gets_its_tables_and_is_closed_to_others(path: Path) -> None:
    connect(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    connection = open_to_read("a", path)
    assert connection.execute("SELECT count(*) FROM results").fetchone() == (0,)
    connection.close()


def test_a_file_that_was_begun_and_never_written_gets_its_tables(path: Path) -> None:
    path.touch()
    connection = open_to_read("a", path)
    assert connection.execute("SELECT count(*) FROM results").fetchone() == (0,)
    connection.close()


def test_rows_stay_when_the_file_is_opened_again(path: Path) -> None:
    connection = connect(path)
    connection.execute("INSERT INTO orders VALUES (1, 2, 3, 4, 5)")
    connection.close()
    again = connect(path)
    assert again.execute("SELECT * FROM orders").fetchall() == [(1, 2, 3, 4, 5)]
    again.close()


def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    connect(path).close()
    execute(path, f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(JournalError, match="was written by a newer version"):
        open_to_read("a", path)


def test_another_database_is_left_alone(path: Path) -> None:
    execute(path, "CREATE TABLE t (a)")
    with pytest.raises(JournalError, match="is not the file of a run"):
        open_to_read("a", path)


def test_the_file_of_somebody_else_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(path).close()
    monkeypatch.setattr(writer, "why_open", somebody_elses)
    with pytest.raises(JournalError, match="it belongs to another user"):
        open_to_read("a", path)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_folder_in_which_others_may_leave_files_beside_it_is_refused_by_every_opener(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(files, "_is_own_group", lambda facts: False)
    connect(path).close()
    path.parent.chmod(mode)
    for opener in (
        lambda: open_to_read("a", path),
        lambda: RunFile("a", path),
        lambda: RunFile("b", path.with_name("new.sqlite")),
        lambda: connect(path),
    ):
        with pytest.raises(JournalError, match="others may write to it") as caught:
            opener()
        assert str(path.parent) in caught.value.message
    assert not is_locked(path.with_name(f"{path.name}.lock"))
    assert not path.with_name("new.sqlite").exists()


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_a_file_that_others_may_write_is_refused_before_sqlite_opens_anything(
    path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(path).close()
    one = path.with_name(f"{path.name}{end}")
    one.touch()
    one.chmod(0o622)
    monkeypatch.setattr(run_file.sqlite3, "connect", pytest.fail)
    with pytest.raises(JournalError, match="others may write to it") as caught:
        open_to_read("a", path)
    assert str(one) in caught.value.message


def test_a_link_is_looked_at_where_it_leads(path: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    connect(shared / "a.sqlite").close()
    shared.chmod(0o1777)
    path.unlink(missing_ok=True)
    path.symlink_to(shared / "a.sqlite")
    with pytest.raises(JournalError, match="shared is not this user's alone"):
        open_to_read("a", path)


def test_a_missing_or_damaged_file_is_told_in_our_words(path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        open_to_read("a", path)
    path.write_bytes(b"no database" * 100)
    with pytest.raises(JournalError, match="cannot be read") as damaged:
        open_to_read("a", path)
    assert "move the file away" in str(damaged.value.hint)
    path.unlink()
    path.mkdir()
    with pytest.raises(JournalError, match="cannot be read"):
        open_to_read("a", path)


def test_an_empty_file_that_cannot_be_written_is_said_in_our_words(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database or disk is full")

    path.touch()
    monkeypatch.setattr(run_file, "connect", full)
    with pytest.raises(JournalError, match="disk is full"):
        open_to_read("a", path)


def test_errors_that_are_not_of_the_file_are_raised_unchanged(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), explained("a", path):
        raise ZeroDivisionError


def test_a_file_that_may_not_be_opened_is_not_called_damaged(path: Path) -> None:
    with pytest.raises(JournalError) as caught, explained("a", path):
        sqlite3.connect(path / "no_folder")
    assert "may read and write it" in str(caught.value.hint)


def test_a_result_that_is_too_large_is_one_line_and_the_others_are_stored(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = RunFile("a", path)
    run.begin()
    block = run.add_block(StoredBlock(1, 0, 2, b"", None), [b"arguments"])
    with mmap.mmap(-1, 1_000_000_001) as large:  # never touched, so it takes no memory
        run.add_result((block, 0, 1, 0), [large], None, raised=False)
        run.add_result((block, 1, 2, 0), [b"small"], None, raised=False)
        run.close()
    [record] = caplog.records
    assert "a result of over 1 GB cannot be stored, and its calls will run" in record.getMessage()
    assert record.exc_info is None
    connection = open_to_read("a", path)
    assert connection.execute("SELECT start, payload FROM results").fetchall() == [(1, b"small")]
    connection.close()


# ---------------------------------------------------------------- several machines


def add_results(path: Path, count: int) -> None:
    """Have a process look up what a run has, and add as many results of a block."""
    run = RunFile("a", path)
    run.read()
    run.begin()
    block = run.add_block(StoredBlock(1, 0, count, b"", None), [b"arguments"])
    run.add_result((block, 0, count, 0), [b"result"], None, raised=False)
    run.close()


@pytest.fixture
def on_network(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Say whether this machine has the file from a network."""

    def say(is_so: bool) -> None:
        for module in (run_file, writer):
            monkeypatch.setattr(module, "is_on_network", lambda path: is_so)

    return say


def test_a_run_goes_on_with_machines_that_have_the_disk_and_others_by_turns(
    path: Path, on_network: Callable[[bool], None], caplog: pytest.LogCaptureFixture
) -> None:
    for count, is_so in enumerate([False, True, True, False, True]):
        on_network(is_so)
        add_results(path, count + 1)
    assert caplog.text == ""
    connection = open_to_read("a", path)
    assert connection.execute("SELECT stop FROM results").fetchall() == [*zip(range(1, 6))]
    connection.close()


def test_the_log_of_a_machine_that_has_the_disk_is_left_alone_by_others(
    path: Path, on_network: Callable[[bool], None]
) -> None:
    on_network(False)
    writing = connect(path)
    writing.execute("INSERT INTO orders VALUES (1, 2, 3, 4, 5)")
    lock = LockFile.take(lock_of(path))
    assert lock is not None
    lock.write(Holder("server", 12, 2.5, "1.0"))
    on_network(True)
    with pytest.raises(JournalError, match="cannot be read on this machine now: process 12 on se"):
        open_to_read("a", path)
    writing.close()
    lock.close()
    connection = open_to_read("a", path)
    assert connection.execute("SELECT * FROM orders").fetchall() == [(1, 2, 3, 4, 5)]
    connection.close()


def test_nothing_is_written_once_another_machine_has_taken_the_run_over(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_results(path, 1)
    run = RunFile("a", path)
    run.begin()
    run.writer.flush()
    lock_of(path).write_bytes(b"")  # and has ended
    run.add_block(StoredBlock(1, 0, 1, b"", None), [b"arguments"])
    run.close()
    assert "this process was silent, and another process has taken the run over" in caplog.text
    assert "these are lost" in caplog.text
    connection = open_to_read("a", path)
    assert connection.execute("SELECT count(*) FROM blocks").fetchone() == (1,)
    connection.close()


def test_a_fork_leaves_the_run_to_its_parent(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFile("a", path)
    locked = lock_of(path).read_bytes()
    with monkeypatch.context() as fork:
        fork.setattr(os, "getpid", lambda: -1)
        run.close()
    assert lock_of(path).read_bytes() == locked
    run.begin()
    run.close()
    connection = open_to_read("a", path)
    assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
    connection.close()
