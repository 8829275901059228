"""The process of a stand-alone dispatcher, to whoever started it, and its supervisor."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.dispatcher.standalone import process as supervisor
from gridengine.dispatcher.standalone.background import Inherited
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.dispatcher.standalone.process import NOT_AGAIN, _Process, supervise
from gridengine.journal.lock_file import LockFile, is_shown


def test_the_starter_may_be_gone_when_the_dispatcher_is_ready(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    reading, writing = os.pipe()
    os.close(reading)
    process = _Process(DispatcherFolder(tmp_path), Inherited(lock, writing))
    process._is_ready()
    assert process._begun
    os.close(lock)


def test_a_dispatcher_ends_when_another_has_taken_its_place(
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


class Ended:
    """A process that has ended by now."""

    def __init__(self, status: int) -> None:
        self.status = status

    def poll(self) -> int:
        return self.status


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """How long it waits each time: in truth not at all."""
    pauses: list[float] = []

    def told_within(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) == 10

    monkeypatch.setattr(supervisor, "_told_within", told_within)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield pauses
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def starts(*outcomes: int | Exception) -> Callable[[], Any]:
    """Return what starts processes that end so, one after the other."""
    left = list(outcomes)

    def start() -> Ended:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return Ended(outcome)

    return start


@pytest.mark.parametrize("status", [0, NOT_AGAIN])
def test_a_dispatcher_that_ends_in_order_or_never_started_is_not_restarted(
    pauses: list[float], status: int
) -> None:
    assert supervise(starts(-9, 1, status)) == status
    assert pauses == [0.5, 1.0]


def test_the_pause_doubles_up_to_a_minute_while_it_dies_of_its_start(pauses: list[float]) -> None:
    assert supervise(starts(*[-9] * 10)) == -9
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_pause_is_short_again_after_it_has_run_for_long(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 1.0, 2.0, 100.0, 101.0])
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: next(now)))
    assert supervise(starts(-9, -9, 0)) == 0
    assert pauses == [0.5, 0.5]


def test_when_no_process_can_be_had_it_is_tried_again(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    assert supervise(starts(-9, OSError("no memory"), BlockingIOError("no process"), 0)) == 0
    assert pauses == [0.5, 1.0, 2.0]
    assert "cannot be started: no memory" in caplog.text


def test_the_starter_is_told_that_the_first_process_fails() -> None:
    with pytest.raises(OSError, match="no memory"):
        supervise(starts(OSError("no memory")))
