"""The lock of a stand-alone dispatcher: one has it, and it says who."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from pathlib import Path

import pytest

from gridengine.errors import JournalError
from gridengine.journal.lock_file import Holder, LockFile, is_locked, read_holder, take_lock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_one_of_two_processes_has_the_lock(path: Path) -> None:
    first = LockFile.take(path)
    assert first is not None
    assert LockFile.take(path) is None
    assert is_locked(path)
    first.close()
    assert not is_locked(path)
    assert LockFile.take(path) is not None


def test_asking_for_the_holder_takes_no_lock(path: Path) -> None:
    assert not is_locked(path)
    path.touch()
    assert not is_locked(path)
    assert LockFile.take(path) is not None


def test_a_lock_file_is_closed_to_others(path: Path) -> None:
    before = os.umask(0)
    try:
        LockFile.take(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_lock_names_its_holder_also_after_one_with_a_longer_name(path: Path) -> None:
    lock = LockFile.take(path)
    assert lock is not None
    assert read_holder(path) is None
    lock.write(Holder("a-host-with-a-long-name", 4711, 1.5, "1.0"))
    holder = Holder("node7", 12, 2.5, "1.0", supervisor=11)
    lock.write(holder)
    assert read_holder(path) == holder
    lock.write(None)
    assert read_holder(path) is None


def test_a_lock_whose_file_was_taken_away_before_it_was_locked_is_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open
    files: list[int] = []

    def take_away_after_opening(*arguments: object, **options: object) -> int:
        files.append(opened(*arguments, **options))  # type: ignore[arg-type]
        if len(files) == 1:
            path.unlink()
        return files[-1]

    monkeypatch.setattr(os, "open", take_away_after_opening)
    lock = LockFile.take(path)
    assert lock is not None
    assert lock.descriptor == files[1]


def test_a_holder_on_this_host_is_known_by_the_host() -> None:
    assert Holder.here().is_here
    assert Holder.here().pid == os.getpid()
    assert not Holder("elsewhere.example", 1, 0.0, "1.0").is_here


# ---------------------------------------------------------------- owner lock


def test_the_second_is_told_the_holder_of_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = take_lock(path, "the run", wait=False)
    who = f"the run is in use by process {os.getpid()} on {socket.gethostname()}, since 20"
    with pytest.raises(JournalError, match=who):
        take_lock(path, "the run", wait=False)
    first.close()
    take_lock(path, "the run", wait=False).close()


def test_a_waiter_has_the_lock_of_a_file_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "lock", fcntl.fcntl

    def delete_first(descriptor: int, command: int, request: bytes) -> bytes:
        path.unlink()
        monkeypatch.setattr(fcntl, "fcntl", real)
        return real(descriptor, command, request)

    monkeypatch.setattr(fcntl, "fcntl", delete_first)
    first = take_lock(path, "the run", wait=True)
    with pytest.raises(JournalError):
        take_lock(path, "the run", wait=False)
    first.close()


@pytest.mark.linux
def test_a_file_system_without_locks_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(descriptor: int, command: int, request: bytes) -> bytes:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    lock = take_lock(tmp_path / "lock", "the run", wait=False)
    assert "has no locks (No locks available)" in caplog.text
    lock.close()


def test_the_holder_of_a_lock_says_nothing_to_a_terminal() -> None:
    assert str(Holder("no\x1b[2Jde", 1, 0.0, "1.0")).startswith("process 1 on no [2Jde, since")
