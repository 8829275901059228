"""What a dispatcher's journal has of each client: its requests, in their order, until all that they
asked for has ended and the client has that; and the outcomes that it has not.

A request is a message as it came. A restarted dispatcher takes those that are left as if they came
again, but for the calls that have ended.
"""

from __future__ import annotations

import logging
import math
import sqlite3
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher import journal_limits
from gridengine.dispatcher.journal_rows import (
    LARGE,
    RowContent,
    portions_of,
    ranges_of,
    read_content,
    task_ids,
)
from gridengine.journal.dispatcher_file import DeferredWrite, DispatcherFile
from gridengine.serialize import pickling
from gridengine.serialize.codecs import PICKLE
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import (
    ChildForget,
    ChildrenFinished,
    ChildSupply,
    ChildTasks,
    ChildWant,
    ClientHello,
    Durable,
    FinishedItem,
    Message,
    TaskItem,
)

log = logging.getLogger("gridengine")

MOST_FLYING = 64
"""How many messages with outcomes a client is sent before it has taken the first of them."""
TASKS, DEFINITION, OTHER = range(3)
"""Kinds of requests: tasks; what their messages define, one each; all others."""
_BLOCK_BITS = 10
_NUMBERS = 1000
"""How many numbers for clients are reserved at a time."""


class Send(Protocol):
    """Sends a client a message, if it is connected; returns whether it is."""

    def __call__(self, message: Message, buffers: Payload = ()) -> bool: ...


class _Request(Struct, eq=False):
    """Tasks that were handed in together: their ids, sorted, and how many have not ended, or their
    client does not know so.
    """

    id: int
    tasks: array[int]
    left: int

    def has(self, task: int) -> bool:
        place = bisect_left(self.tasks, task)
        return place < len(self.tasks) and self.tasks[place] == task


class Journal:
    """The journal of all clients of a dispatcher. All methods are for one thread."""

    def __init__(self, file: DispatcherFile) -> None:
        self.file = file
        self.ids = count(_last(file, "requests", "id") + 1).__next__
        self.numbers = count(_last(file, "outcomes", "number") + 1).__next__
        self.epoch = file.epoch
        self._last_client = file.counted("client", _NUMBERS)
        self._reserved = self._last_client + _NUMBERS
        self.first_client = self._last_client + 1
        """The first number of a client that no process before has given one."""
        self.committed = 0
        """The number of the last outcomes that are on disk."""
        self._told: dict[ClientRecord, None] = {}

    def new_client(self) -> int:
        """Return a number for a client that none has had, nor will have after a restart."""
        self._last_client += 1
        if self._reserved - self._last_client < _NUMBERS // 2:  # early: it is written later
            self._reserved += _NUMBERS
            self.file.write("REPLACE INTO counters VALUES ('client', ?)", [(self._reserved,)])
        return self._last_client

    def add(self, number: int, peer: bytes, hello: ClientHello, send: Send) -> ClientRecord:
        """Add a client."""
        row = number, peer, b"".join(map(bytes, encode(hello))), 0
        self.file.write("INSERT INTO clients VALUES (?, ?, ?, ?)", [row])
        return ClientRecord(self, number, hello, send)

    def clients(self) -> Iterator[tuple[int, bytes, ClientHello, int]]:
        """Yield the clients that there were: their numbers, peers and greetings, and how many of
        their messages are here.
        """
        self.committed = _last(self.file, "outcomes", "number")
        for number, peer, hello, seen in self.file.read("SELECT * FROM clients"):
            message, _ = decode([hello])
            assert isinstance(message, ClientHello)
            yield number, peer, message, seen

    def absent(self) -> dict[int, float]:
        """Return the clients that are gone and whose calls go on: since when, in seconds since
        1970.
        """
        return dict(self.file.read("SELECT * FROM absent"))

    def settle(self) -> None:
        """Tell clients what is on disk by now."""
        self.file.settle()
        told, self._told = self._told, {}
        for record in told:
            record.tell_durable()

    def note_durable(self, record: ClientRecord) -> None:
        """Have a client told, when all is settled that is."""
        self._told[record] = None


class ClientRecord:
    """What the journal has of one client.

    Args:
        number: the client's.
        hello: its greeting.
        send: sends it a message, if it is connected.
        seen: how many of its messages the journal has taken.
    """

    def __init__(
        self, journal: Journal, number: int, hello: ClientHello, send: Send, seen: int = 0
    ) -> None:
        self._journal = journal
        self._write = journal.file.write
        self._number = number
        self._send = send
        self._tells_apart = hello.codec == PICKLE and not hello.keep
        """Whether it tells calls apart that come twice, however they are grouped, and nobody else
        is to have them: then outcomes need not be on disk before they are sent.
        """
        self.seen = seen
        self._durable = seen
        self._inserted: list[tuple[int, int, int, RowContent]] = []
        """Rows of requests that are to be written."""
        self._requests: dict[int, _Request] = {}
        self._blocks: dict[int, list[_Request]] = {}
        self._others: deque[tuple[int, ChildForget | None]] = deque()
        """The rows that go once no older request is left, and what is forgotten then."""
        self._definitions: dict[bytes | int, list[int]] = {}
        """The rows of functions, shared objects and supplied results, by their names."""
        self._kept: dict[int, dict[tuple[int, int], None]] = {}
        """Of tasks that have not ended: the calls whose results others need, and by which
        references.
        """
        self._outcomes: dict[int, array[int]] = {}
        """Those that the client has not taken: of each message the calls, as four numbers each: a
        task, its first call, the one after the last, and whether none is left.
        """
        self._parts: set[int] = set()
        """The tasks of which some calls have ended."""
        self._flying: set[int] = set()
        self._waiting: deque[int] = deque()
        self._answers: deque[tuple[int, Message, Sequence[Buffer]]] = deque()
        """What comes behind outcomes that wait: behind which."""
        self._unread = False
        """Whether what waits could not be read the last time."""
        self._held: dict[int, tuple[Message, Sequence[Buffer]]] = {}
        """Of those that wait the messages that are not on disk yet."""
        self._later: dict[int, tuple[DeferredWrite, Message, Sequence[Buffer]]] = {}
        """Those that were sent, and are large: in a moment the client may have taken them, and they
        need not be written. What their workers sent is acknowledged when they are, or that is.
        """
        self._large: dict[int, tuple[Message, Sequence[Buffer]]] = {}
        """Those that no row can hold: of a dispatcher that is killed their calls run again."""

    # ---------------------------------------------------------------- what the client hands in

    def take(self, message: Message, buffers: Sequence[Buffer]) -> None:
        """Note a message; the client is told once it is on disk.

        Raises:
            ConfigurationError: these are tasks that no row can hold, and are to be refused. The
                message counts all the same.
        """
        refusal = None
        if type(message) is ChildTasks:
            refusal = journal_limits.why_refused_as_sent(message, buffers)
        if refusal is None:
            self._take(message, buffers)
        self.seen += 1
        seen = self.seen
        self._write_inserted(
            ("UPDATE clients SET seen = ? WHERE number = ?", [(seen, self._number)]),
            lambda: self._note_durable(seen),
        )
        self._collect()
        if refusal is not None:
            raise refusal

    def _take(self, message: Message, buffers: Sequence[Buffer]) -> None:
        if type(message) is ChildTasks:
            buffers = self._take_definitions(message, buffers)
            message = replace(message, function=None, shared=())
            for tasks, its in portions_of(message.tasks, buffers):
                id = self._insert(TASKS, replace(message, tasks=tasks), its)
                self._add(_Request(id, task_ids(tasks), len(tasks)), tasks)
        else:
            self._take_other(message, buffers)

    def _take_definitions(self, message: ChildTasks, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Note what a message defines, and return the buffers of its tasks."""
        function = message.function
        own = () if function is None else buffers[: function.buffers]
        buffers = buffers[len(own) :]
        for one in message.shared:
            name, its = one.name, buffers[: one.buffers]
            buffers = buffers[one.buffers :]
            defines = replace(message, tasks=[], function=None, shared=[one])
            self._define(name, self._insert(DEFINITION, defines, its))
        if function is not None:  # last, since it may need the others
            defines = replace(message, tasks=[], shared=())
            self._define(message.digest, self._insert(DEFINITION, defines, own))
        return buffers

    def _take_other(self, message: Message, buffers: Sequence[Buffer]) -> None:
        if type(message) is ChildSupply:
            self._insert_supply(message, buffers)
            return
        if type(message) is ChildWant:
            self._keep(message.task, message.index, message.reference)
        id = self._insert(OTHER, message, buffers)
        self._others.append((id, message if type(message) is ChildForget else None))

    def _insert(self, kind: int, message: Message, buffers: Sequence[Buffer]) -> int:
        id = self._journal.ids()
        self._inserted.append((id, self._number, kind, RowContent(message, buffers)))
        return id

    def _insert_supply(self, message: ChildSupply, buffers: Sequence[Buffer]) -> None:
        """Note what a reference stands for: of a result that no row can hold, that it is lost when
        the dispatcher is started again.
        """
        if journal_limits.is_large(buffers):
            buffers = pickling.dump_exception(journal_limits.lost(buffers))[:1]
            message = replace(message, raised=True, buffers=1)
        self._define(message.reference, self._insert(DEFINITION, message, buffers))

    def _write_inserted(
        self, change: tuple[str, Sequence[Sequence[Any]]], then: Callable[[], object]
    ) -> None:
        """Write the requests that were inserted, and together with them something else."""
        rows, self._inserted = self._inserted, []
        insert = "INSERT INTO requests VALUES (?, ?, ?, ?)", rows
        self._journal.file.write_together(insert, change, then=then)

    def _define(self, name: bytes | int, id: int) -> None:
        self._definitions.setdefault(name, []).append(id)

    def _add(self, request: _Request, tasks: Iterable[TaskItem]) -> None:
        self._requests[request.id] = request
        for block in {task >> _BLOCK_BITS for task in request.tasks}:
            self._blocks.setdefault(block, []).append(request)
        for task in tasks:
            if task.kept:
                self._kept[task.id] = dict.fromkeys(task.kept)

    def _keep(self, task: int, index: int, reference: int) -> None:
        if self._find(task) is not None:
            # The client of a dispatcher that was started again asks again.
            self._kept.setdefault(task, {})[index, reference] = None

    def _find(self, task: int) -> _Request | None:
        for one in self._blocks.get(task >> _BLOCK_BITS, ()):
            if one.has(task):
                return one
        return None

    def _note_durable(self, seen: int) -> None:
        self._durable = seen
        self._journal.note_durable(self)

    def tell_durable(self) -> None:
        """Tell the client what is on disk, and send it what may be sent now; when it is not there,
        let go of what is.
        """
        if self._send(Durable(self._durable)):
            self.send_waiting()
        else:
            self._let_go()

    # ---------------------------------------------------------------- what has come of it

    def finish(self, items: list[FinishedItem], buffers: Sequence[Buffer]) -> None:
        """Note outcomes, and pass them on, but for those that wait until they are on disk:

        - of calls that were taken back: the client may hand them in again, and they could run
          twice;
        - of calls whose results others need: a restarted dispatcher could come to other ones, of
          which it would wait for the client to say what they are;
        - parts of tasks behind these, and all parts that are for a client that does not tell calls
          apart: a restarted dispatcher might group them otherwise, and they could come twice.
        """
        for some, its in portions_of(items, buffers):
            self._finish(some, its)

    def _finish(self, items: list[FinishedItem], buffers: Sequence[Buffer]) -> None:
        number = self._journal.numbers()
        calls = array("q")
        for one in items:
            calls.extend((one.task, one.start, one.stop, one.last))
        waits = any((one.recalled and not one.path) or one.task in self._kept for one in items)
        apart = self._tells_apart and not self._waiting
        if self._kept:
            self._supply(items, buffers)
        self._outcomes[number] = calls
        message = ChildrenFinished(0, items, number)
        # Before it is written: who waits for it need not wait for that.
        whole = self._are_whole(items)
        sent = (
            (whole or apart)
            and not waits
            and len(self._flying) < MOST_FLYING
            and self._send(message, buffers)
        )
        if sent:
            self._flying.add(number)
        else:
            self._waiting.append(number)
            self._held[number] = message, buffers
        rows = []
        if journal_limits.is_large(buffers):
            self._large[number] = message, buffers
        else:
            rows = [(number, self._number, RowContent(message, buffers))]
        insert, size = "INSERT INTO outcomes VALUES (?, ?, ?)", size_of(buffers)
        committed = partial(self._note_committed, number)
        # By its last part a task is known to have ended: that must not be on disk before others.
        behind = bool(self._later) and not whole
        if sent and rows and apart and (size >= LARGE or behind):
            later = self._journal.file.write_later(insert, rows[0], size, committed)
            self._later[number] = later, message, buffers
        else:
            if behind:
                self._journal.file.write_now(later for later, *_ in self._later.values())
            self._write_inserted((insert, rows), committed)

    def _are_whole(self, items: Iterable[FinishedItem]) -> bool:
        """Return whether all calls of each task ended together."""
        whole = True
        for one in items:
            if not one.last:
                self._parts.add(one.task)
            if not one.last or one.start or one.task in self._parts:
                whole = False
            if one.last:
                self._parts.discard(one.task)
        return whole

    def _supply(self, items: Iterable[FinishedItem], buffers: Sequence[Buffer]) -> None:
        """Note results that other calls need, as if the client had supplied them."""
        offset = 0
        for one in items:
            payload = buffers[offset : offset + one.count_buffers()]
            offset += len(payload)
            kept = self._kept.get(one.task, ())
            for index, reference in [each for each in kept if one.start <= each[0] < one.stop]:
                if one.recalled and not one.path:
                    continue  # the client says what became of it
                raised, cancelled = one.raised or one.failed, one.recalled or one.ended
                its = payload[: one.buffers or one.failed]
                supply = ChildSupply(
                    0, reference, index - one.start, raised, cancelled, one.path, len(its)
                )
                self._insert_supply(supply, its)
            if one.last:
                self._kept.pop(one.task, None)

    def _note_committed(self, number: int) -> None:
        self._journal.committed = max(number, self._journal.committed)
        self._later.pop(number, None)
        if self._waiting:
            self._journal.note_durable(self)

    @property
    def is_stuck(self) -> bool:
        """Whether outcomes wait for a disk that takes, or gives, nothing."""
        return self._unread or (bool(self._held) and self._journal.file.failure is not None)

    def send_waiting(self) -> None:
        """Send outcomes that are on disk, as many as may be under way; all where none can be
        written.
        """
        waiting, flying, file = self._waiting, self._flying, self._journal.file
        last = math.inf if file.failure is not None else self._journal.committed
        self._unread = False
        while waiting and waiting[0] <= last and len(flying) < MOST_FLYING:
            number = waiting[0]
            if number not in self._outcomes:  # it was taken before this came back
                waiting.popleft()
                continue
            message = self._in_memory(number) or self._read(number)
            if message is None or not self._send(*message):
                break
            flying.add(waiting.popleft())
        while self._answers and not (waiting and waiting[0] <= self._answers[0][0]):
            _, answer, buffers = self._answers.popleft()
            self._send(answer, buffers)
        self._let_go()

    def answer(self, message: Message, buffers: Sequence[Buffer]) -> None:
        """Send an answer behind all outcomes that there are."""
        if self._waiting:
            self._answers.append((self._waiting[-1], message, buffers))
        else:
            self._send(message, buffers)

    def _let_go(self) -> None:
        """Keep of outcomes in memory those alone that wait, and are not on disk."""
        self._held = {
            number: held
            for number, held in self._held.items()
            if number > self._journal.committed and number not in self._flying
        }

    def _in_memory(self, number: int) -> tuple[Message, Sequence[Buffer]] | None:
        if number in self._later:
            return self._later[number][1:]
        return self._held.get(number) or self._large.get(number)

    def _read(self, number: int) -> tuple[Message, Sequence[Buffer]] | None:
        """Return an outcome that is on disk; None when it cannot be read now."""
        try:
            [(content,)] = self._journal.file.read(
                "SELECT content FROM outcomes WHERE number = ?", number
            )
        except sqlite3.Error as error:  # such as that a slow disk has the file locked
            log.warning("%s cannot be read: %s", self._journal.file.path, error)
            self._unread = True
            return None
        return read_content(content)

    def taken(self, numbers: Iterable[int]) -> None:
        """Note that the client has these outcomes: what has ended by them need not be kept."""
        gone = [number for number in dict.fromkeys(numbers) if number in self._outcomes]
        if not gone:
            return
        ended: dict[int, array[int]] = {}
        file = self._journal.file
        withdrawn = file.withdraw(self._later.pop(one)[0] for one in gone if one in self._later)
        for number in gone:
            self._flying.discard(number)
            self._large.pop(number, None)
            calls = self._outcomes.pop(number)
            for place in range(0, len(calls), 4):
                request = self._find(calls[place])
                if request is not None:
                    ended.setdefault(request.id, array("q")).extend(calls[place : place + 4])
                    request.left -= calls[place + 3]
        whole = [id for id in ended if not self._requests[id].left]
        partly = [(id, calls.tobytes()) for id, calls in ended.items() if id not in whole]
        for id in whole:
            self._drop(self._requests.pop(id))
        # Together: without its outcome a request that is left would seem not to have ended.
        file.write_together(
            ("INSERT INTO ended VALUES (?, ?)", partly),
            ("DELETE FROM outcomes WHERE number = ?", [(number,) for number in gone]),
            ("DELETE FROM ended WHERE request = ?", [(id,) for id in whole]),
            ("DELETE FROM requests WHERE id = ?", [(id,) for id in whole]),
            then=partial(file.settle_later, withdrawn) if withdrawn else None,
        )
        if whole:
            self._collect()
        self.send_waiting()

    def _drop(self, request: _Request) -> None:
        for block in {task >> _BLOCK_BITS for task in request.tasks}:
            others = self._blocks[block]
            others.remove(request)
            if not others:
                del self._blocks[block]

    def _collect(self) -> None:
        """Delete what no request needs any more that is left."""
        oldest = next(iter(self._requests), math.inf)
        rows: list[int] = []
        while self._others and self._others[0][0] < oldest:
            id, forget = self._others.popleft()
            rows.append(id)
            if forget is not None:
                names: tuple[bytes | int, ...] = (*forget.functions, *forget.shared)
                for name in (*names, *forget.references):
                    rows += self._undefine(name, id)
        if rows:
            self._delete("requests WHERE id = ?", rows)

    def _undefine(self, name: bytes | int, before: int) -> list[int]:
        """Return the rows that define this, from before another."""
        rows = self._definitions.pop(name, [])
        later = [row for row in rows if row > before]
        if later:
            self._definitions[name] = later
        return [row for row in rows if row < before]

    def _delete(
        self, where: str, numbers: Iterable[int], then: Callable[[], object] | None = None
    ) -> None:
        self._write(f"DELETE FROM {where}", [(number,) for number in numbers], then)

    def delete(self) -> None:
        """Forget the client, and all that is its."""
        number, file = [self._number], self._journal.file
        withdrawn = file.withdraw(later for later, *_ in self._later.values())
        self._later.clear()
        self._delete("ended WHERE request IN (SELECT id FROM requests WHERE client = ?)", number)
        self._delete("requests WHERE client = ?", number)
        self._delete("outcomes WHERE client = ?", number)
        self._delete("clients WHERE number = ?", number)
        self._delete("absent WHERE client = ?", number, partial(file.settle_later, withdrawn))

    # ---------------------------------------------------------------- without its process

    @property
    def owed(self) -> int:
        """How many tasks there are that have not ended, or of which the client does not know so."""
        return sum(one.left for one in self._requests.values())

    @property
    def ready(self) -> int:
        """How many messages with outcomes the client has not taken."""
        return len(self._outcomes)

    def leave(self, since: float) -> None:
        """Note since when the client is gone; what it was sent and has not taken waits."""
        self._flying.clear()
        self._answers.clear()
        self._waiting = deque(self._outcomes)
        self._write("REPLACE INTO absent VALUES (?, ?)", [(self._number, since)])

    # ---------------------------------------------------------------- after a restart

    def resume(self) -> None:
        """Send the client, which has come back, what it has not taken."""
        self._flying.clear()
        self._waiting = deque(self._outcomes)
        self.send_waiting()

    def replay(
        self, settled: dict[int, list[tuple[int, int]]]
    ) -> Iterator[tuple[Message, Sequence[Buffer]]]:
        """Yield the messages of the client, in their order, without the tasks that have ended; add
        of the others the calls that have.
        """
        file, number = self._journal.file, self._number
        for id, content in file.read(
            "SELECT number, content FROM outcomes WHERE client = ? ORDER BY number", number
        ):
            message, _ = read_content(content)
            calls = array("q")
            for one in message.outcomes:
                calls.extend((one.task, one.start, one.stop, one.last))
            self._outcomes[id] = calls
        ended = ranges_of(self._outcomes.values())
        rows = file.read(
            "SELECT id, kind, content FROM requests WHERE client = ? ORDER BY id", number
        )
        for id, kind, content in rows:
            message, buffers = read_content(content)
            if kind == TASKS:
                yield from self._replay_tasks(id, message, buffers, ended, settled)
                continue
            if kind == OTHER:
                self._others.append((id, message if type(message) is ChildForget else None))
                if type(message) is ChildWant:
                    self._keep(message.task, message.index, message.reference)
            elif type(message) is ChildSupply:
                self._define(message.reference, id)
            elif message.function is not None:
                self._define(message.digest, id)
            else:
                self._define(message.shared[0].name, id)
            yield message, buffers

    def _replay_tasks(
        self,
        id: int,
        message: ChildTasks,
        buffers: Sequence[Buffer],
        ended: dict[int, list[tuple[int, int, int]]],
        settled: dict[int, list[tuple[int, int]]],
    ) -> Iterator[tuple[Message, Sequence[Buffer]]]:
        rows = self._journal.file.read("SELECT calls FROM ended WHERE request = ?", id)
        taken = ranges_of(array("q", calls) for (calls,) in rows)
        if not taken and ended.keys().isdisjoint(ids := task_ids(message.tasks)):
            self._add(_Request(id, ids, len(ids)), message.tasks)
            yield message, buffers
            return
        left = len(message.tasks) - sum(any(one[2] for one in calls) for calls in taken.values())
        tasks: list[TaskItem] = []
        its: list[Buffer] = []
        offset = 0
        for task in message.tasks:
            stop = offset + task.buffers
            known = [*taken.get(task.id, ()), *ended.get(task.id, ())]
            if not any(last for _, _, last in known):
                tasks.append(task)
                its += buffers[offset:stop]
                if known:
                    settled[task.id] = sorted((first, end) for first, end, _ in known)
            offset = stop
        self._add(_Request(id, task_ids(message.tasks), left), tasks)
        self._parts.update(task.id for task in tasks if task.id in settled)
        if tasks:
            yield replace(message, tasks=tasks), its


def _last(file: DispatcherFile, table: str, column: str) -> int:
    """Return the highest number that a table has, at least 0."""
    found: int = file.read(f"SELECT ifnull(max({column}), 0) FROM {table}").fetchone()[0]
    return found
