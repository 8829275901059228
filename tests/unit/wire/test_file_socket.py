"""When files are written and looked for, and what the thread that does so tells its loop."""

from __future__ import annotations

import errno
import logging
import os
import select
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from gridengine.errors import GridEngineError
from gridengine.wire import file_socket
from gridengine.wire.exchange_folder import ALIVE, DISPATCHER, MOST_BYTES, MOST_FILES, make_folder
from gridengine.wire.file_socket import (
    FORGET_SECONDS,
    QUICK_SECONDS,
    RETRY_SECONDS,
    SLOW_SECONDS,
    Files,
    FileSocket,
)
from gridengine.wire.session import Frames, Session
from tests.support.manual_clock import ManualClock
from tests.support.waiting import wait_until

KEY = b"key"
WORKER = "aa"
NOW = 1000.0
session = Session(1000)
[MESSAGE] = session.number([b"message"])
BEAT = session.unnumbered([b"beat"])


@pytest.fixture
def exchange(tmp_path: Path) -> Path:
    for name in DISPATCHER, WORKER:
        make_folder(tmp_path / name)
    (tmp_path / ALIVE).touch()
    return tmp_path


@pytest.fixture
def files(exchange: Path) -> Files:
    """Return the dispatcher's end."""
    return Files(exchange, DISPATCHER, DISPATCHER, KEY)


@pytest.fixture
def worker(exchange: Path) -> Files:
    return Files(exchange, WORKER, WORKER, KEY)


def say(files: Files, peer: str, frames: Frames, now: float = NOW) -> None:
    files.put(peer, frames, now)
    files.step(now, reads=False)
    assert files.is_sent


def next_look(files: Files, now: float) -> float:
    """Return in how many seconds it looks next, once it has looked."""
    files._look_at = now
    files.step(now)
    return round(files._look_at - now, 6)


def test_a_folder_is_read_often_while_messages_come(files: Files, worker: Files) -> None:
    assert next_look(files, NOW) == SLOW_SECONDS
    say(worker, DISPATCHER, MESSAGE)
    assert next_look(files, NOW) == QUICK_SECONDS
    waits = [next_look(files, NOW + later) for later in (0.5, 2, 4, 60)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (QUICK_SECONDS, SLOW_SECONDS)


def test_an_answer_is_looked_for_soon_though_nothing_came_for_long(
    files: Files, worker: Files
) -> None:
    next_look(worker, NOW)
    assert worker.deadline == NOW + SLOW_SECONDS
    say(worker, DISPATCHER, MESSAGE)
    assert worker.deadline == NOW + QUICK_SECONDS


def test_signs_of_life_do_not_make_it_look_more_often(files: Files, worker: Files) -> None:
    next_look(worker, NOW)
    say(worker, DISPATCHER, BEAT)
    assert worker.deadline == NOW + SLOW_SECONDS
    assert next_look(files, NOW) == SLOW_SECONDS


def test_envelopes_wait_for_room(files: Files, worker: Files) -> None:
    for _ in range(MOST_FILES):
        say(worker, DISPATCHER, MESSAGE)
    worker.put(DISPATCHER, MESSAGE, NOW)
    worker.step(NOW)
    assert not worker.is_sent
    assert worker.deadline == NOW + QUICK_SECONDS
    assert len(files.step(NOW)) == MOST_FILES
    worker.step(NOW + QUICK_SECONDS)
    assert worker.is_sent


def test_a_full_folder_keeps_no_other_waiting(exchange: Path, files: Files) -> None:
    make_folder(exchange / "bb")
    for _ in range(MOST_FILES + 1):
        files.put(WORKER, MESSAGE, NOW)
        files.step(NOW)
    files.put("bb", MESSAGE, NOW)
    files.step(NOW)
    assert [one.name[:10] for one in (exchange / "bb").iterdir()] == [DISPATCHER]


def test_a_full_disk_is_told_once_and_its_end_too_and_nothing_is_lost(
    files: Files,
    worker: Files,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(path: Path, target: Path) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    rename = Path.rename
    monkeypatch.setattr(Path, "rename", refuse)
    worker.put(DISPATCHER, MESSAGE, NOW)
    with caplog.at_level(logging.WARNING, "gridengine"):
        for later in range(3):
            worker.step(NOW + later * RETRY_SECONDS)
        monkeypatch.setattr(Path, "rename", rename)
        worker.step(NOW + 2.5 * RETRY_SECONDS)
        assert not worker.is_sent, "it is not tried without a pause"
        worker.step(NOW + 3 * RETRY_SECONDS)
    assert worker.is_sent
    assert len(files.step(NOW)) == 1
    told = [record.message for record in caplog.records]
    assert len(told) == 2
    assert "No space left on device; it is tried again each second" in told[0]
    assert "possible again" in told[1]


def test_a_failure_for_one_peer_is_told_once_though_others_can_be_written_to(
    exchange: Path, files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rename, refused = Path.rename, {"ab"}

    def rename_some(path: Path, target: Path) -> Path:
        if path.parent.name in refused:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_some)
    (exchange / "ab").mkdir()
    files.put("ab", MESSAGE, NOW)
    for later in range(3):
        files.put(WORKER, MESSAGE, NOW)
        files.step(NOW + later * RETRY_SECONDS)
    refused.clear()
    files.step(NOW + 3 * RETRY_SECONDS)
    told = [record.message.split(f" {exchange}")[0] for record in caplog.records]
    assert told == ["cannot write to", "it was possible again to write to"]


def test_a_folder_that_cannot_be_read_now_is_tried_again(
    exchange: Path, files: Files, worker: Files, caplog: pytest.LogCaptureFixture
) -> None:
    say(worker, DISPATCHER, MESSAGE)
    (exchange / DISPATCHER).chmod(0o777)
    with caplog.at_level(logging.WARNING, "gridengine"):
        assert files.step(NOW) == []
        (exchange / DISPATCHER).chmod(0o700)
        assert len(files.step(NOW + SLOW_SECONDS)) == 1
    assert "is not this user's alone" in caplog.text or "cannot read" in caplog.text
    assert not files.is_gone


def test_a_folder_that_is_missing_three_times_is_gone(exchange: Path, worker: Files) -> None:
    worker.step(NOW)
    shutil.rmtree(exchange / WORKER)
    for later in range(1, 4):
        assert not worker.is_gone
        worker.step(NOW + later * SLOW_SECONDS)
    assert worker.is_gone


def test_a_folder_that_is_missing_now_and_then_is_not_gone(exchange: Path, worker: Files) -> None:
    for later in range(0, 10, 2):
        (exchange / WORKER).rename(exchange / "away")
        worker.step(NOW + later * SLOW_SECONDS)
        (exchange / "away").rename(exchange / WORKER)
        worker.step(NOW + (later + 1) * SLOW_SECONDS)
    assert not worker.is_gone


def test_envelopes_for_a_missing_folder_are_dropped(exchange: Path, files: Files) -> None:
    shutil.rmtree(exchange / WORKER)
    files.put(WORKER, MESSAGE, NOW)
    files.step(NOW)
    assert files.is_sent


def test_the_folder_of_a_worker_that_is_lost_stays_for_a_while(
    exchange: Path, files: Files
) -> None:
    files.step(NOW)
    files.forget(WORKER, NOW)
    files.step(NOW + FORGET_SECONDS - 1)
    say(files, WORKER, MESSAGE, NOW + FORGET_SECONDS - 1)  # a refusal, say
    assert list((exchange / WORKER).iterdir())
    assert files.deadline <= NOW + FORGET_SECONDS
    files.step(NOW + FORGET_SECONDS)
    assert not (exchange / WORKER).exists()


def test_the_folder_of_a_worker_that_comes_back_stays(
    exchange: Path, files: Files, worker: Files
) -> None:
    files.forget(WORKER, NOW)
    say(worker, DISPATCHER, BEAT)
    files.step(NOW)
    files.step(NOW + FORGET_SECONDS)
    assert (exchange / WORKER).exists()


def test_a_dispatcher_touches_its_mark_and_a_worker_does_not(
    exchange: Path, files: Files, worker: Files
) -> None:
    mark = exchange / ALIVE
    os.utime(mark, (1, 1))
    worker.step(NOW)
    assert mark.stat().st_mtime == 1
    files.step(NOW)
    assert mark.stat().st_mtime > 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sockets(exchange: Path, clock: ManualClock) -> Iterator[tuple[FileSocket, FileSocket]]:
    ends = [FileSocket(exchange, name, name, KEY, clock=clock) for name in (DISPATCHER, WORKER)]
    yield ends[0], ends[1]
    for end in ends:
        end.close(0.0)


def test_an_envelope_arrives_and_wakes_the_loop(
    sockets: tuple[FileSocket, FileSocket], clock: ManualClock
) -> None:
    dispatcher, worker = sockets
    poller = select.poll()
    poller.register(dispatcher.fd, select.POLLIN)
    assert not dispatcher.pending
    worker.send(DISPATCHER, MESSAGE)
    worker.send(DISPATCHER, BEAT)
    clock.advance_until(lambda: len(dispatcher._arrived) == 2)
    assert poller.poll(60_000)
    assert dispatcher.receive() == (WORKER, MESSAGE)
    assert dispatcher.pending
    assert dispatcher.receive() == (WORKER, BEAT)
    assert dispatcher.receive() is None
    assert poller.poll(0) == []


def test_a_loop_that_receives_nothing_keeps_the_sender_waiting(
    sockets: tuple[FileSocket, FileSocket], clock: ManualClock
) -> None:
    dispatcher, worker = sockets
    [large] = Session(MOST_BYTES).number([bytes(MOST_BYTES // 8)])
    for _ in range(40):
        worker.send(DISPATCHER, large)
    clock.advance_until(lambda: dispatcher._came >= MOST_BYTES)
    for _ in range(5):
        clock.advance(SLOW_SECONDS)
    assert dispatcher._came <= 2 * MOST_BYTES
    assert not worker._files.is_sent
    received = 0
    while received < 40:
        clock.advance_until(lambda: dispatcher.pending)
        while dispatcher.receive() is not None:
            received += 1


def test_a_loop_is_told_that_its_folder_is_gone(
    sockets: tuple[FileSocket, FileSocket], clock: ManualClock, exchange: Path
) -> None:
    _, worker = sockets
    shutil.rmtree(exchange / WORKER)
    clock.advance_until(lambda: worker.is_gone)
    poller = select.poll()
    poller.register(worker.fd, select.POLLIN)
    assert poller.poll(60_000)


def test_an_end_writes_the_messages_that_it_was_given_last(
    sockets: tuple[FileSocket, FileSocket], clock: ManualClock
) -> None:
    dispatcher, worker = sockets
    worker.send(DISPATCHER, MESSAGE)
    worker.close(60.0)
    clock.advance_until(lambda: dispatcher.pending)
    assert dispatcher.receive() == (WORKER, MESSAGE)


def test_an_end_that_cannot_write_is_closed_all_the_same(
    sockets: tuple[FileSocket, FileSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(file_socket.Outbox, "flush", refuse)
    sockets[1].send(DISPATCHER, MESSAGE)
    sockets[1].close(0.0)
    assert not sockets[1]._thread.is_alive()


def test_a_fault_of_the_thread_is_an_error_of_its_loop(
    exchange: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Files, "step", fail)
    end = FileSocket(exchange, WORKER, WORKER, KEY)
    wait_until(lambda: not end._thread.is_alive())
    with pytest.raises(GridEngineError, match="a fault"):
        end.receive()
    end.close(0.0)
