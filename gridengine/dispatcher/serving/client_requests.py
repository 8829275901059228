"""The requests of one client in the dispatcher's journal, in their order. A request stays until all
its calls have ended and the client has acknowledged their outcomes.

Most requests are one row, with the message as it came. Of a message with tasks, each function and
shared object that it defines has a row of its own, because definitions outlive tasks.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher import journal_limits
from gridengine.dispatcher.serving.client_journal import (
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
LEAST_OTHERS = 1000
"""Look for rows that are no longer needed when at least this many wait for older requests."""
_FEW_TASKS, _BLOCK_BITS = 16, 10
"""A request of up to `_FEW_TASKS` tasks is found by the number of each task. A larger one is found
by the blocks of `2 ** _BLOCK_BITS` numbers that its tasks fall into; few requests share a block.
"""


class _Request(Struct, eq=False):
    """Tasks that were handed in together.

    id: of the row. tasks: their numbers, sorted. left, calls: how many of the tasks, and of their
    calls, have not ended or have unacknowledged outcomes. once: whether some of the calls may run
    only once. uses: the functions, shared objects and references that the tasks name.
    """

    id: int
    tasks: array[int]
    left: int
    calls: int
    once: bool
    uses: tuple[Name, ...]

    def has(self, task: int) -> bool:
        """Return whether a task belongs to this request."""
        place = bisect_left(self.tasks, task)
        return place < len(self.tasks) and self.tasks[place] == task


class ClientRequests:
    """The requests of one client. This class writes nothing: `take_rows` returns the rows to write,
    and other methods return the numbers of rows to delete.

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
        self._others: deque[tuple[int, Other]] = deque()
        """Rows with cancellations, recalls, wants and releases. Such a row can go when no older
        request is left, or no request that the row is about.
        """
        self._most_others = LEAST_OTHERS
        self._definitions: dict[Name, dict[int, Sequence[Name]]] = {}
        """The definitions: by name, the numbers of the rows that define it, each with the names
        that the definition needs.
        """
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

    # ---------------------------------------------------------------- what is handed in

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
            self._add_other(self._insert(OTHER, message, buffers), message)

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

    def _add_other(self, id: int, message: Other) -> None:
        if type(message) is Want and self._find(message.task) is not None:
            # A client repeats its question at a restarted dispatcher.
            self.needed.setdefault(message.task, {})[message.index, message.reference] = None
        self._others.append((id, message))

    def _define(self, id: int, message: Submit | Supply) -> None:
        """Record which name a row defines."""
        name: Name
        needs: Sequence[Name]
        if isinstance(message, Supply):
            name, needs = message.reference, ()
        elif (function := message.function) is not None:
            name, needs = message.digest, (*function.needs, *function.after)
        else:
            [shared] = message.shared
            name, needs = shared.name, shared.needs
        self._definitions.setdefault(name, {})[id] = needs

    def _add(self, id: int, message: Submit) -> _Request:
        """Add the request of a row, and index it by its tasks."""
        tasks = message.tasks
        uses: set[Name] = {message.digest}
        once = not all(task.retries for task in tasks)
        for task in tasks:
            if task.needs or task.after or task.kept:
                uses.update(task.needs, task.after, (reference for _, reference in task.kept))
        count = sum(task.count for task in tasks)
        request = _Request(id, task_ids(tasks), len(tasks), count, once, tuple(uses))
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

    # ---------------------------------------------------------------- what has come of it

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
                    0, reference, index - one.start, raised, cancelled, one.path, len(its)
                )
                self._insert_supply(supply, its)
            if one.last:
                self.needed.pop(one.task, None)

    def end(self, outcomes: Iterable[array[int]]) -> tuple[dict[int, array[int]], list[int]]:
        """Record that the client has acknowledged the outcomes of these calls, which have the form
        that `ranges_of` takes.

        Returns:
            - For each request that has calls left, those of these calls that belong to it.
            - The numbers of the requests that have no calls left.
        """
        ended: dict[int, array[int]] = {}
        for calls in outcomes:
            for place in range(0, len(calls), 4):
                request = self._find(calls[place])
                if request is not None:
                    ended.setdefault(request.id, array("q")).extend(calls[place : place + 4])
                    request.left -= calls[place + 3]
                    request.calls -= calls[place + 2] - calls[place + 1]
        whole = [id for id in ended if not self._requests[id].left]
        for id in whole:
            del ended[id]
            self._drop(self._requests.pop(id))
        return ended, whole

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

    def collect(self) -> list[int]:
        """Remove the rows that no remaining request needs, and return their numbers. The caller
        deletes them.
        """
        oldest = next(iter(self._requests), math.inf)
        rows: list[int] = []
        while self._others and self._others[0][0] < oldest:
            rows += self._end_other(*self._others.popleft())
        if len(self._others) > self._most_others:
            rows += self._compact()
        return rows

    def _compact(self) -> Iterator[int]:
        """Remove rows that are about no remaining request although an older request is left, which
        may take a week; yield their numbers. This looks at everything, so the limit for the next
        time grows with the work that it took.
        """
        tasks = self._tasks_left()
        uses, left = self._used(tasks), deque[tuple[int, Other]]()
        for id, message in self._others:
            about, needed = _about(message), uses if isinstance(message, ClientForget) else tasks
            if needed.isdisjoint(about):
                yield from self._end_other(id, message)
            else:
                left.append((id, message))
        self._others = left
        looked_at = len(left) + len(uses) + sum(len(one.tasks) for one in self._requests.values())
        self._most_others = len(left) + LEAST_OTHERS * (1 + looked_at // 1000)

    def _tasks_left(self) -> set[Name]:
        """Return the tasks of remaining requests that rows in `_others` are about."""
        rows = (message for _, message in self._others if not isinstance(message, ClientForget))
        tasks = set(chain.from_iterable(map(_about, rows)))
        return {task for one in self._requests.values() for task in tasks.intersection(one.tasks)}

    def _used(self, tasks: set[Name]) -> set[Name]:
        """Return all names that are needed: those that remaining requests or wants for these tasks
        use, and the names that their definitions need in turn.
        """
        uses = set(chain.from_iterable(one.uses for one in self._requests.values()))
        for _, message in self._others:
            if isinstance(message, Want) and message.task in tasks:
                uses.add(message.reference)
        names = list(uses)
        while names:
            for needs in self._definitions.get(names.pop(), {}).values():
                more = set(needs) - uses
                uses |= more
                names += more
        return uses

    def _end_other(self, id: int, message: Other) -> Iterator[int]:
        """Yield the number of this row, and, if it forgets names, of the rows that define them. Of
        functions and shared objects only earlier definitions go, because the client may define the
        name again. Of results later definitions go too, because nothing refers to a released
        reference again.
        """
        yield id
        if isinstance(message, ClientForget):
            for name in (*message.functions, *message.shared):
                rows = self._definitions.pop(name, {})
                later = {row: needs for row, needs in rows.items() if row > id}
                if later:
                    self._definitions[name] = later
                yield from rows.keys() - later.keys()
            for reference in message.references:
                yield from self._definitions.pop(reference, ())

    # ---------------------------------------------------------------- after a restart

    def replay(
        self, file: DispatcherFile, ended: Calls, settled: dict[int, list[tuple[int, int]]]
    ) -> Iterator[tuple[Message, Sequence[Buffer]]]:
        """Restore the requests from a file. Yield their messages, in their order, without the tasks
        that have ended. For tasks of which some calls have ended, add the ranges of these calls to
        `settled`.

        Args:
            ended: the calls of the outcomes that the file has.
        """
        for id, kind, content in file.read(
            "SELECT id, kind, content FROM requests WHERE client = ? ORDER BY id", self._number
        ):
            message, buffers = read_content(content)
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


def _about(message: Other) -> Iterable[Name]:
    """Return the tasks that a message is about, or the names that it forgets."""
    if isinstance(message, ClientForget):
        return chain(message.functions, message.shared, message.references)
    if isinstance(message, Want):
        return (message.task,)
    tasks = message.tasks if isinstance(message, ClientCancel) else ()
    return chain(tasks, (task for task, _, _ in message.calls))


def is_taken_back(item: FinishedItem) -> bool:
    """Return whether these calls were recalled, so that the client has them again as if it had not
    submitted them. With a path, they were not recalled: a call that they need was cancelled.
    """
    return item.recalled and not item.path
