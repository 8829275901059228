"""How a dispatcher in the background is started and ended."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import psutil
import pytest

from gridengine.dispatcher.standalone import background
from gridengine.dispatcher.standalone.background import replacing_options
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, StartOptions
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.journal.lock_file import Holder, LockFile
from gridengine.wire import connection_file


def test_options_that_a_full_disk_does_not_take_are_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_private(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(connection_file, "write_private", write_private)
    with pytest.raises(ConfigurationError, match=r"options.json: No space left on device"):
        background.write_options(DispatcherFolder(tmp_path), StartOptions("processes"))
    assert not list(tmp_path.iterdir())


def test_a_start_that_fails_leaves_no_options_or_those_that_there_were(tmp_path: Path) -> None:
    folder = DispatcherFolder(tmp_path)
    with pytest.raises(ClusterError), replacing_options(folder, StartOptions("slurm")):
        raise ClusterError("no")
    assert not list(tmp_path.iterdir())
    with replacing_options(folder, StartOptions("processes")):
        assert folder.options() == StartOptions("processes")
    with pytest.raises(ClusterError), replacing_options(folder, StartOptions("slurm")):
        raise ClusterError("no")
    assert folder.options() == StartOptions("processes")


def test_a_start_that_is_interrupted_may_go_on_by_its_options(tmp_path: Path) -> None:
    folder = DispatcherFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt), replacing_options(folder, StartOptions("slurm")):
        raise KeyboardInterrupt
    assert folder.options() == StartOptions("slurm")


class Ending:
    """A process that ends, and is gone, as soon as it is told to."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def send_signal(self, number: int) -> None:
        self.told.append(number)

    def resume(self) -> None:
        raise psutil.NoSuchProcess(1)


def test_processes_that_are_gone_once_they_were_told_to_end_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, processes = DispatcherFolder(tmp_path), [Ending(), Ending()]
    lock = LockFile.take(folder.lock)
    assert lock is not None
    lock.write(Holder.here())
    monkeypatch.setattr(background, "_processes", lambda *_: processes)
    monkeypatch.setattr(background, "wait_for_end", lambda *_: True)
    background.end_processes(folder, 1.0)
    lock.close()
    assert [one.told for one in processes] == [[signal.SIGTERM]] * 2
