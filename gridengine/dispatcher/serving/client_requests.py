"""What a dispatcher's journal has of what a client has handed in: its requests, in their order,
until all that they asked for has ended and the client has that.

A request is a message as it came; what a message of tasks defines has rows of its own.
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
"""Kinds of requests: tasks; what their messages define, one each; all others."""
Row: TypeAlias = tuple[int, int, int, RowContent]
"""The number of a request, its client, its kind, and its message."""
Calls: TypeAlias = dict[int, list[tuple[int, int, int]]]
"""Of tasks some calls, as `ranges_of` returns them."""
Name: TypeAlias = bytes | int
"""Of a function, a shared object, or (a number) a result that calls refer to."""
Other: TypeAlias = ClientCancel | ClientRecall | ClientForget | Want
Request: TypeAlias = Submit | Supply | Other
LEAST_OTHERS = 1000
"""When so many more rows wait for older requests it is asked which of them are needed."""
_FEW_TASKS, _BLOCK_BITS = 16, 10
"""Requests of so few tasks are found by each task's id, others by blocks of so many ids: of one
block there are few.
"""


class _Request(Struct, eq=False):
    """Tasks that were handed in together: their ids, sorted, and how many of them, and of their
    calls, have not ended, or their client does not know so. `once`: whether some may run only once;
    `uses`: what they name.
    """

    id: int
    tasks: array[int]
    left: int
    calls: int
    once: bool
    uses: tuple[Name, ...]

    def has(self, task: int) -> bool:
        """Return whether this is one of the tasks."""
        place = bisect_left(self.tasks, task)
        return place < len(self.tasks) and self.tasks[place] == task


class ClientRequests:
    """The requests of one client. Rows to be written are left to `take_rows`; which are to be
    deleted is returned.

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
        """The rows that go once no older request is left, or none that they are about."""
        self._most_others = LEAST_OTHERS
        self._definitions: dict[Name, dict[int, Sequence[Name]]] = {}
        """The rows of functions, shared objects and supplied results, by their names, and what each
        needs.
        """
        self.needed: dict[int, dict[tuple[int, int], None]] = {}
        """Of tasks that have not ended: the calls whose results others need, and by which
        references.
        """

    @property
    def owed(self) -> int:
        """How many tasks there are that have not ended, or of which the client does not know so."""
        return sum(one.left for one in self._requests.values())

    @property
    def owed_calls(self) -> int:
        """As `owed`, of calls."""
        return sum(one.calls for one in self._requests.values())

    def runs_once(self, task: int) -> bool:
        """Return whether calls of this task, or of others handed in with it, may run only once."""
        request = self._find(task)
        return request is not None and request.once

    def _find(self, task: int) -> _Request | None:
        blocks = self._blocks.get(task >> _BLOCK_BITS, ())
        return self._small.get(task) or next((one for one in blocks if one.has(task)), None)

    # ---------------------------------------------------------------- what is handed in

    def take(self, message: Request, buffers: Sequence[Buffer]) -> None:
        """Take a message."""
        if isinstance(message, Submit):
            buffers = self._take_definitions(message, buffers)
            message = replace(message, function=None, shared=())
            for tasks, its in portions_of(message.tasks, buffers):
                part = replace(message, tasks=tasks)
                self._add(self._insert(TASKS, part, its), part)
                self._keep(tasks)
        elif isinstance(message, Supply):
            self._insert_supply(message, buffers)
        else:
            self._add_other(self._insert(OTHER, message, buffers), message)

    def _take_definitions(self, message: Submit, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Note what a message defines, and return the buffers of its tasks."""
        function = message.function
        own = () if function is None else buffers[: function.buffers]
        buffers = buffers[len(own) :]
        for one in message.shared:
            its, buffers = buffers[: one.buffers], buffers[one.buffers :]
            self._insert_definition(replace(message, tasks=[], function=None, shared=[one]), its)
        if function is not None:  # last, since it may need the others
            self._insert_definition(replace(message, tasks=[], shared=()), own)
        return buffers

    def _insert(self, kind: int, message: Message, buffers: Sequence[Buffer]) -> int:
        id = self._new_id()
        self._rows.append((id, self._number, kind, RowContent(message, buffers)))
        return id

    def _insert_definition(self, message: Submit | Supply, buffers: Sequence[Buffer]) -> None:
        self._define(self._insert(DEFINITION, message, buffers), message)

    def _insert_supply(self, message: Supply, buffers: Sequence[Buffer]) -> None:
        """Note what a reference stands for: of a result that no row can hold, that it is lost when
        the dispatcher is started again.
        """
        if journal_limits.is_large(buffers):
            buffers = pickling.dump_exception(journal_limits.lost(buffers))[:1]
            message = replace(message, raised=True, buffers=1)
        self._insert_definition(message, buffers)

    def take_rows(self) -> list[Row]:
        """Return the rows that are to be written, once."""
        rows, self._rows = self._rows, []
        return rows

    def _add_other(self, id: int, message: Other) -> None:
        if type(message) is Want and self._find(message.task) is not None:
            # The client of a dispatcher that was started again asks again.
            self.needed.setdefault(message.task, {})[message.index, message.reference] = None
        self._others.append((id, message))

    def _define(self, id: int, message: Submit | Supply) -> None:
        """Note what a row defines."""
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

    def _keep(self, tasks: Iterable[TaskItem]) -> None:
        """Note whose results others need."""
        for task in tasks:
            if task.kept:
                self.needed[task.id] = dict.fromkeys(task.kept)

    # ---------------------------------------------------------------- what has come of it

    def supply(self, items: Iterable[FinishedItem], buffers: Sequence[Buffer]) -> None:
        """Note results that other calls need, as if the client had supplied them."""
        if not self.needed:
            return
        offset = 0
        for one in items:
            payload = buffers[offset : offset + one.count_buffers()]
            offset += len(payload)
            kept = self.needed.get(one.task, ())
            for index, reference in [each for each in kept if one.start <= each[0] < one.stop]:
                if is_taken_back(one):
                    continue  # the client says what became of it
                raised, cancelled = one.raised or one.failed, one.recalled or one.ended
                its = payload[: one.buffers or one.failed]
                supply = Supply(
                    0, reference, index - one.start, raised, cancelled, one.path, len(its)
                )
                self._insert_supply(supply, its)
            if one.last:
                self.needed.pop(one.task, None)

    def end(self, outcomes: Iterable[array[int]]) -> tuple[dict[int, array[int]], list[int]]:
        """Note that the client knows what came of these calls, as `ranges_of` takes them; return
        them by the numbers of those of their requests that are left, and the numbers of those of
        which nothing is.
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
        if len(request.tasks) <= _FEW_TASKS:
            for task in request.tasks:
                if self._small.get(task) is request:  # nobody hands in a task twice, unless to harm
                    del self._small[task]
            return
        for block in {task >> _BLOCK_BITS for task in request.tasks}:
            others = self._blocks[block]
            others.remove(request)
            if not others:
                del self._blocks[block]

    def collect(self) -> list[int]:
        """Return the rows that no request needs any more that is left; they are to be deleted."""
        oldest = next(iter(self._requests), math.inf)
        rows: list[int] = []
        while self._others and self._others[0][0] < oldest:
            rows += self._end_other(*self._others.popleft())
        if len(self._others) > self._most_others:
            rows += self._compact()
        return rows

    def _compact(self) -> Iterator[int]:
        """Yield the rows that no request needs though an older one is left, of which a call may
        take a week. This is done the more seldom the longer it takes.
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
        """Return those of the tasks that rows are about whose requests are left."""
        rows = (message for _, message in self._others if not isinstance(message, ClientForget))
        tasks = set(chain.from_iterable(map(_about, rows)))
        return {task for one in self._requests.values() for task in tasks.intersection(one.tasks)}

    def _used(self, tasks: set[Name]) -> set[Name]:
        """Return what requests that are left name, or want of these tasks, and what that needs."""
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
        """Yield this row, and those of what it has forgotten: of functions and shared objects those
        from before, since they may be named anew; of results those too that have come since.
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
        """Take what a file has of the requests, and yield their messages, in their order, without
        the tasks that have ended; add of the others the calls that have.

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
        message, buffers = content
        request = self._add(id, message)
        if not taken and ended.keys().isdisjoint(request.tasks):
            self._keep(message.tasks)
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
        self._keep(tasks)
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
    """Return whether the client has these calls again, as if it had not handed them in."""
    return item.recalled and not item.path
