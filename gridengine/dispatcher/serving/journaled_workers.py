"""The workers' part of a dispatcher's journal: which workers are connected, and which runs each was
assigned. A dispatcher that is killed and started again adopts them by it.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from gridengine.dispatcher.core.events import RestoredRun, RestoredWorker
from gridengine.dispatcher.worker_links import LastingLink
from gridengine.errors import ProtocolError
from gridengine.journal.dispatcher_file import unusable
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Assign, Hello, Message

if TYPE_CHECKING:
    from gridengine.journal.dispatcher_file import DispatcherFile

_SWEEP = 1000
"""Delete ended batches when the noted batches exceed twice the present runs by more than this."""


T = TypeVar("T")
_Row: TypeAlias = tuple[int, int, int, int, int]
"""The number of a run, its task, its first call, the one after the last, and the attempt."""


class _Batch(Struct):
    """The rows of one batch. The thread that writes encodes them."""

    runs: list[_Row]

    def __conform__(self, protocol: object) -> bytes:
        return msgspec.msgpack.encode(self.runs)


class _DelayedMessage(Struct):
    """A message that is sent once the notes up to this number are durable."""

    number: int
    message: Message
    buffers: Payload


class RecordedLink:
    """A link to workers that notes which runs they are assigned. All methods are for one thread.

    A batch with calls that may run only once is sent when its note is durable, and all later
    messages to the same worker wait behind it. All other calls are sent at once, because they may
    run twice. If a worker ends together with this process, only calls that may run only once are
    noted for it.

    A worker's messages are acknowledged to it when their consequences are durable. So the
    consequences must be passed to the file before `receive` has yielded its last message.

    Args:
        link: the link.
        file: the journal, which writes in the order in which it is given changes.
        running: the runs that have not ended, by number.
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
        """The number of the next note."""
        self._waiting: dict[bytes, deque[_DelayedMessage]] = {}

    @property
    def deadline(self) -> float:
        return self._link.deadline

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterator[tuple[bytes, Message, Payload]]:
        """Yield messages of workers. When they have been handled, write the notes."""
        for peer, message, buffers in self._link.receive(ready, now, most):
            if type(message) is Hello and self._lasts(peer):
                hello = msgspec.msgpack.encode(msgspec.structs.replace(message, held=None))
                self._file.write("REPLACE INTO workers VALUES (?, ?)", [(peer, hello)])
            yield peer, message, buffers
        self.flush()

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        """Send a message to a worker, or queue it behind a note that is not durable."""
        number = 0
        if type(message) is Assign:
            once = any(one.once for one in message.assignments)
            if once or self._lasts(peer):
                self._note(peer, message)
            # 0 for calls that may run twice: such a message waits only behind others.
            number = self._number * once
        waiting = self._waiting.get(peer)
        if waiting is None and not number:
            self._link.send(peer, message, buffers)
            return
        if waiting is None:
            waiting = self._waiting[peer] = deque()
        waiting.append(_DelayedMessage(number, message, buffers))

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
        """Write the gathered notes. Once they are durable, acknowledge the workers' messages and
        send the messages that waited.
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
        """Delete the batches whose runs have all ended."""
        ended = [
            first for first, runs in self._noted.items() if self._running.keys().isdisjoint(runs)
        ]
        for first in ended:
            del self._noted[first]
        self._delete("assigned WHERE run", [(first,) for first in ended])

    def _delete(self, which: str, values: Sequence[tuple[object]]) -> None:
        """Delete notes, but only after the outcomes of their calls are durable, deferred writes
        included. In the other order, a kill between the two writes would make the calls seem never
        to have begun.
        """
        delete = functools.partial(self._file.write, f"DELETE FROM {which} = ?", values)
        self._file.after_later(delete)

    def forget(self, peer: bytes) -> None:
        """Drop everything that concerns a worker. `flush` writes that."""
        self._waiting.pop(peer, None)
        self._wake_once()
        self._forgotten.append((peer,))
        self._link.forget(peer)

    def stop_workers(self) -> None:
        """Stop the workers that the link itself can stop, once the notes are written."""
        self.flush()
        self._link.stop_workers()


def read_workers(file: DispatcherFile) -> list[RestoredWorker]:
    """Return the workers that a file has."""
    decode = msgspec.msgpack.Decoder(Hello).decode
    rows = file.read("SELECT id, hello FROM workers")
    return [RestoredWorker(id, _read(file, "workers", decode, hello)) for id, hello in rows]


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
        yield first, worker, _read(file, "assigned", decode, runs)


def _read(file: DispatcherFile, table: str, decode: Callable[[bytes], T], content: bytes) -> T:
    """Decode the content of a row.

    Raises:
        JournalError: it is damaged.
    """
    try:
        return decode(content)
    except msgspec.DecodeError as error:
        damaged = ProtocolError(f"a row of {table} is damaged: {error}")
        raise unusable(file.path, damaged) from error
