"""What the journal has of all clients together, and which files are refused."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.serving.journaled_workers import read_runs, read_workers
from gridengine.dispatcher.serving.shared_journal import Journal, open_file
from gridengine.errors import ConfigurationError, JournalError, VersionMismatch
from gridengine.journal.dispatcher_file import DispatcherFile
from gridengine.serialize.byte_code import PYTHON
from gridengine.wire.messages import VERSION
from tests.support.journaled_client import HELLO, Process, again, hand_in


def test_no_process_gives_a_client_a_number_that_one_before_has_given(
    process: Process, tmp_path: Path
) -> None:
    given = {process.journal.new_client() for _ in range(5000)}
    assert len(given) == 5000
    process.sync()
    other = again(process, tmp_path)
    assert other.journal.first_client == other.journal.new_client() > max(given)


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    made = Process(tmp_path / "journal.sqlite")
    made.file._reader.execute("PRAGMA user_version = 99")
    made.file.close()
    with pytest.raises(ConfigurationError, match="newer gridengine"):
        DispatcherFile(tmp_path / "journal.sqlite")


def test_a_file_of_another_protocol_is_refused_while_it_holds_anything(tmp_path: Path) -> None:
    def protocol(path: Path, number: int) -> None:
        made = DispatcherFile(path)
        made._reader.execute("UPDATE counters SET value = ? WHERE name = 'protocol'", (number,))
        made.close()

    path = tmp_path / "journal.sqlite"
    made = Process(path)
    hand_in(made, 1)
    made.file.close()
    protocol(path, VERSION - 1)
    with pytest.raises(ConfigurationError, match=f"in protocol {VERSION - 1}, and this one speaks"):
        DispatcherFile(path)
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT count(*) FROM requests").fetchone() == (2,)
        file.execute("DELETE FROM clients")
    DispatcherFile(path).close()
    protocol(path, VERSION)  # which it has again


@pytest.mark.parametrize(
    ("hello", "words"),
    [(b"GEp\x07", "speaks protocol 7"), (b"\xff\xff", "not a message of protocol version")],
)
def test_a_file_with_a_message_that_cannot_be_read_is_refused_by_its_name(
    tmp_path: Path, hello: bytes, words: str
) -> None:
    path = tmp_path / "journal.sqlite"
    made = Process(path)
    hand_in(made, 1)
    made.file.close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE clients SET hello = ?", (hello,))
    with pytest.raises(ConfigurationError, match=f"journal {path} cannot be used: .*{words}") as at:
        open_file(path)
    assert "move it away to begin without its calls" in str(at.value.hint)


@pytest.mark.parametrize(("python", "served"), [(PYTHON, True), ("", True), ("2.7", False)])
def test_a_file_with_calls_of_another_python_is_refused_and_left_alone(
    tmp_path: Path, python: str, served: bool
) -> None:
    path = tmp_path / "journal.sqlite"
    made = Process(path, replace(HELLO, python=python))
    hand_in(made, 1)
    made.file.close()
    if served:
        open_file(path).close()
    else:
        with pytest.raises(VersionMismatch, match=r"calls of Python 2\.7, and this is Python 3"):
            open_file(path)
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT count(*) FROM requests").fetchone() == (2,)


@pytest.mark.parametrize(
    ("insert", "read", "words"),
    [
        ("workers VALUES (x'01', x'00')", read_workers, "a row of workers is damaged"),
        ("assigned VALUES (1, x'01', x'00')", read_runs, "a row of assigned is damaged"),
        ("states VALUES (7, 0, x'00')", lambda file: Journal(file).states(), "row 7 of states is"),
    ],
)
def test_a_file_with_a_damaged_row_of_no_client_is_refused(
    tmp_path: Path, insert: str, read: Callable[[DispatcherFile], object], words: str
) -> None:
    with contextlib.closing(DispatcherFile(tmp_path / "journal.sqlite")) as file:
        file._reader.execute(f"INSERT INTO {insert}")
        with pytest.raises(JournalError, match=f"cannot be used: {words}"):
            read(file)


def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        DispatcherFile(path)
    assert path.read_bytes() == b"no database" * 1000


def test_saved_states_outlive_the_process_until_their_calls_have_ended(
    process: Process, tmp_path: Path
) -> None:
    process.journal.record_state(5, 0, (b"first", bytearray(b"buffer")))
    process.journal.record_state(5, 1, (b"other",))
    process.journal.record_state(5, 0, (b"second",))
    process.sync()
    assert again(process, tmp_path).journal.states() == {5: {0: [b"second"], 1: [b"other"]}}
    process.journal.record_state(5, 0, None)
    assert process.rows("states") == 2, "the outcome is not recorded yet"
    process.journal.delete_states()
    assert process.rows("states") == 1


def test_a_state_that_no_row_can_hold_is_not_recorded_nor_is_one_from_before(
    process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    process.journal.record_state(5, 0, (b"small",))
    monkeypatch.setattr("gridengine.dispatcher.journal_limits.MOST_BYTES", 10)
    process.journal.record_state(5, 0, (bytes(11),))
    assert process.rows("states") == 0
    assert "save the path of a file" in caplog.text
