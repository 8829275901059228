"""A worker process as a scheduler starts it, at a dispatcher's socket that a test drives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gridengine._version import __version__
from gridengine.schedulers.worker_command import worker_command
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.wire.connection_file import Connection
from gridengine.wire.messages import Assign, Assignment, Define, Hello, Message, Welcome
from gridengine.wire.server import Server
from tests.support.agent_driver import PATIENCE, ROOT
from tests.support.pollers import poller_of


class WorkerDriver:
    """A dispatcher's socket and one worker at it."""

    def __init__(self, folder: Path, *, preexec: Any = None) -> None:
        self.server = server = Server(host="127.0.0.1")
        self.path = folder / "connection.json"
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        keys = server.keys.public, server.keys.peer_public, server.keys.peer_secret
        seconds = 0.2, 60.0, 30.0, 5.0
        Connection("run", server.addresses, 1, __version__, python, *seconds, 1000, *keys).save(
            self.path
        )
        self.log = folder / "log"
        self.received: list[tuple[Message, Payload]] = []
        self.peer = b""
        self.poller = poller_of(self.server)
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

    def wait_for(self, kind: type) -> tuple[Message, Payload]:
        deadline = time.monotonic() + PATIENCE
        while not any(isinstance(message, kind) for message, _ in self.received):
            assert time.monotonic() < deadline, (
                f"waited in vain for {kind.__name__}; {self.received}; {self.log.read_text()}"
            )
            self._receive()
        return next(pair for pair in self.received if isinstance(pair[0], kind))

    def _receive(self) -> None:
        self.poller.poll(100)
        for peer, message, buffers in self.server.receive():
            self.peer = peer
            self.received.append((message, buffers))

    def exit_status(self) -> int:
        """Return the worker's, once it has ended; what it sends last is taken in meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while (status := self.process.poll()) is None:
            assert time.monotonic() < deadline, f"it does not end; {self.received}"
            self._receive()
        return status

    def assign(
        self, function: Callable[..., object], argument: object, *, timeout: float | None = None
    ) -> None:
        self.wait_for(Hello)
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
