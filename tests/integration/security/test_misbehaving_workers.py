"""A worker with the right key that does what no worker does: its calls fail, others go on, and it
costs no more than it may.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine._version import __version__
from gridengine.dispatcher.run_directory import python_version
from gridengine.schedulers.launcher import LaunchContext
from gridengine.schedulers.local import ProcessLauncher
from gridengine.schedulers.logs import log_tail
from gridengine.settings.values import settings
from gridengine.wire.client import Client
from gridengine.wire.connection_file import Connection
from gridengine.wire.framing import MAGIC, encode
from gridengine.wire.messages import (
    VERSION,
    Assign,
    Hello,
    Message,
    Pushed,
    Refuse,
)
from gridengine.wire.session import _FRAME, _PIECE, MOST_FIRST, Session

PATIENCE_SECONDS = 120
PIECE = 256 * 1024


class Played(gridengine.ProcessScheduler):
    """A cluster whose workers do nothing: the tests play them."""

    local = False

    def __init__(self) -> None:
        super().__init__(1)
        self.runs: queue.SimpleQueue[LaunchContext] = queue.SimpleQueue()

    def launcher(self, run: LaunchContext) -> ProcessLauncher:
        self.runs.put(run)
        return Sleepers(run)


class Sleepers(ProcessLauncher):
    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "600"], start_new_session=True)


class RogueWorker:
    """Plays a worker."""

    def __init__(self, run: LaunchContext) -> None:
        self.client = Client(Connection.load(run.connection))
        self.send(Hello(VERSION, __version__, python_version(), run.id, "rogue", 1, 1, ""))

    def send(self, message: Message, buffers: Any = ()) -> None:
        self.client.send(message, buffers)

    def receive(self, kind: type[Any]) -> Any:
        """Wait for a message of this kind."""
        while True:
            assert self.client.socket.poll(PATIENCE_SECONDS * 1000), f"no {kind.__name__}"
            for message, _ in self.client.receive():
                if isinstance(message, kind):
                    return message


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path / "runs"))
    settings.cache_clear()
    with Played() as one:
        yield one
    settings.cache_clear()


@contextlib.contextmanager
def rogue(scheduler: Played) -> Iterator[RogueWorker]:
    one = RogueWorker(scheduler.runs.get(timeout=PATIENCE_SECONDS))
    with contextlib.closing(one.client):
        yield one


def fifo(path: Path) -> str:
    os.mkfifo(path)
    return str(path)


LOGS: dict[str, Callable[[Path], str]] = {
    "a NUL in it": lambda path: f"{path}\0",
    "a pipe": fifo,
    "endless": lambda path: "/dev/zero",
    "a folder": lambda path: str(path.parent),
    "too long": lambda path: "/x" * 5000,
    "none": str,
}


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS.keys())
def test_whatever_path_of_its_log_a_worker_sends_nothing_is_read_of_what_is_no_file(
    tmp_path: Path, log: Callable[[Path], str]
) -> None:
    assert log_tail(log(tmp_path / "log")) == ""


def endless(speaker: Session, first: bytes | None) -> Iterator[list[bytes]]:
    """Yield the pieces of a message without an end."""
    if first is not None:
        speaker.sent += 1
        yield [speaker._envelope(_FRAME, speaker.sent), first]
    while True:
        speaker.sent += 1
        yield [speaker._envelope(_PIECE, speaker.sent), bytes(PIECE)]


def announcing(size: int) -> bytes:
    """Return the first frame of a message that is followed by one buffer of so many bytes."""
    [header, *_] = encode(Pushed(1), [b""])
    return bytes(header).replace(b"\x91\x00", b"\x91\xcf" + size.to_bytes(8, "big"), 1)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (None, "longer than it said"),
        (announcing(PIECE * 3), "longer than it said"),
        (announcing(2**62), r"has 4,611,686,018,427,387,904 bytes, and this machine"),
    ],
    ids=["of its first frame", "more than it announced", "more than there is memory"],
)
def test_pieces_without_an_end_are_not_taken_in(
    scheduler: Played, first: bytes | None, words: str
) -> None:
    assert first is None or first.startswith(MAGIC)
    with gridengine.Executor(scheduler=scheduler) as executor:
        future = executor.with_options(retries=0).submit(abs, -1)
        with rogue(scheduler) as one:
            one.receive(Assign)
            sent = 0
            for frames in endless(one.client._session, first):
                one.client.socket.send_multipart(frames)
                sent += sum(map(len, frames))
                if future.done() or sent > 2 * MOST_FIRST:
                    break
            error = future.exception(PATIENCE_SECONDS)
            assert isinstance(error, gridengine.WorkerLost)
            assert re.search(f"left .*{words}", error.message)
            one.receive(Refuse)
