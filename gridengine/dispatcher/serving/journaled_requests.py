"""The requests of one client in the dispatcher's journal, in their order. A request stays until all
its calls have ended and the client has acknowledged their outcomes.

Most requests are one row, with the message as it came. Of a message with tasks, each function and
shared object that it defines has a row of its own, because definitions outlive tasks.

All other rows go with the last thing that holds them:

    tasks ---hold---> cancellations, recalls and wants about them
    tasks, wants, definitions ---hold---> names that they use
    the client ---holds---> each name, until it forgets the name
    name ---holds---> its definitions, and the releases by which it was forgotten

The rows that go together are deleted in one transaction.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher import journal_limits
from gridengine.dispatcher.serving.shared_journal import (
    RowContent,
    portions_of,
    ranges_of,
    read_content,
    task_ids,
)
from gridengine.journal.dispatcher_file import DispatcherFile
from gridengine.serialize import pickling
from gridengine.serialize.payload import Buffer
from gridengine.wire.messages import (
    ClientCancel,
    ClientForget,
    ClientRecall,
    FinishedItem,
    Message,
    Submit,
    Supply,
    TaskItem,
    Want,
)

TASKS, DEFINITION, OTHER = range(3)
"""The kinds of rows: tasks; one definition (a function, a shared object or a supplied result); any
other message.
"""
Row: TypeAlias = tuple[int, int, int, RowContent]
"""The number of a row, its client, its kind, and its message."""
Calls: TypeAlias = dict[int, list[tuple[int, int, int]]]
"""Ranges of calls by task, as `ranges_of` returns them."""
Name: TypeAlias = bytes | int
"""The name of a function or a shared object, or the number of a reference."""
Other: TypeAlias = ClientCancel | ClientRecall | ClientForget | Want
Request: TypeAlias = Submit | Supply | Other
_RETRIES, _COUNT = attrgetter("retries"), attrgetter("count")
_FEW_TASKS, _BLOCK_BITS = 16, 10
"""A request of up to `_FEW_TASKS` tasks is found by the number of each task. A larger one is found
by the blocks of `2 ** _BLOCK_BITS` numbers that its tasks fall into; few requests share a block.
"""


class _JournalRow(Struct, eq=False):
    """A row of the journal, with a count of references.

    held: how many rows and open requests refer to it; the request that created it is one.
    holds: the rows and names that it refers to. They go with it unless others refer to them too.
    """

    id: int
    held: int = 1
    holds: list[_JournalRow] = []

    def hold(self, other: _JournalRow) -> None:
        self.holds.append(other)
        other.held += 1


class _Name(_JournalRow, eq=False, kw_only=True):
    """A function, shared object or result that the client has named. Its `id` is 0, as it is not a
    row.
    """

    name: Name
    forgotten: bool = False


class _Request(_JournalRow, eq=False, kw_only=True):
    """Tasks that were handed in together.

    tasks: their numbers, sorted. left, calls: how many of the tasks, and of their calls, have not
    ended or have unacknowledged outcomes. once: whether some of the calls may run only once.
    """

    tasks: array[int]
    left: int
    calls: int
    once: bool

    def has(self, task: int) -> bool:
        """Return whether a task belongs to this request."""
        place = bisect_left(self.tasks, task)
        return place < len(self.tasks) and self.tasks[place] == task


class ClientRequests:
    """The requests of one client. This class writes nothing: `take_rows` and `take_gone` return the
    rows to write and to delete.

    Args:
        number: the client's.
        new_id: returns a number for a row.
    """

    def __init__(self, number: int, new_id: Callable[[], int]) -> None:
        self._number = number
        self._new_id = new_id
        self._rows: list[Row] = []
        self._requests: dict[int, _Request] = {}
        self._small: dict[int, _Request] = {}
        self._blocks: dict[int, list[_Request]] = {}
        self._gone: list[int] = []
        self._names: dict[Name, _Name] = {}
        """The functions, shared objects and results that rows use, or that the client may use."""
        self.needed: dict[int, dict[tuple[int, int], None]] = {}
        """The calls whose results others need, by task: pairs of the call's index and its
        reference. Only tasks that have not ended.
        """

    @property
    def owed(self) -> int:
        """How many tasks have calls that have not ended, or whose outcomes the client has not
        acknowledged.
        """
        return sum(one.left for one in self._requests.values())

    @property
    def owed_calls(self) -> int:
        """The same count as `owed`, in calls."""
        return sum(one.calls for one in self._requests.values())

    def runs_once(self, task: int) -> bool:
        """Return whether this task, or another of the same request, has calls that may run only
        once.
        """
        request = self._find(task)
        return request is not None and request.once

    def _find(self, task: int) -> _Request | None:
        blocks = self._blocks.get(task >> _BLOCK_BITS, ())
        return self._small.get(task) or next((one for one in blocks if one.has(task)), None)

    # ---------------------------------------------------------------- new requests

    def take(self, message: Request, buffers: Sequence[Buffer]) -> None:
        """Record a request."""
        if isinstance(message, Submit):
            buffers = self._take_definitions(message, buffers)
            message = replace(message, function=None, shared=())
            for tasks, its in portions_of(message.tasks, buffers):
                part = replace(message, tasks=tasks)
                self._add(self._insert(TASKS, part, its), part)
                self._note_needed(tasks)
        elif isinstance(message, Supply):
            self._insert_supply(message, buffers)
        else:
            row = self._add_other(self._new_id(), message)
            if row.held:
                self._rows.append((row.id, self._number, OTHER, RowContent(message, buffers)))

    def _take_definitions(self, message: Submit, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Record the definitions of a message, and return the buffers of its tasks."""
        function = message.function
        own = () if function is None else buffers[: function.buffers]
        buffers = buffers[len(own) :]
        for one in message.shared:
            its, buffers = buffers[: one.buffers], buffers[one.buffers :]
            self._insert_definition(replace(message, tasks=[], function=None, shared=[one]), its)
        if function is not None:  # last, because the function may need the shared objects
            self._insert_definition(replace(message, tasks=[], shared=()), own)
        return buffers

    def _insert(self, kind: int, message: Message, buffers: Sequence[Buffer]) -> int:
        id = self._new_id()
        self._rows.append((id, self._number, kind, RowContent(message, buffers)))
        return id

    def _insert_definition(self, message: Submit | Supply, buffers: Sequence[Buffer]) -> None:
        self._define(self._insert(DEFINITION, message, buffers), message)

    def _insert_supply(self, message: Supply, buffers: Sequence[Buffer]) -> None:
        """Record the result that a reference stands for. If no row can hold it, record an error
        that says that a restart lost it.
        """
        if journal_limits.is_large(buffers):
            buffers = pickling.dump_exception(journal_limits.lost(buffers))[:1]
            message = replace(message, raised=True, buffers=1)
        self._insert_definition(message, buffers)

    def take_rows(self) -> list[Row]:
        """Return the rows that are not written yet, each once."""
        rows, self._rows = self._rows, []
        return rows

    def take_gone(self) -> list[int]:
        """Return the numbers of the rows to delete, each once."""
        gone, self._gone = self._gone, []
        return gone

    def _let_go(self, row: _JournalRow) -> None:
        """Release a row or name. Without a holder it is removed, and releases everything that it
        holds.
        """
        row.held -= 1
        if row.held:
            return
        if not isinstance(row, _Name):
            self._gone.append(row.id)
        elif self._names.get(row.name) is row:
            del self._names[row.name]
        for one in row.holds:
            self._let_go(one)

    def _use(self, row: _JournalRow, names: Iterable[Name]) -> None:
        """Let a row hold names that it uses."""
        for name in names:
            row.hold(self._names.get(name) or self._new_name(name))

    def _new_name(self, name: Name) -> _Name:
        one = self._names[name] = _Name(id=0, name=name)
        return one

    def _add_other(self, id: int, message: Other) -> _JournalRow:
        """Record a message by the calls and names that it is about. Return its row, which nothing
        holds if the message has no effect after a restart.
        """
        row = _JournalRow(id)
        if isinstance(message, ClientForget):
            names: Iterable[Name] = chain(message.functions, message.shared, message.references)
            for name in names:
                one = self._names.get(name)
                if one is not None and not one.forgotten:
                    one.forgotten = True
                    one.hold(row)
                    self._let_go(one)
        for request in dict.fromkeys(map(self._find, _tasks_of(message))):
            if request is not None:
                request.hold(row)
                if isinstance(message, Want):
                    self._use(row, (message.reference,))
                    # A client repeats its question at a restarted dispatcher.
                    needed = self.needed.setdefault(message.task, {})
                    needed[message.index, message.reference] = None
        self._let_go(row)
        return row

    def _define(self, id: int, message: Submit | Supply) -> None:
        """Record which name a row defines. A forgotten function or shared object may be defined
        again. A forgotten reference stays forgotten: its result may come later.
        """
        name: Name
        needs: Sequence[Name]
        if isinstance(message, Supply):
            name, needs = message.reference, ()
        elif (function := message.function) is not None:
            name, needs = message.digest, (*function.needs, *function.after)
        else:
            [shared] = message.shared
            name, needs = shared.name, shared.needs
        row = _JournalRow(id)
        self._use(row, needs)
        known = self._names.get(name)
        if known is None or (known.forgotten and not isinstance(message, Supply)):
            known = self._new_name(name)
        known.hold(row)
        self._let_go(row)

    def _add(self, id: int, message: Submit) -> _Request:
        """Add the request of a row, and index it by its tasks."""
        tasks = message.tasks
        uses: set[Name] = {message.digest}
        once = not all(map(_RETRIES, tasks))
        for task in tasks:
            if task.needs or task.after or task.kept:
                uses.update(task.needs, task.after, (reference for _, reference in task.kept))
        count = sum(map(_COUNT, tasks))
        request = _Request(id=id, tasks=task_ids(tasks), left=len(tasks), calls=count, once=once)
        self._use(request, uses)
        self._requests[id] = request
        if len(request.tasks) <= _FEW_TASKS:
            self._small.update(dict.fromkeys(request.tasks, request))
        else:
            for block in {task >> _BLOCK_BITS for task in request.tasks}:
                self._blocks.setdefault(block, []).append(request)
        return request

    def _note_needed(self, tasks: Iterable[TaskItem]) -> None:
        """Record which calls' results others need."""
        for task in tasks:
            if task.kept:
                self.needed[task.id] = dict.fromkeys(task.kept)

    # ---------------------------------------------------------------- outcomes

    def supply(self, items: Iterable[FinishedItem], buffers: Sequence[Buffer]) -> None:
        """Record the results that other calls need, as if the client had supplied them: after a
        restart the calls that made them have ended and do not run again.
        """
        if not self.needed:
            return
        offset = 0
        for one in items:
            payload = buffers[offset : offset + one.count_buffers()]
            offset += len(payload)
            needed = self.needed.get(one.task, ())
            for index, reference in [each for each in needed if one.start <= each[0] < one.stop]:
                if is_taken_back(one):
                    continue  # the client supplies the result or its failure
                raised, cancelled = one.raised or one.failed, one.recalled or one.ended
                its = payload[: one.buffers or one.failed]
                supply = Supply(
                    runner=0,
                    reference=reference,
                    item=index - one.start,
                    raised=raised,
                    cancelled=cancelled,
                    path=one.path,
                    buffers=len(its),
                )
                self._insert_supply(supply, its)
            if one.last:
                self.needed.pop(one.task, None)

    def end(self, outcomes: Iterable[array[int]]) -> dict[int, array[int]]:
        """Record that the client has acknowledged the outcomes of these calls, which have the form
        that `ranges_of` takes. Return, for each request that has calls left, those of these calls
        that belong to it.
        """
        ended: dict[int, array[int]] = {}
        for calls in outcomes:
            for place in range(0, len(calls), 4):
                request = self._find(calls[place])
                if request is not None:
                    ended.setdefault(request.id, array("q")).extend(calls[place : place + 4])
                    request.left -= calls[place + 3]
                    request.calls -= calls[place + 2] - calls[place + 1]
        for id in [id for id in ended if not self._requests[id].left]:
            del ended[id]
            request = self._requests.pop(id)
            self._drop(request)
            self._let_go(request)
        return ended

    def _drop(self, request: _Request) -> None:
        """Remove a request from the index."""
        if len(request.tasks) <= _FEW_TASKS:
            for task in request.tasks:
                if self._small.get(task) is request:  # a task sent twice is in both
                    del self._small[task]
            return
        for block in {task >> _BLOCK_BITS for task in request.tasks}:
            others = self._blocks[block]
            others.remove(request)
            if not others:
                del self._blocks[block]

    # ---------------------------------------------------------------- after a restart

    def replay(
        self, file: DispatcherFile, ended: Calls, settled: dict[int, list[tuple[int, int]]]
    ) -> Iterator[tuple[Message, Sequence[Buffer]]]:
        """Restore the requests from a file. Yield their messages, in their order, without the tasks
        that have ended. For tasks of which some calls have ended, add the ranges of these calls to
        `settled`.

        Args:
            ended: the calls of the outcomes that the file has.

        Raises:
            ProtocolError: a row is damaged.
        """
        for id, kind, content in file.read(
            "SELECT id, kind, content FROM requests WHERE client = ? ORDER BY id", self._number
        ):
            message, buffers = read_content("requests", id, content)
            if kind == TASKS:
                rows = file.read("SELECT calls FROM ended WHERE request = ?", id)
                taken = ranges_of(array("q", calls) for (calls,) in rows)
                yield from self._replay_tasks(id, (message, buffers), taken, ended, settled)
                continue
            if kind == OTHER:
                self._add_other(id, message)
            else:
                self._define(id, message)
            yield message, buffers

    def _replay_tasks(
        self,
        id: int,
        content: tuple[Submit, Sequence[Buffer]],
        taken: Calls,
        ended: Calls,
        settled: dict[int, list[tuple[int, int]]],
    ) -> Iterator[tuple[Message, Sequence[Buffer]]]:
        """Restore a request with tasks. `taken` are the calls whose outcomes the client has
        acknowledged, `ended` the calls whose outcomes the file has.
        """
        message, buffers = content
        request = self._add(id, message)
        if not taken and ended.keys().isdisjoint(request.tasks):
            self._note_needed(message.tasks)
            yield content
            return
        request.left -= sum(any(one[2] for one in calls) for calls in taken.values())
        request.calls -= sum(stop - start for calls in taken.values() for start, stop, _ in calls)
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
        self._note_needed(tasks)
        if tasks:
            yield replace(message, tasks=tasks), its


def _tasks_of(message: Other) -> Iterable[int]:
    """Return the tasks that a message is about."""
    if isinstance(message, ClientForget):
        return ()
    if isinstance(message, Want):
        return (message.task,)
    tasks = message.tasks if isinstance(message, ClientCancel) else ()
    return chain(tasks, (task for task, _, _ in message.calls))


def is_taken_back(item: FinishedItem) -> bool:
    """Return whether these calls were recalled, so that the client has them again as if it had not
    submitted them. With a path, they were not recalled: a call that they need was cancelled.
    """
    return item.recalled and not item.path
