"""How the file of a run is opened, and which files are refused."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from gridengine.errors import JournalError
from gridengine.journal import run_file
from gridengine.journal.run_file import VERSION, connect, explained, open_to_read


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


def test_what_is_there_stays_when_the_file_is_opened_again(path: Path) -> None:
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
    with pytest.raises(JournalError, match="is no file of a run"):
        open_to_read("a", path)


def test_the_file_of_somebody_else_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(path).close()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(JournalError, match="belongs to somebody else"):
        open_to_read("a", path)


def test_what_is_missing_damaged_or_a_folder_is_said_in_our_words(path: Path) -> None:
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


def test_what_is_not_of_the_file_is_raised_as_it_is(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), explained("a", path):
        raise ZeroDivisionError


def test_what_is_said_of_a_file_that_may_not_be_opened_is_not_that_it_is_damaged(
    path: Path,
) -> None:
    with pytest.raises(JournalError) as caught, explained("a", path):
        sqlite3.connect(path / "no_folder")
    assert "may read and write it" in str(caught.value.hint)
