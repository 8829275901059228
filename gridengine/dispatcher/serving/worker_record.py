"""What a dispatcher with a journal notes of its workers: who is connected, and what each was
assigned. So that, when it is killed and started again, they go on.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

from gridengine.dispatcher.core.events import RestoredRun, RestoredWorker
from gridengine.dispatcher.links import LastingLink
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Assign, Hello, Message

if TYPE_CHECKING:
    from gridengine.journal.dispatcher_file import DispatcherFile

_SWEEP = 1000
"""How many batches may be noted, besides as many as there are, before those that have ended are
deleted.
"""


_Row: TypeAlias = tuple[int, int, int, int, int]
"""The number of a run, its task, its first call and the one after the last, and the attempt."""


class _Batch(Struct):
    """The rows of one batch. They are encoded in the thread that writes."""

    runs: list[_Row]

    def __conform__(self, protocol: object) -> bytes:
        return msgspec.msgpack.encode(self.runs)


class _Waiting(Struct):
    """A message that is not sent before what was noted up to this number is on disk."""

    number: int
    message: Message
    buffers: Payload


class RecordedLink:
    """A link to workers which notes what they are assigned. All methods are for one thread.

    Calls that may run only once are sent when it is on disk that they were; what comes behind them,
    to the same worker, waits too. Of a worker that ends with this process nothing else is noted.
    What a worker has sent is acknowledged when what came of it is on disk: the file is to be given
    that before `receive` has yielded its last.

    Args:
        link: the link.
        file: where it is noted, in the order in which it is written.
        running: the runs that have not ended, by their numbers.
        wake: has the thread call `receive` soon.
    """

    def __init__(
        self,
        link: LastingLink,
        file: DispatcherFile,
        running: Mapping[int, object],
        wake: Callable[[], object],
    ) -> None:
        self._link = link
        self.context, self.streams, self.keys = link.context, link.streams, link.keys
        self.poller, self.close = link.poller, link.close
        self._file = file
        self._running = running
        self._wake = wake
        self._lasts = link.lasts
        self._noted = {first: [run[0] for run in runs] for first, _, runs in _read_batches(file)}
        self._rows: list[tuple[int, bytes, _Batch]] = []
        self._forgotten: list[tuple[bytes]] = []
        self._number = 1
        """Of what is noted next."""
        self._waiting: dict[bytes, deque[_Waiting]] = {}

    @property
    def deadline(self) -> float:
        return self._link.deadline

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterator[tuple[bytes, Message, Payload]]:
        """Yield messages of workers; write what is to be noted when they have been handled."""
        for peer, message, buffers in self._link.receive(ready, now, most):
            if type(message) is Hello and self._lasts(peer):
                hello = msgspec.msgpack.encode(msgspec.structs.replace(message, held=None))
                self._file.write("REPLACE INTO workers VALUES (?, ?)", [(peer, hello)])
            yield peer, message, buffers
        self.flush()

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        """Send a message to a worker, or have it wait until that is safe."""
        number = 0
        if type(message) is Assign:
            once = any(one.once for one in message.assignments)
            if once or self._lasts(peer):
                self._note(peer, message)
            number = self._number * once
        waiting = self._waiting.get(peer)
        if waiting is None and not number:
            self._link.send(peer, message, buffers)
            return
        if waiting is None:
            waiting = self._waiting[peer] = deque()
        waiting.append(_Waiting(number, message, buffers))

    def _note(self, peer: bytes, message: Assign) -> None:
        runs = [
            (one.run, one.task, one.start, one.stop, one.attempt) for one in message.assignments
        ]
        first = runs[0][0]
        self._noted[first] = [run[0] for run in runs]
        self._wake_once()
        self._rows.append((first, peer, _Batch(runs)))

    def _wake_once(self) -> None:
        if not (self._rows or self._forgotten):
            self._wake()

    def flush(self) -> None:
        """Write what was noted, and have it known that what workers have sent is on disk when it
        is.
        """
        receipts = self._link.take_receipts()
        rows, self._rows = self._rows, []
        if rows or receipts:
            number, self._number = self._number, self._number + 1

            def on_disk() -> None:
                self._file.after_later(lambda: self._link.acknowledge(receipts))
                self._send_waiting(number)

            self._file.write("INSERT INTO assigned VALUES (?, ?, ?)", rows, on_disk)
        if self._forgotten:
            gone, self._forgotten = self._forgotten, []
            self._delete("workers WHERE id", gone)
            self._delete("assigned WHERE worker", gone)
        if len(self._noted) > 2 * len(self._running) + _SWEEP:
            self._sweep()

    def _send_waiting(self, number: int) -> None:
        for peer, waiting in list(self._waiting.items()):
            while waiting and waiting[0].number <= number:
                one = waiting.popleft()
                self._link.send(peer, one.message, one.buffers)
            if not waiting:
                del self._waiting[peer]

    def _sweep(self) -> None:
        """Delete the batches all of whose runs have ended."""
        ended = [
            first for first, runs in self._noted.items() if self._running.keys().isdisjoint(runs)
        ]
        for first in ended:
            del self._noted[first]
        self._delete("assigned WHERE run", [(first,) for first in ended])

    def _delete(self, which: str, values: Sequence[tuple[object]]) -> None:
        """Delete what is noted, behind what became of those calls: were it gone before, they might
        seem to have begun nowhere. Large results are written later.
        """
        delete = functools.partial(self._file.write, f"DELETE FROM {which} = ?", values)
        self._file.after_later(delete)

    def forget(self, peer: bytes) -> None:
        """Drop what is kept for a worker. That is written with `flush`."""
        self._waiting.pop(peer, None)
        self._wake_once()
        self._forgotten.append((peer,))
        self._link.forget(peer)

    def stop_workers(self) -> None:
        """Stop those workers that the link itself can, once what was noted is written."""
        self.flush()
        self._link.stop_workers()


def read_workers(file: DispatcherFile) -> list[RestoredWorker]:
    """Return the workers that a file has."""
    rows = file.read("SELECT id, hello FROM workers")
    return [RestoredWorker(id, msgspec.msgpack.decode(hello, type=Hello)) for id, hello in rows]


def read_runs(file: DispatcherFile) -> list[RestoredRun]:
    """Return the runs that a file has, oldest first."""
    return [
        RestoredRun(run, worker, task, start, stop, attempt)
        for _, worker, runs in _read_batches(file)
        for run, task, start, stop, attempt in runs
    ]


def _read_batches(file: DispatcherFile) -> Iterator[tuple[int, bytes, list[_Row]]]:
    decode = msgspec.msgpack.Decoder(list[_Row]).decode
    for first, worker, runs in file.read("SELECT run, worker, runs FROM assigned ORDER BY run"):
        yield first, worker, decode(runs)
