"""Tasks of one call that wait, many of them kept as one: each has its number and its payload of its
own, and no more. One is opened when its turn has come; all of a block are when somebody asks for
one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from gridengine.dispatcher.core.calls import OpenTask, Pace, RemoteObject, Span, Submitter
from gridengine.dispatcher.core.tasks import AlikeTasks
from gridengine.errors import UNNUMBERED

_GROUP_BITS = 10
"""Blocks are found by the numbers of their tasks, without so many of the last bits."""


class TaskBlock(Struct, eq=False):
    """Such tasks, of which the first `opened` are no more in it; see `OpenTask` for the others.
    `order` is the place of the first among all tasks.
    """

    alike: AlikeTasks
    function: RemoteObject
    submitter: Submitter
    pace: Pace
    order: int
    since: float
    table: TaskBlocks
    opened: int = 0

    @property
    def left(self) -> int:
        """How many tasks are in it."""
        return len(self.alike.payloads) - self.opened

    @property
    def numbers(self) -> range:
        """Their numbers."""
        return self.alike.numbers[self.opened :]

    def numbered(self, number: int) -> range:
        """Return the number of the task whose call has this one among all that the user asked for,
        if one has.
        """
        first, task = self.alike.task.first, self.alike.task.id
        if first == UNNUMBERED or not self.opened <= number - first < len(self.alike.payloads):
            return range(0)
        return range(task + number - first, task + number - first + 1)

    def open_next(self) -> Span:
        """Open the next of them, and return its call, as it is to wait in the place of the block:
        before it or, when none is left, instead of it.
        """
        place, payloads = self.opened, self.alike.payloads
        task = self.alike.at(place)
        payloads[place] = b""
        one = OpenTask(
            task,
            self.function,
            1,
            self.submitter,
            self.pace,
            order=self.order + place,
            since=self.since,
        )
        self.opened = place + 1
        self.table.note_opened(self, one)
        return Span(one, 0, 1, task.demand)

    def open_all(self) -> Iterator[Span]:
        """Open all of them."""
        while self.left:
            yield self.open_next()


class TaskBlocks:
    """All blocks. It is true while there are some.

    Args:
        open_tasks: the table of the tasks that are open.
    """

    def __init__(self, open_tasks: dict[int, OpenTask]) -> None:
        self._open_tasks = open_tasks
        self._groups: dict[int, list[TaskBlock]] = {}
        self.tasks = 0
        """How many tasks are in blocks."""

    def __bool__(self) -> bool:
        return self.tasks > 0

    def __iter__(self) -> Iterator[TaskBlock]:
        return iter({id(one): one for its in self._groups.values() for one in its}.values())

    def add(self, block: TaskBlock) -> None:
        """Add a block."""
        self.tasks += block.left
        for group in _groups(block.numbers):
            self._groups.setdefault(group, []).append(block)

    def find(self, task: int) -> TaskBlock | None:
        """Return the block that has a task of this number, if one has."""
        for block in self._groups.get(task >> _GROUP_BITS, ()):
            if task in block.numbers:
                return block
        return None

    def has_any(self, tasks: range) -> bool:
        """Return whether a block has a task of one of these numbers."""
        return any(
            block.numbers[0] < tasks.stop and tasks.start <= block.numbers[-1]
            for group in _groups(tasks)
            for block in self._groups.get(group, ())
        )

    def note_opened(self, block: TaskBlock, one: OpenTask) -> None:
        """Note that a task of a block is open."""
        number = one.task.id
        self._open_tasks[number] = one
        self.tasks -= 1
        group, numbers = number >> _GROUP_BITS, block.numbers
        if not numbers or numbers[0] >> _GROUP_BITS != group:
            its = self._groups[group]
            its.remove(block)
            if not its:
                del self._groups[group]

    def clear(self) -> None:
        """Forget all."""
        self._groups.clear()
        self.tasks = 0


def _groups(numbers: range) -> Iterable[int]:
    return range(numbers[0] >> _GROUP_BITS, (numbers[-1] >> _GROUP_BITS) + 1)
