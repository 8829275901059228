"""The lock of a run's file: who has it, and file systems that have none."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

import pytest

from gridengine.errors import JournalError
from gridengine.journal.lock_file import take_lock


def test_the_second_is_told_who_has_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = take_lock(path, "the run", wait=False)
    who = f"the run is in use by process {os.getpid()} on {socket.gethostname()}, since 20"
    with pytest.raises(JournalError, match=who):
        take_lock(path, "the run", wait=False)
    first.close()
    take_lock(path, "the run", wait=False).close()


def test_who_waited_while_the_file_was_deleted_has_the_lock_of_the_new_one(
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


def test_a_file_system_without_locks_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(descriptor: int, command: int, request: bytes) -> bytes:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    lock = take_lock(tmp_path / "lock", "the run", wait=False)
    assert "has no locks (No locks available)" in caplog.text
    lock.close()
