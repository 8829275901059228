"""The process of a stand-alone dispatcher, to whoever started it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridengine.dispatcher.standalone.background import Inherited
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.dispatcher.standalone.process import NOT_AGAIN, _Process
from gridengine.journal.lock_file import LockFile, is_shown


def test_the_starter_may_be_gone_when_the_dispatcher_is_ready(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    reading, writing = os.pipe()
    os.close(reading)
    process = _Process(DispatcherFolder(tmp_path), Inherited(lock, writing))
    process._is_ready()
    assert process._begun
    os.close(lock)


def test_one_shows_that_it_runs_and_ends_when_another_has_taken_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", end)
    folder = DispatcherFolder(tmp_path)
    lock = LockFile.take(folder.lock)
    assert lock is not None
    os.utime(folder.lock, (0, 0))
    assert not is_shown(folder.lock)
    process = _Process(folder, Inherited(lock.descriptor))
    process._show_lock()
    assert is_shown(folder.lock)
    folder.lock.unlink()
    process._show_lock()  # its folder is being removed
    other = LockFile.take(folder.lock)
    assert other is not None
    with pytest.raises(SystemExit, match=str(NOT_AGAIN)):
        process._show_lock()
    assert process.run() == NOT_AGAIN
    lock.close()
    other.close()
