"""One client's part of the dispatcher's journal: its requests (`journaled_requests`), and the
outcomes that it has not acknowledged.

A restarted dispatcher handles the remaining requests as if they arrived again, without the calls
that have ended.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace

from gridengine.dispatcher import journal_limits
from gridengine.dispatcher.serving.client_process import dump_error_by
from gridengine.dispatcher.serving.journaled_requests import ClientRequests, Request, is_taken_back
from gridengine.dispatcher.serving.shared_journal import (
    LARGE,
    Journal,
    RowContent,
    portions_of,
    ranges_of,
    read_content,
)
from gridengine.display import log
from gridengine.serialize.codecs import PICKLE
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.wire.messages import ClientHello, Durable, Finished, FinishedItem, Message, Submit

ROWS_OF_REQUESTS = ("ended WHERE request", "requests WHERE id")
"""The rows of a request, by table and column."""
Change: TypeAlias = tuple[str, Sequence[Sequence[Any]]]
"""A statement, and the values of each of its executions."""
MOST_FLYING = 64
"""How many messages with outcomes a client is sent before it acknowledges the first of them."""


class ClientRecord:
    """One client's part of the journal.

    Args:
        journal: the journal of all clients.
        number: the client's.
        hello: its greeting.
        send: sends the client a message if it is connected; returns whether it is.
        seen: how many of the client's requests the journal has.
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
        """Whether the client recognises calls that it is told of twice, however they are grouped,
        and no other client can inherit them. Then its outcomes need not be durable before they are
        sent.
        """
        self.seen = seen
        self._durable = seen
        self._outcomes: dict[int, array[int]] = {}
        """The messages that the client has not acknowledged, by number. Each array has four numbers
        for each range of calls: the task, the first call, the one after the last, and whether no
        call of the task is left.
        """
        self._parts: set[int] = set()
        """The tasks of which some calls have ended, and others have not."""
        self._flying: set[int] = set()
        self._waiting: deque[int] = deque()
        self._answers: deque[tuple[int, Message, Sequence[Buffer]]] = deque()
        """Answers that must follow an outcome which still waits, each with the number of that
        outcome's message.
        """
        self._unread = False
        """Whether the last attempt to read a waiting message from the file failed."""
        self._dump_error = dump_error_by(hello.codec)
        self._held: dict[int, tuple[Finished, Sequence[Buffer]]] = {}
        """The contents of waiting messages that are not durable yet."""
        self._later: dict[int, tuple[int, Finished, Sequence[Buffer]]] = {}
        """Messages that were sent and whose write is deferred because they are large: the client
        may acknowledge them in a moment, and then they need not be written. What the calls' workers
        sent is acknowledged to them when the write is done or is no longer needed.
        """
        self._large: dict[int, tuple[Finished, Sequence[Buffer]]] = {}
        """Messages that no row can hold. A restarted dispatcher does not have them."""

    # ---------------------------------------------------------------- requests of the client

    def take(self, message: Request, buffers: Sequence[Buffer]) -> None:
        """Record a request. The client is told once the request is durable.

        Raises:
            ConfigurationError: the request has a task that no row can hold, and its tasks must be
                refused. The request is counted all the same, as the client counts it.
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
        if refusal is not None:
            raise refusal

    def _write_inserted(self, change: Change, then: Callable[[], object]) -> None:
        """Write the rows of new requests and one other change, and delete the rows that are no
        longer needed, all or none.
        """
        insert = "INSERT INTO requests VALUES (?, ?, ?, ?)", self._requests.take_rows()
        self._journal.file.write_together(insert, change, *self._deletions(), then=then)

    def _deletions(self) -> list[Change]:
        """Return the changes that delete the requests whose calls have ended, and everything that
        only these requests held.
        """
        gone = self._requests.take_gone()
        if not gone:
            return []
        rows = [(id,) for id in gone]
        return [(f"DELETE FROM {which} = ?", rows) for which in ROWS_OF_REQUESTS]

    def _note_durable(self, seen: int) -> None:
        self._durable = seen
        self._journal.note_durable(self.tell_durable)

    def tell_durable(self) -> None:
        """Tell the client how many requests are durable, and send it the outcomes that may be sent
        by now. If it is not connected, free the memory of outcomes that are durable.
        """
        if self._send(Durable(self._durable), ()):
            self.send_waiting()
        else:
            self._let_go()

    # ---------------------------------------------------------------- outcomes

    def finish(self, items: list[FinishedItem], buffers: Sequence[Buffer]) -> None:
        """Record outcomes and send them. These wait until they are durable:

        - Outcomes of calls that were recalled. The client may submit the calls again, and after a
          restart they could run twice.
        - Outcomes of calls whose results others need. A restarted dispatcher would run the calls
          again, possibly with other results, and would wait for the client to say which result
          counts.
        - Parts of a task, when other outcomes wait, or when the client does not recognise calls
          (see `_tells_apart`). A restarted dispatcher may group the calls of the task differently,
          so that some would be told twice.
        """
        for some, its in portions_of(items, buffers):
            self._finish(some, its)

    def _finish(self, items: list[FinishedItem], buffers: Sequence[Buffer]) -> None:
        """Record one message with outcomes, and send it if it need not wait."""
        number = self._journal.numbers()
        requests = self._requests
        needed = requests.needed
        waits = any((one.recalled and not one.path) or one.task in needed for one in items)
        apart = self._tells_apart and not self._waiting
        requests.supply(items, buffers)
        self._outcomes[number] = _calls_of(items)
        message = Finished(0, items, number)
        # Send before the write: whoever waits for the outcome need not wait for the disk.
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
        # The last part of a task marks the whole task as ended in the journal. It must not be
        # durable before the other parts, so their deferred writes come first.
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
        """Return the rows for a message that no row can hold. If all calls of the task ended
        together and can run again, there is no row, and after a restart they do run again.
        Otherwise the row has an error: without a row, this part of the task would never have an
        outcome, because the task counts as ended when its last part is there.
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
        """Return whether all calls of each task ended together. Record the tasks of which only a
        part has ended.
        """
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
        """Whether outcomes wait because the disk takes no writes, or cannot be read."""
        return self._unread or (bool(self._held) and self._journal.file.failure is not None)

    def send_waiting(self) -> None:
        """Send waiting outcomes that are durable, up to `MOST_FLYING`. When the disk takes no
        writes, send those too that need not wait for it.
        """
        waiting, flying = self._waiting, self._flying
        self._unread = False
        while waiting and self._may_tell(waiting[0]) and len(flying) < MOST_FLYING:
            number = waiting[0]
            if number not in self._outcomes:  # the client acknowledged it to the earlier process
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
        """Return whether a waiting message may be sent: it is durable; or the disk takes no writes,
        and the message is in memory. Recalled calls that may run only once wait even then: a
        restarted dispatcher would run them, and the client may have submitted them again. Nobody
        loses by waiting, because with such a disk these calls could not begin either.
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
        """Send an answer after all outcomes that wait now."""
        if self._waiting:
            self._answers.append((self._waiting[-1], message, buffers))
        else:
            self._send(message, buffers)

    def _let_go(self) -> None:
        """Free the memory of outcomes that are durable or sent."""
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
        """Return a message that is on disk; None if it cannot be read now."""
        try:
            [(content,)] = self._journal.file.read(
                "SELECT content FROM outcomes WHERE number = ?", number
            )
        except sqlite3.Error as error:  # for example, the file of a slow disk is locked
            log().warning("%s cannot be read: %s", self._journal.file.path, error)
            self._unread = True
            return None
        return read_content("outcomes", number, content)

    def taken(self, numbers: Iterable[int]) -> None:
        """Delete outcomes that the client has acknowledged, and the requests whose calls have all
        ended.
        """
        gone = [number for number in dict.fromkeys(numbers) if number in self._outcomes]
        if not gone:
            return
        file = self._journal.file
        withdrawn = file.withdraw(self._later.pop(one)[0] for one in gone if one in self._later)
        for number in gone:
            self._flying.discard(number)
            self._large.pop(number, None)
        ended = self._requests.end([self._outcomes.pop(number) for number in gone])
        partly = [(id, calls.tobytes()) for id, calls in ended.items()]
        # All or none: a request that is left, without the outcome of its calls, would seem not to
        # have ended.
        file.write_together(
            ("INSERT INTO ended VALUES (?, ?)", partly),
            ("DELETE FROM outcomes WHERE number = ?", [(number,) for number in gone]),
            *self._deletions(),
            then=partial(file.settle_later, withdrawn) if withdrawn else None,
        )
        self.send_waiting()

    def _delete(
        self, where: str, numbers: Iterable[int], then: Callable[[], object] | None = None
    ) -> None:
        self._write(f"DELETE FROM {where}", [(number,) for number in numbers], then)

    def delete(self) -> None:
        """Delete the client and all its rows."""
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
        """How many tasks have calls that have not ended, or whose outcomes the client has not
        acknowledged.
        """
        return self._requests.owed

    @property
    def owed_calls(self) -> int:
        """The same count as `owed`, in calls."""
        return self._requests.owed_calls

    @property
    def ready(self) -> int:
        """How many messages with outcomes the client has not acknowledged."""
        return len(self._outcomes)

    def leave(self, since: float) -> None:
        """Record since when the client is gone. Outcomes that were sent but not acknowledged wait
        again.
        """
        self._flying.clear()
        self._answers.clear()
        self._waiting = deque(self._outcomes)
        self._write("REPLACE INTO absent VALUES (?, ?)", [(self._number, since)])

    # ---------------------------------------------------------------- after a restart

    def resume(self) -> None:
        """Send the client, which has come back, all outcomes that it has not acknowledged."""
        self._flying.clear()
        self._waiting = deque(self._outcomes)
        self.send_waiting()

    def replay(
        self, settled: dict[int, list[tuple[int, int]]]
    ) -> Iterator[tuple[Message, Sequence[Buffer]]]:
        """Yield the client's requests, in their order, without the tasks that have ended. For tasks
        of which some calls have ended, add the ranges of these calls to `settled`.

        Raises:
            ProtocolError: a row of the client is damaged.
        """
        file = self._journal.file
        for id, content in file.read(
            "SELECT number, content FROM outcomes WHERE client = ? ORDER BY number", self._number
        ):
            message, _ = read_content("outcomes", id, content)
            self._outcomes[id] = _calls_of(message.outcomes)
        own: dict[int, list[tuple[int, int]]] = {}
        yield from self._requests.replay(file, ranges_of(self._outcomes.values()), own)
        self._parts.update(own)
        settled.update(own)


def _calls_of(items: Iterable[FinishedItem]) -> array[int]:
    """Return the calls of outcomes in the form that `ranges_of` takes."""
    calls = array("q")
    for one in items:
        calls.extend((one.task, one.start, one.stop, one.last))
    return calls
