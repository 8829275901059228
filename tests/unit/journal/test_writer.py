"""The writer: group commits, and what becomes of what cannot be written."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gridengine.journal import writer
from gridengine.journal.writer import JournalWriter, is_on_network, leave_wal, open_connection
from tests.support.waiting import wait_until


def connector(path: Path) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        connection = open_connection(str(path))
        connection.execute("CREATE TABLE IF NOT EXISTS t (a)")
        return connection

    return connect


def rows(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    try:
        return [a for (a,) in connection.execute("SELECT a FROM t ORDER BY rowid")]
    finally:
        connection.close()


def insert(
    made: JournalWriter, value: object, on_durable: Callable[[], object] | None = None
) -> None:
    made.do(lambda connection: connection.execute("INSERT INTO t VALUES (?)", (value,)), on_durable)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.sqlite"


def test_a_change_is_on_disk_when_its_callback_is_called(path: Path) -> None:
    made, seen, called = JournalWriter(connector(path), "the file"), [], threading.Event()

    def look() -> None:
        seen.extend(rows(path))
        called.set()

    insert(made, 1, look)
    assert called.wait(60)
    assert seen == [1]
    made.close()


def test_flush_returns_once_all_is_on_disk(path: Path) -> None:
    made = JournalWriter(connector(path), "the file", delay_seconds=3600)
    insert(made, 1)
    assert made.flush()
    assert rows(path) == [1]
    made.close()


def test_changes_that_arrive_together_are_one_commit(path: Path) -> None:
    made = JournalWriter(connector(path), "the file", delay_seconds=3600)
    commits: list[int] = []
    for number in range(5):
        made.do(lambda connection: commits.append(connection.total_changes))
        insert(made, number)
    made.do(lambda connection: commits.append(int(connection.in_transaction)))
    made.close()
    assert commits == [0, 1, 2, 3, 4, 1]


def test_changes_that_cannot_be_written_are_kept_and_told_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = iter([sqlite3.OperationalError("database or disk is full")] * 3)
    connect = connector(path)

    def connect_or_fail() -> sqlite3.Connection:
        if error := next(refusals, None):
            raise error
        return connect()

    made = JournalWriter(connect_or_fail, "the file")
    with caplog.at_level(logging.WARNING):
        insert(made, 1)
        wait_until(made.flush)
    assert rows(path) == [1]
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("the file cannot be written: database or disk is full")
    assert "written again" in second
    assert made.close()


def test_a_file_that_was_removed_is_neither_written_nor_made_anew(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = JournalWriter(connector(path), "the file")
    insert(made, 1)
    assert made.flush()
    path.unlink()
    insert(made, 2)
    assert not made.flush()
    assert not made.close()
    assert "the file cannot be written: somebody has removed it" in caplog.text
    assert "1 change could not be written: somebody has removed it; these are lost" in caplog.text
    assert not path.exists()


def test_closing_tells_changes_that_could_not_be_written(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> sqlite3.Connection:
        raise sqlite3.OperationalError("database is locked")

    made = JournalWriter(refuse, "the file")
    insert(made, 1)
    assert not made.close()
    told = "1 change could not be written: database is locked; these are lost"
    assert told in caplog.text


def test_lost_changes_are_told_before_the_writer_gives_them_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given_up: list[bool] = []

    def look(record: logging.LogRecord) -> bool:
        given_up.append(made.flush(0.0))
        return True

    def refuse() -> sqlite3.Connection:
        raise sqlite3.OperationalError("database is locked")

    made = JournalWriter(refuse, "the file", delay_seconds=3600)
    insert(made, 1)
    with caplog.filtering(look):
        made.close()
    assert given_up == [False]


def test_an_impossible_change_is_left_out_alone(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = iter([sqlite3.OperationalError("database or disk is full")])

    def act(connection: sqlite3.Connection) -> None:
        if error := next(refusals, None):
            raise error
        connection.execute("INSERT INTO t VALUES (3)")

    made = JournalWriter(connector(path), "the file", delay_seconds=3600)
    insert(made, 1)
    insert(made, object())
    made.do(act)
    wait_until(made.flush)
    assert made.close()
    assert "could not be written, and is left out" in caplog.text
    assert rows(path) == [1, 3]


def test_nothing_is_taken_after_it_was_closed(path: Path) -> None:
    made = JournalWriter(connector(path), "the file")
    made.close()
    with pytest.raises(ValueError, match="closed"):
        insert(made, 1)
    assert made.close()


def test_each_commit_waits_for_the_disk(path: Path) -> None:
    connection = open_connection(str(path))
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.close()


# ---------------------------------------------------------------- file systems


TABLE = """\
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/scratch\\040disk xfs rw 0 0
tank /data fuse.sshfs rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    table = tmp_path / "mounts"
    table.write_text(TABLE)
    real = Path.read_text
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda path, **how: real(table if str(path) == "/proc/self/mounts" else path, **how),
    )
    return table


@pytest.mark.linux
@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/var/a.sqlite", False),
        ("/home/me/a.sqlite", True),
        ("/home/scratch disk/a.sqlite", False),
        ("/data/a.sqlite", True),
    ],
)
def test_the_innermost_mount_counts(mounts: Path, path: str, shared: bool) -> None:
    assert is_on_network(Path(path)) is shared


@pytest.mark.linux
def test_an_unknown_file_system_counts_as_shared(mounts: Path) -> None:
    mounts.unlink()
    assert is_on_network(Path("/var/a"))


@pytest.mark.linux
@pytest.mark.parametrize(("kind", "mode"), [("ext4", "wal"), ("nfs", "delete")])
def test_a_networks_file_system_gets_no_log_in_shared_memory(
    mounts: Path, tmp_path: Path, kind: str, mode: str
) -> None:
    mounts.write_text(f"x / {kind} rw 0 0\n")
    connection = writer.open_connection(str(tmp_path / "a.sqlite"))
    assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
    connection.close()


def test_a_file_leaves_the_write_ahead_log_when_the_last_other_has_closed_it(
    tmp_path: Path,
) -> None:
    closing = connector(tmp_path / "file")()
    connection = sqlite3.connect(tmp_path / "file", check_same_thread=False)
    assert rows(tmp_path / "file") == []
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        leave_wal(connection, 0.0)
    thread = threading.Thread(target=leave_wal, args=(connection, 60.0))
    thread.start()
    closing.close()
    thread.join()
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
