"""A worker as a scheduler starts it, at a real socket: how it comes, works and goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gridengine._version import __version__
from gridengine.schedulers.worker_command import worker_command
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.wire.connection import Connection
from gridengine.wire.messages import (
    VERSION,
    Assign,
    Assignment,
    Define,
    Goodbye,
    Hello,
    Message,
    Refuse,
    Results,
    Started,
    Stop,
    Welcome,
)
from gridengine.wire.transport import Server
from tests.support.agent_driver import (
    PATIENCE,
    ROOT,
    alive,
    leave_a_grandchild,
    wait_for,
    written,
)


class Office:
    """A dispatcher's socket and one worker at it."""

    def __init__(self, folder: Path, *, lease_seconds: float = 60.0, preexec: Any = None) -> None:
        self.server = server = Server(host="127.0.0.1")
        self.path = folder / "connection.json"
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        keys = server.server_key, server.worker_public, server.worker_secret
        Connection(
            "run", server.addresses, 1, __version__, python, 0.2, lease_seconds, 5.0, 1000, *keys
        ).save(self.path)
        self.log = folder / "log"
        self.said: list[tuple[Message, Payload]] = []
        self.peer = b""
        self.poller = self.server.poller()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                worker_command(sys.executable, self.path),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=preexec,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    def until_heard(self, kind: type) -> tuple[Message, Payload]:
        deadline = time.monotonic() + PATIENCE
        while not any(isinstance(message, kind) for message, _ in self.said):
            assert time.monotonic() < deadline, (
                f"waited in vain for {kind.__name__}; {self.said}; {self.log.read_text()}"
            )
            self.poller.poll(100)
            for peer, message, buffers in self.server.receive():
                self.peer = peer
                self.said.append((message, buffers))
        return next(pair for pair in self.said if isinstance(pair[0], kind))

    def assign(
        self, function: Callable[..., object], argument: object, *, timeout: float | None = None
    ) -> None:
        self.until_heard(Hello)
        self.server.send(self.peer, Welcome())
        digest, payload = pickling.dump_function(function)
        self.server.send(
            self.peer,
            Define(digest, [entry.encode() for entry in sys.path if entry], b"/", len(payload)),
            payload,
        )
        calls = pickling.dump_calls([argument])
        assignment = Assignment(
            1, 1, digest, 0, 1, 0, 0, watched=True, timeout=timeout, buffers=len(calls)
        )
        self.server.send(self.peer, Assign([assignment]), calls)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.server.close()


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path)
    yield made
    made.close()


def linger(path: str) -> None:
    leave_a_grandchild(path + ".grandchild")
    wait_for(written(Path(path + ".grandchild")))
    Path(path).write_text(f"{os.getpid()} {os.getppid()} {Path(path + '.grandchild').read_text()}")
    signal.pause()


def processes(path: Path) -> list[int]:
    wait_for(written(path))
    return list(map(int, path.read_text().split()))


def test_a_worker_tells_who_it_is(office: Office) -> None:
    hello, _ = office.until_heard(Hello)
    assert isinstance(hello, Hello)
    assert (hello.protocol, hello.version, hello.run_id, hello.slots) == (
        VERSION,
        __version__,
        "run",
        1,
    )
    assert (hello.pid, hello.log) == (office.process.pid, str(office.log))


def test_a_worker_whose_log_has_a_path_that_is_no_text_works(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    office = Office(folder)
    try:
        hello, _ = office.until_heard(Hello)
        assert isinstance(hello, Hello)
        assert hello.log == f"{tmp_path}/caf\\xe9/log"
        office.assign(print, "hello")
        office.until_heard(Results)
    finally:
        office.close()


def test_a_worker_works_and_its_log_has_what_calls_print(office: Office) -> None:
    office.assign(print, "hello from afar")
    _, buffers = office.until_heard(Results)
    assert bytes(buffers[-2]) == b"hello from afar\n"
    office.server.send(office.peer, Stop())
    office.until_heard(Goodbye)
    assert office.process.wait(PATIENCE) == 0
    assert office.log.read_text() == "hello from afar\n"


@pytest.mark.parametrize("way", ["stop", "SIGTERM", "SIGKILL", "SIGUSR2"])
def test_however_a_worker_ends_no_process_is_left(office: Office, tmp_path: Path, way: str) -> None:
    office.assign(linger, str(tmp_path / "pids"))
    office.until_heard(Started)
    pids = processes(tmp_path / "pids")
    if way == "stop":
        office.server.send(office.peer, Stop())
    else:
        office.process.send_signal(signal.Signals[way])
    if way != "SIGKILL":
        goodbye, _ = office.until_heard(Goodbye)
        assert goodbye == Goodbye("told to stop" if way == "stop" else "terminated")
    assert office.process.wait(PATIENCE) == (-signal.SIGKILL if way == "SIGKILL" else 0)
    wait_for(lambda: not any(map(alive, pids)))
    assert office.log.read_text() == ""


def test_a_refused_worker_says_why_in_its_log(office: Office) -> None:
    office.until_heard(Hello)
    office.server.send(office.peer, Refuse("of another version"))
    assert office.process.wait(PATIENCE) == 3
    assert "refused: of another version" in office.log.read_text()


def test_a_worker_that_hears_nothing_leaves_when_its_lease_has_run_out(tmp_path: Path) -> None:
    office = Office(tmp_path, lease_seconds=0.5)
    office.until_heard(Hello)
    assert office.process.wait(PATIENCE) == 1
    assert office.until_heard(Goodbye)[0] == Goodbye("no word from the dispatcher for 0.5 seconds")
    office.close()


def test_a_missing_connection_file_is_named_without_a_traceback(tmp_path: Path) -> None:
    command = worker_command(sys.executable, tmp_path / "missing")
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert str(tmp_path / "missing") in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    for name in ("zmq", "random", "msgspec", "dill"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger ran')")
    command = worker_command(sys.executable, tmp_path / "missing")
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "a stranger ran" not in done.stderr
    assert done.returncode == 2
