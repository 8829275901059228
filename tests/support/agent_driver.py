"""Drives a real agent, with its fork server and runners, as a dispatcher would, without a
transport.
"""

from __future__ import annotations

import io
import itertools
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gridengine.output.stream_writer import StandardStreams
from gridengine.serialize import pickling
from gridengine.serialize.payload import SINGLE, Payload
from gridengine.wire.messages import VALUES, Assign, Assignment, Define, Message, Results, portions
from gridengine.worker import runner
from gridengine.worker.agent import Agent
from gridengine.worker.forkserver import ForkServer
from tests.support.manual_clock import STEP, ManualClock

ROOT = Path(__file__).parents[2]
PATIENCE = 120
GRACE_SECONDS = 5.0


@dataclass
class Dispatcher:
    """Drives an agent, and keeps all messages that it sends."""

    agent: Agent
    received: list[tuple[Message, Payload]] = field(default_factory=list)
    values: dict[tuple[int, int], Any] = field(default_factory=dict)
    raised: dict[tuple[int, int], BaseException] = field(default_factory=dict)
    output: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    clock: ManualClock = field(default_factory=ManualClock)

    def receive(self, message: Message, buffers: Payload) -> None:
        self.received.append((message, buffers))
        if isinstance(message, Results):
            for result, payload in portions(message.results, buffers):
                if result.output:
                    *payload, out, err = payload
                    self.output[result.run] = bytes(out), bytes(err)
                if result.status == VALUES:
                    found, _ = pickling.load_values(payload)
                    assert len(found) == result.stop - result.start
                    self.values.update(
                        ((result.run, result.start + i), value) for i, value in enumerate(found)
                    )
                else:
                    self.raised[result.run, result.start] = pickling.load_exception(payload)

    def define(
        self,
        function: Callable[..., Any],
        *,
        directory: str | None = None,
        path: list[str] | None = None,
    ) -> bytes:
        digest, payload = pickling.dump_function(function)
        path = path or [entry for entry in sys.path if entry]
        folder = os.fsencode(directory or Path.cwd())
        self.agent.handle(
            Define(digest, [os.fsencode(entry) for entry in path], folder, len(payload)), payload
        )
        return digest

    def assign(
        self, function: Callable[..., Any], *batches: list[list[Any]], **options: Any
    ) -> list[int]:
        """Hand out batches; each is a list of runs, each a list of calls. Return the runs'
        numbers.
        """
        digest = self.define(
            function, directory=options.pop("directory", None), path=options.pop("path", None)
        )
        numbers = []
        for batch in batches:
            assignments, buffers = [], []
            for calls in batch:
                payload = pickling.dump_calls(calls)
                number = next(self.numbers)
                numbers.append(number)
                settings = {
                    "run": number,
                    "task": number + 1000,
                    "start": 0,
                    "stop": len(calls),
                    "attempt": 0,
                    "form": SINGLE,
                    **options,
                }
                assignments.append(Assignment(function=digest, buffers=len(payload), **settings))
                buffers += payload
            self.agent.handle(Assign(assignments), buffers)
        return numbers

    def run(self, function: Callable[..., Any], calls: list[Any], **options: Any) -> int:
        return self.assign(function, [calls], **options)[0]

    def wait_until(self, done: Callable[[], object]) -> None:
        """Drive the agent until something has come true; its clock stands still."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, (
                f"waited in vain; the agent sent {[message for message, _ in self.received]}, "
                f"broken: {self.agent.broken!r}"
            )
            wait = self.agent.tick(self.clock.monotonic())
            select.select([self.agent], [], [], min(wait, 0.05))
            self.agent.on_ready()

    def advance(self, seconds: float) -> None:
        """Let so much time pass, in steps that an agent which was not stopped sees each."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(STEP)
            self.agent.tick(self.clock.monotonic())
            self.agent.on_ready()

    def messages(self, kind: type) -> list[Any]:
        return [message for message, _ in self.received if isinstance(message, kind)]

    def wait_for(self, kind: type, count: int = 1) -> Any:
        self.wait_until(lambda: len(self.messages(kind)) >= count)
        return self.messages(kind)[-1]

    def results(self, run: int, count: int) -> list[Any]:
        self.wait_until(lambda: all((run, i) in self.values for i in range(count)))
        return [self.values[run, i] for i in range(count)]

    def error(self, run: int, index: int = 0) -> BaseException:
        self.wait_until(lambda: (run, index) in self.raised)
        return self.raised[run, index]


class NoForkServer:
    """Forks nothing."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        self.requests, self._theirs = socket.socketpair()

    def fileno(self) -> int:
        return self._reading

    def fork(self, runner: int, descriptors: object) -> None:
        pass

    def signal(self, runner: int, number: int) -> None:
        raise AssertionError("no runner is to be ended")

    def close(self) -> None:
        for fd in (self._reading, self._writing):
            os.close(fd)
        self.requests.close()
        self._theirs.close()


class NotingForkServer(NoForkServer):
    """Forks nothing; notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.preloaded = 0
        self.signals: list[tuple[int, int]] = []

    def preload(self) -> None:
        self.preloaded += 1

    def signal(self, runner: int, number: int) -> None:
        self.signals.append((runner, number))


def played_agent(
    send: Callable[[Message, Payload], object] = lambda message, buffers: None,
    server: NoForkServer | None = None,
    **options: Any,
) -> Agent:
    """Return an agent of one slot whose runners are only played."""
    given = {"slots": 1, "grace_seconds": 1.0, "output_bytes": 0, **options}
    streams: Any = given.pop("streams", None) or [io.BytesIO(), io.BytesIO()]
    return Agent(send, server or NoForkServer(), streams=streams, **given)  # type: ignore[arg-type]


def start(slots: int = 1, output_bytes: int = 1_000_000) -> Dispatcher:
    """Start an agent whose time passes only by `advance`."""
    received: list[Any] = []
    clock = ManualClock()
    dispatcher: Dispatcher
    agent = Agent(
        lambda message, buffers: dispatcher.receive(message, buffers),
        ForkServer.fork_off(runner.main),
        slots=slots,
        grace_seconds=GRACE_SECONDS,
        output_bytes=output_bytes,
        streams=StandardStreams(lambda: None),
        clock=clock,
    )
    dispatcher = Dispatcher(agent, received, clock=clock)
    return dispatcher


def square(x: int) -> int:
    return x * x


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def written(path: Path) -> Callable[[], bool]:
    return lambda: path.exists() and path.read_text() != ""


HAS_SUBREAPER = hasattr(os, "memfd_create")
"""Whether a process is found that has left its session: macOS has no subreaper."""


def leave_a_grandchild(path: str) -> None:
    """Start a process that leaves the session, and whose parent ends; write its id down."""
    if os.fork() == 0:
        if HAS_SUBREAPER:
            os.setsid()
        if os.fork() == 0:
            Path(path).write_text(str(os.getpid()))
            signal.pause()
        os._exit(0)
    os.wait()


def wait_with_a_grandchild(path: str) -> None:
    leave_a_grandchild(path + ".grandchild")
    Path(path).write_text(f"{os.getpid()} {os.getppid()}")
    signal.pause()
