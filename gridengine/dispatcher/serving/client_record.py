"""What a dispatcher's journal has of each client: its requests (`client_requests`), and what came
of them that it has not.

A restarted dispatcher takes the requests that are left as if they came again, but for the calls
that have ended.
"""

from __future__ import annotations

import logging
import sqlite3
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from gridengine.dispatcher import journal_limits
from gridengine.dispatcher.nested_encoding import dump_error_by
from gridengine.dispatcher.serving.client_journal import (
    LARGE,
    Journal,
    RowContent,
    portions_of,
    ranges_of,
    read_content,
)
from gridengine.dispatcher.serving.client_requests import ClientRequests, Request, is_taken_back
from gridengine.journal.dispatcher_file import DeferredWrite
from gridengine.serialize.codecs import PICKLE
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.wire.messages import (
    ClientHello,
    Durable,
    Finished,
    FinishedItem,
    Message,
    Submit,
)

log = logging.getLogger("gridengine")

MOST_FLYING = 64
"""How many messages with outcomes a client is sent before it has taken the first of them."""


class ClientRecord:
    """What the journal has of one client.

    Args:
        number: the client's.
        hello: its greeting.
        send: sends it a message, if it is connected; returns whether it is.
        seen: how many of its messages the journal has taken.
    """

    def __init__(
        self,
        journal: Journal,
        number: int,
        hello: ClientHello,
        send: Callable[[Message, Payload], bool],
        seen: int = 0,
    ) -> None:
        self._journal = journal
        self._requests = ClientRequests(number, journal.ids)
        self._write = journal.file.write
        self._number = number
        self._send = send
        self._tells_apart = hello.codec == PICKLE and not hello.keep
        """Whether it tells calls apart that come twice, however they are grouped, and nobody else
        is to have them: then outcomes need not be on disk before they are sent.
        """
        self.seen = seen
        self._durable = seen
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
        self._dump_error = dump_error_by(hello.codec)
        self._held: dict[int, tuple[Finished, Sequence[Buffer]]] = {}
        """Of those that wait the messages that are not on disk yet."""
        self._later: dict[int, tuple[DeferredWrite, Finished, Sequence[Buffer]]] = {}
        """Those that were sent, and are large: in a moment the client may have taken them, and they
        need not be written. What their workers sent is acknowledged when they are, or that is.
        """
        self._large: dict[int, tuple[Finished, Sequence[Buffer]]] = {}
        """Those that no row can hold: the next process does not have them."""

    # ---------------------------------------------------------------- what the client hands in

    def take(self, message: Request, buffers: Sequence[Buffer]) -> None:
        """Note a message; the client is told once it is on disk.

        Raises:
            ConfigurationError: these are tasks that no row can hold, and are to be refused. The
                message counts all the same.
        """
        refusal = None
        if isinstance(message, Submit):
            refusal = journal_limits.why_refused_as_sent(message, buffers)
        if refusal is None:
            self._requests.take(message, buffers)
        self.seen += 1
        seen = self.seen
        self._write_inserted(
            ("UPDATE clients SET seen = ? WHERE number = ?", [(seen, self._number)]),
            lambda: self._note_durable(seen),
        )
        self._collect()
        if refusal is not None:
            raise refusal

    def _write_inserted(
        self, change: tuple[str, Sequence[Sequence[Any]]], then: Callable[[], object]
    ) -> None:
        """Write the requests that were inserted, and together with them something else."""
        insert = "INSERT INTO requests VALUES (?, ?, ?, ?)", self._requests.take_rows()
        self._journal.file.write_together(insert, change, then=then)

    def _note_durable(self, seen: int) -> None:
        self._durable = seen
        self._journal.note_durable(self.tell_durable)

    def tell_durable(self) -> None:
        """Tell the client what is on disk, and send it what may be sent now; when it is not there,
        let go of what is.
        """
        if self._send(Durable(self._durable), ()):
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
        requests = self._requests
        needed = requests.needed
        waits = any((one.recalled and not one.path) or one.task in needed for one in items)
        apart = self._tells_apart and not self._waiting
        requests.supply(items, buffers)
        self._outcomes[number] = _calls_of(items)
        message = Finished(0, items, number)
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
        contents = [RowContent(message, buffers)]
        if journal_limits.is_large(buffers):
            self._large[number] = message, buffers
            contents = self._in_place_of(message, buffers, whole=whole)
        rows = [(number, self._number, content) for content in contents]
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

    def _in_place_of(
        self, message: Finished, buffers: Sequence[Buffer], *, whole: bool
    ) -> list[RowContent]:
        """Return what a row has in place of a result that none can hold: nothing where all calls of
        the task can run again, else an error. Without a row a part of a task would never have an
        outcome, since by the last one that has ended.
        """
        if whole and not any(self._requests.runs_once(one.task) for one in message.outcomes):
            return []
        error = self._dump_error(journal_limits.lost_to_client(buffers))[:1]
        failed = [
            replace(one, buffers=0, raised=False, failed=True, exitcode=1, output=False, failure=0)
            for one in message.outcomes
        ]
        return [RowContent(replace(message, outcomes=failed), error * len(failed))]

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

    def _note_committed(self, number: int) -> None:
        self._journal.committed = max(number, self._journal.committed)
        self._later.pop(number, None)
        if self._waiting:
            self._journal.note_durable(self.tell_durable)

    @property
    def is_stuck(self) -> bool:
        """Whether outcomes wait for a disk that takes, or gives, nothing."""
        return self._unread or (bool(self._held) and self._journal.file.failure is not None)

    def send_waiting(self) -> None:
        """Send outcomes that are on disk, as many as may be under way; where none can be written
        those that may be told all the same.
        """
        waiting, flying = self._waiting, self._flying
        self._unread = False
        while waiting and self._may_tell(waiting[0]) and len(flying) < MOST_FLYING:
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

    def _may_tell(self, number: int) -> bool:
        """Return whether outcomes need not wait any more: they are on disk; or none can be written,
        and these are here. Calls that may run only once and were taken back wait all the same: a
        restarted dispatcher would run them, and their client may have handed them in again. With
        such a disk they could not begin either.
        """
        if number <= self._journal.committed or number not in self._outcomes:
            return True
        held = self._in_memory(number)
        if held is None or self._journal.file.failure is None:
            return False
        message, _ = held
        taken_back = filter(is_taken_back, message.outcomes)
        return not any(self._requests.runs_once(one.task) for one in taken_back)

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

    def _in_memory(self, number: int) -> tuple[Finished, Sequence[Buffer]] | None:
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
        file = self._journal.file
        withdrawn = file.withdraw(self._later.pop(one)[0] for one in gone if one in self._later)
        for number in gone:
            self._flying.discard(number)
            self._large.pop(number, None)
        ended, whole = self._requests.end([self._outcomes.pop(number) for number in gone])
        partly = [(id, calls.tobytes()) for id, calls in ended.items()]
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

    def _collect(self) -> None:
        """Delete what no request needs any more that is left."""
        if rows := self._requests.collect():
            self._delete("requests WHERE id = ?", rows)

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
        return self._requests.owed

    @property
    def owed_calls(self) -> int:
        """As `owed`, of calls."""
        return self._requests.owed_calls

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
        file = self._journal.file
        for id, content in file.read(
            "SELECT number, content FROM outcomes WHERE client = ? ORDER BY number", self._number
        ):
            message, _ = read_content(content)
            self._outcomes[id] = _calls_of(message.outcomes)
        own: dict[int, list[tuple[int, int]]] = {}
        yield from self._requests.replay(file, ranges_of(self._outcomes.values()), own)
        self._parts.update(own)
        settled.update(own)


def _calls_of(items: Iterable[FinishedItem]) -> array[int]:
    """Return the calls of outcomes as `ranges_of` takes them."""
    calls = array("q")
    for one in items:
        calls.extend((one.task, one.start, one.stop, one.last))
    return calls
