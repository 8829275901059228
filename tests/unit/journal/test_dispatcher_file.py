"""The file of a stand-alone dispatcher: what is written is read again, and when that is known."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError
from gridengine.journal import dispatcher_file
from gridengine.journal.dispatcher_file import LATER_SECONDS, VERSION, DispatcherFile
from gridengine.wire.messages import VERSION as PROTOCOL
from tests.support.manual_clock import ManualClock
from tests.support.open_files import open_files

INSERT = "INSERT INTO clients VALUES (?, x'', x'', 0)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def file(path: Path) -> Iterator[DispatcherFile]:
    file = DispatcherFile(path)
    yield file
    file.close()


def clients(file: DispatcherFile) -> list[int]:
    return [number for (number,) in file.read("SELECT number FROM clients")]


def execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_each_process_that_has_the_file_has_a_number_of_its_own(path: Path) -> None:
    for expected in (1, 2, 3):
        file = DispatcherFile(path)
        assert file.epoch == expected
        file.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_counter_goes_on_where_it_was(path: Path) -> None:
    file = DispatcherFile(path)
    assert (file.counted("runs", 10), file.counted("runs", 5)) == (0, 10)
    file.close()
    again = DispatcherFile(path)
    assert again.counted("runs", 1) == 15
    again.close()


def test_callbacks_that_wait_for_the_disk_are_called_in_the_callers_thread(
    file: DispatcherFile,
) -> None:
    woken, called = threading.Event(), list[object]()
    file.wake = woken.set
    file.write(INSERT, [(1,), (2,)], lambda: called.append(threading.current_thread()))
    assert woken.wait(60)
    assert file.pending
    assert called == []
    assert clients(file) == [1, 2]
    file.settle()
    assert called == [threading.current_thread()]
    assert not file.pending
    file.settle()
    assert len(called) == 1


def test_changes_that_belong_together_are_made_together(
    file: DispatcherFile, caplog: pytest.LogCaptureFixture
) -> None:
    woken = threading.Event()
    file.wake = woken.set
    file.write_together((INSERT, [(1,)]), (INSERT, [(2,), (2,)]))
    file.write_together((INSERT, [(3,)]), ("DELETE FROM clients WHERE number = ?", [(4,)]))
    file.write(INSERT, [(5,)], lambda: None)
    assert woken.wait(60)
    assert clients(file) == [3, 5]
    assert "is left out" in caplog.text
    assert file.failure is None


@pytest.mark.linux
def test_a_file_of_a_newer_version_is_let_go_of(path: Path) -> None:
    DispatcherFile(path).close()
    execute(path, f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(ConfigurationError, match="of a newer gridengine"):
        DispatcherFile(path)
    assert open_files(str(path)) == []


def test_messages_of_another_protocol_are_refused_and_an_empty_file_is_not(
    path: Path,
) -> None:
    DispatcherFile(path).close()
    of_another = f"REPLACE INTO counters VALUES ('protocol', {PROTOCOL + 1})"
    execute(path, of_another)
    DispatcherFile(path).close()  # nothing of the other one is in it
    execute(path, "INSERT INTO clients VALUES (1, x'', x'', 0)")
    DispatcherFile(path).close()
    execute(path, of_another)
    with pytest.raises(ConfigurationError, match=f"in protocol {PROTOCOL + 1}, and this one"):
        DispatcherFile(path)


def test_a_file_of_another_kind_is_an_error_and_left_as_it_is(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"no database" * 100)
    with pytest.raises(ConfigurationError, match="cannot be used") as raised:
        DispatcherFile(path)
    assert raised.value.hint is not None
    assert "nothing was changed" in raised.value.hint
    assert path.read_bytes() == b"no database" * 100
    with pytest.raises(ConfigurationError, match="Is a directory"):
        DispatcherFile(tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def deferring(path: Path, clock: ManualClock) -> Iterator[DispatcherFile]:
    file = DispatcherFile(path, clock)
    yield file
    file.close()


def later(file: DispatcherFile, number: int, called: list[int], size: int = 1) -> int:
    return file.write_later(INSERT, (number,), size, lambda: called.append(number))


def sync(file: DispatcherFile) -> None:
    assert file._writer.flush()
    file.settle()


def test_a_deferred_write_is_written_when_it_is_due(
    deferring: DispatcherFile, clock: ManualClock
) -> None:
    called = list[int]()
    assert deferring.deadline == math.inf
    later(deferring, 1, called)
    assert deferring.deadline == clock.monotonic() + LATER_SECONDS
    clock.advance(LATER_SECONDS / 2)
    later(deferring, 2, called)
    deferring.write(INSERT, [(9,)], lambda: called.append(9))
    deferring.write_due(clock.monotonic())
    sync(deferring)
    assert called == [9]
    clock.advance(LATER_SECONDS / 2)
    deferring.write_due(clock.monotonic())
    sync(deferring)
    assert called == [9, 1]
    assert deferring.deadline == clock.monotonic() + LATER_SECONDS / 2


def test_a_deferred_write_that_is_withdrawn_is_never_written(path: Path) -> None:
    file, called = DispatcherFile(path), list[int]()
    numbers = [later(file, number, called) for number in range(3)]
    assert file.withdraw(numbers[1:2]) == numbers[1:2]
    assert file.withdraw(numbers[1:2]) == []
    file.write_now(numbers[:1])
    assert file.withdraw(numbers) == numbers[2:]
    later(file, 4, called)
    file.close()
    file.settle()
    assert called == [0, 4]


def test_deferred_writes_of_very_many_bytes_are_not_deferred(
    file: DispatcherFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_file, "LATER_BYTES", 3)
    called = list[int]()
    numbers = [later(file, number, called) for number in range(2)]
    assert file.withdraw(numbers[:1]) == numbers[:1]
    later(file, 2, called, size=2)
    later(file, 3, called, size=2)  # together they are too many
    sync(file)
    assert called == [1, 2]
