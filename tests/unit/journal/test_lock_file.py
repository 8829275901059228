"""The lock of a stand-alone dispatcher or a named run: one has it, and it says who."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gridengine.errors import JournalError
from gridengine.journal import lock_file
from gridengine.journal.lock_file import (
    SILENT_SECONDS,
    Holder,
    LockFile,
    is_locked,
    is_shown,
    other_machine,
    read_holder,
    take_lock,
)
from tests.support.waiting import wait_until

ELSEWHERE = Holder("elsewhere.example", 12, 2.5, "1.0")


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


@pytest.fixture
def unseen(path: Path) -> Path:
    """A lock file that a process of another machine wrote just now. Its lock is not seen here."""
    lock = LockFile.take(path)
    assert lock is not None
    lock.write(ELSEWHERE)
    lock.close()
    return path


def touched(path: Path, seconds: float) -> Callable[[float], None]:
    """Return a `time.sleep` meanwhile the file is touched, by a clock that is so much ahead."""
    then = time.time() + seconds
    return lambda _: os.utime(path, (then, then))


def test_a_process_of_another_machine_that_touches_the_file_has_the_lock(
    unseen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", touched(unseen, 10))
    with pytest.raises(
        JournalError, match=r"the run is in use by process 12 on elsewhere\.example"
    ):
        take_lock(unseen, "the run", wait=False)
    assert not is_locked(unseen)
    assert other_machine(unseen) == (ELSEWHERE, unseen.stat().st_mtime)


def test_a_process_of_another_machine_that_was_killed_has_the_lock_no_more(
    unseen: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(time, "sleep", touched(unseen, -SILENT_SECONDS))
    take_lock(unseen, "the run", wait=False).close()
    assert "was in use by process 12 on elsewhere.example, since 1970-01-01" in caplog.text
    assert other_machine(unseen) is None


def test_a_waiter_waits_for_a_process_of_another_machine_too(
    unseen: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps = iter([touched(unseen, 10), lambda _: unseen.write_bytes(b"")])
    monkeypatch.setattr(time, "sleep", lambda seconds: next(steps)(seconds))
    take_lock(unseen, "the run", wait=True).close()
    assert "elsewhere.example, since 1970" in caplog.text
    assert "; waiting for it to end" in caplog.text


def test_a_seen_lock_of_a_silent_machine_is_kept_and_the_error_says_how_to_free_it(
    unseen: Path,
) -> None:
    lock = LockFile.take(unseen)
    touched(unseen, -SILENT_SECONDS)(0)
    with pytest.raises(JournalError) as caught:
        take_lock(unseen, "the run", wait=False)
    assert f"down for good, and its lock is still there, delete {unseen}" in str(caught.value.hint)
    assert lock is not None
    lock.close()


def test_a_process_whose_lock_was_taken_over_is_told_whether_the_other_has_ended(
    path: Path,
) -> None:
    lock = take_lock(path, "the run", wait=False)
    lock.check()
    for text, who in (
        (b'{"host":"b","pid":3,"since":1.0,"version":"1"}', "process 3 on b"),
        (b"", "another process"),
    ):
        path.write_bytes(text)
        with pytest.raises(OSError, match=f"{who}.* has taken the run over"):
            lock.check()
    lock.close()


def test_a_run_in_use_touches_its_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_file, "TOUCH_SECONDS", 0.01)
    lock = take_lock(path, "the run", wait=False)
    touched(path, -SILENT_SECONDS)(0)
    wait_until(lambda: is_shown(path))
    lock.close()


def test_a_process_whose_lock_was_taken_over_touches_it_no_more(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    lock = take_lock(path, "the run", wait=False)
    path.write_bytes(b"")
    touched(path, -SILENT_SECONDS)(0)
    ends = iter([False, True])
    monkeypatch.setattr(lock._closed, "wait", lambda seconds: next(ends))
    lock._show()
    assert not is_shown(path)
    lock.close()


def test_the_holder_of_a_lock_says_nothing_to_a_terminal() -> None:
    assert str(Holder("no\x1b[2Jde", 1, 0.0, "1.0")).startswith("process 1 on no [2Jde, since")
