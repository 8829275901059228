"""Many workers in one process, which answer at once what calls of `noop` return:
`python -m benchmarks.fake_workers CONNECTION_FILE COUNT [TOLD]`. Their dispatcher cannot tell them
from others. They write to the file TOLD the longest time, of late, in which one heard nothing. They
answer nothing while the file `hold` is beside it.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import zmq

from gridengine.serialize.payload import Buffer
from gridengine.wire.connection_file import Connection
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.messages import (
    VALUES,
    Assign,
    Assignment,
    Result,
    Results,
    Stop,
    Welcome,
    portions,
)
from gridengine.wire.processes import make_hello

WORKERS_PER_THREAD = 250
"""ZeroMQ's threads look through all their timers at each heartbeat."""
SECONDS = 1e-6
"""How long they say that a call takes."""
TELL_SECONDS = 10.0
HOLD = "hold"


def write_whole(file: Path, text: str) -> None:
    """Write a file that is never seen in part."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


class FakeWorker:
    """One of them, with one slot."""

    def __init__(self, connection: Connection) -> None:
        self.client = DispatcherConnection(connection)
        self.stopped = False
        self.silence = 0.0
        self.held: list[tuple[Assign, Sequence[Buffer]]] = []
        self.client.send(make_hello(run_id=connection.run_id, slots=1, pid=os.getpid(), log=""))

    def work(self, *, hold: bool) -> None:
        """Answer what has come, unless it is to be held."""
        heard_at = self.client.received_at
        messages = self.client.receive()
        self.silence = max(self.silence, self.client.received_at - heard_at)
        for message, buffers in messages:
            match message:
                case Welcome(epoch=epoch):
                    self.client.epoch = epoch
                case Stop():
                    self.stopped = True
                case Assign():
                    self.held.append((message, buffers))
        while self.held and not hold:
            self._answer(*self.held.pop(0))

    def _answer(self, message: Assign, buffers: Sequence[Buffer]) -> None:
        pairs = portions(message.assignments, buffers)
        results = [
            Result(one.run, one.start, one.stop, VALUES, SECONDS * (one.stop - one.start))
            for one, _ in pairs
        ]
        self.client.send(Results(results), [values_of(one, payload) for one, payload in pairs])


def values_of(one: Assignment, payload: Sequence[Buffer]) -> Buffer:
    """Return the pickled values of calls of `noop`: what they are given."""
    return pickle.dumps(pickle.loads(payload[0])[one.start : one.stop], 5)


def main() -> None:
    path, count = Path(sys.argv[1]), int(sys.argv[2])
    told, tell_at = Path(sys.argv[3]) if len(sys.argv) > 3 else None, 0.0
    contexts = [zmq.Context() for _ in range(0, count, WORKERS_PER_THREAD)]
    zmq.Context = lambda: contexts[len(workers) % len(contexts)]  # type: ignore[assignment,misc]
    connection = Connection.load(path)
    workers: dict[object, FakeWorker] = {}
    poller = zmq.Poller()
    tick_at, hold = 0.0, False
    while len(workers) < count or not all(worker.stopped for worker in workers.values()):
        if len(workers) < count:
            worker = FakeWorker(connection)
            workers[worker.client.socket] = worker
            poller.register(worker.client.socket, zmq.POLLIN)
            if time.monotonic() < tick_at:
                continue
        for socket, _ in poller.poll(math.ceil(1000 * max(0.0, tick_at - time.monotonic()))):
            workers[socket].work(hold=hold)
        now = time.monotonic()
        if now >= tick_at:
            held, hold = hold, told is not None and told.with_name(HOLD).exists()
            for worker in workers.values() if held and not hold else ():
                worker.work(hold=False)
            tick_at = now + min(worker.client.tick(now) for worker in workers.values())
            if told is not None and now >= tell_at:
                tell_at = now + TELL_SECONDS
                write_whole(told, str(max(worker.silence for worker in workers.values())))
                for worker in workers.values():
                    worker.silence = 0.0


if __name__ == "__main__":
    main()
