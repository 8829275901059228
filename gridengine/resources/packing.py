"""Decide which task goes to which holder, and when. Sans-I/O: time is passed in.

First fit in order, with backfill. Tasks are tried in the order in which they came, each on the
holders in the order in which these came. A task that does not fit waits, while later ones that fit
may overtake it. When a task has been overtaken for `overtake_seconds`, a holder *drains* for it:
until the task has its place, no task that came later gets anything of that holder.

Tasks with equal requests and of one kind fit alike, so they wait in one queue, and only its head is
tried. Each queue remembers which holders may have room for it. A holder that had none is not asked
again before something of it is given back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from gridengine.errors import ConfigurationError, safe_repr
from gridengine.resources.base import FreeResources, Resource, ResourceKey, key_of

MOST_OUTDATED = 64
"""A queue is cleaned up once it has at least this many outdated entries."""
EMPTY_QUEUES = 16
"""This many empty queues are remembered, because the next task often belongs to one of them."""

TaskT = TypeVar("TaskT", bound=Hashable)
HolderT = TypeVar("HolderT", bound=Hashable)


class RequestFailed(Exception):
    """A method of a resource raised while a request of `tasks` was to be placed; `__cause__` is the
    exception.
    """

    def __init__(self, tasks: Sequence[Any]) -> None:
        super().__init__()
        self.tasks = tasks


class Placed(Struct, Generic[TaskT, HolderT], frozen=True):
    """A task that may begin, its holder, and the resources that it was given. `order` is its place
    in the queue, which the rest of the task, or a later run, may use again.
    """

    task: TaskT
    holder: HolderT
    given: Resource
    order: int


class _WaitingTask(NamedTuple):
    """A task in its queue. By `entry`, a unique number, an outdated entry is skipped."""

    order: int
    entry: int
    since: float
    task: Hashable


class _Holder(Struct, eq=False):
    """A holder. `free` accounts for its free resources; `empty` is that with nothing given."""

    key: Hashable
    number: int
    resources: Resource
    free: FreeResources
    empty: FreeResources
    tasks: set[Hashable] = field(default_factory=set)
    drains_for: _Queue | None = None

    def could_hold(self, request: Resource, now: float) -> bool:
        return self.empty.of(request, now).can_allocate(request)

    def has_room(self, request: Resource, now: float) -> bool:
        return self.free.of(request, now).can_allocate(request)

    def load(self, request: Resource) -> float:
        """Return the load of the most used kind among those in a request."""
        used, all_of_it = self.free.of(request).usage()
        return used / all_of_it if all_of_it else 0.0


class _Queue(Struct, eq=False):
    """The tasks of one request and kind. `candidates` is a heap, and `listed` the set, of the
    numbers of holders that may have room.

    `key` is the kind, and the request's key from when it came, so that a user's code does not run
    again for comparisons.
    """

    request: Resource
    key: tuple[ResourceKey, Hashable]
    candidates: list[int]
    listed: set[int]
    tasks: list[_WaitingTask] = field(default_factory=list)
    overtaken_since: float | None = None
    drained: _Holder | None = None
    searched_at: int = -1

    def consider(self, number: int) -> None:
        if number not in self.listed:
            self.listed.add(number)
            heapq.heappush(self.candidates, number)


class Packer(Generic[TaskT, HolderT]):
    """Gives tasks their places on holders that come and go.

    Args:
        offers: the resources that future holders will have; None: anything.
        overtake_seconds: how long a task may be overtaken before a holder drains for it.
        admits: whether a waiting task may go to a holder now, apart from its resources. A holder
            that was refused is asked again after `reconsider`.
    """

    def __init__(
        self,
        offers: Iterable[Resource] | None = (),
        *,
        overtake_seconds: float = 60.0,
        admits: Callable[[TaskT, HolderT], bool] = lambda task, holder: True,
    ) -> None:
        if not overtake_seconds >= 0:
            raise ConfigurationError(
                f"overtake_seconds must not be negative, not {overtake_seconds!r}"
            )
        self.overtake_seconds = overtake_seconds
        self._admits: Callable[[Any, Any], bool] = admits
        self._offers = None if offers is None else list(offers)
        self._holders: dict[Hashable, _Holder] = {}
        self._by_number: dict[int, _Holder] = {}
        self._queues: dict[tuple[ResourceKey, Hashable], _Queue] = {}
        self._entries: dict[Hashable, tuple[int, _Queue]] = {}
        self._given: dict[Hashable, tuple[_Holder, Resource]] = {}
        self._last_holder = self._last_order = self._last_entry = 0
        self.furthest = 0
        """The last place in the order whose task was given anything."""
        self._changes = 0

    @property
    def waiting(self) -> int:
        """How many tasks have no place yet."""
        return len(self._entries)

    # ---------------------------------------------------------------- holders

    def open(self, key: HolderT, resources: Resource, now: float) -> None:
        """Add a holder. Its walltime, if it has one, counts from now."""
        if key in self._holders:
            raise ValueError(f"holder {key!r} is open already")
        self._last_holder += 1
        holder = _Holder(
            key=key,
            number=self._last_holder,
            resources=resources,
            free=FreeResources(resources, now),
            empty=FreeResources(resources, now),
        )
        self._holders[key] = self._by_number[holder.number] = holder
        self._freed(holder)
        self._changes += 1

    def shut(self, key: HolderT) -> list[TaskT]:
        """Remove a holder. Return the tasks that had their places there; they count as ended."""
        holder = self._holders.pop(key)
        del self._by_number[holder.number]
        self._stop_draining(holder.drains_for)
        for task in holder.tasks:
            del self._given[task]
        return list(holder.tasks)  # type: ignore[arg-type]

    def reconsider(self, key: HolderT) -> None:
        """Try a holder again with all tasks: `admits` may answer otherwise now."""
        self._freed(self._holders[key])
        self._changes += 1

    # ---------------------------------------------------------------- tasks

    def add(
        self,
        task: TaskT,
        request: Resource,
        now: float,
        *,
        order: int | None = None,
        kind: Hashable = None,
        asked: Resource | None = None,
    ) -> None:
        """Queue a task that waits since `now`, behind all others. With the `order` of an earlier
        place, queue it where it would be if it had waited since then. Tasks of one request and
        `kind` wait for each other: only the first of them is asked for. `asked` is the request as
        the user wrote it.

        Raises:
            ConfigurationError: no present or future holder can ever hold the request.
            BaseException: an exception of a kind's method.
        """
        if task in self._entries or task in self._given:
            raise ValueError(f"task {task!r} is here already")
        key = key_of(request), kind
        queue = self._queues.get(key)
        if queue is None:
            self._must_be_possible(request, asked or request)
            numbers = list(self._by_number)
            queue = self._queues[key] = _Queue(request, key, numbers, set(numbers))
        if order is None:
            self._last_order += 1
        else:
            self._consider_draining(queue)
        self._enqueue(queue, self._last_order if order is None else order, now, task)
        self._forgive(queue)

    def reorder(self, task: TaskT, since: float, order: int) -> None:
        """Give a waiting task another place. The time for which it was overtaken still counts."""
        queue = self._entries[task][1]
        self._consider_draining(queue)
        self._enqueue(queue, order, since, task)
        if len(queue.tasks) > 2 * len(self._entries) + MOST_OUTDATED:
            queue.tasks = [one for one in queue.tasks if self._waits(one, queue)]
            heapq.heapify(queue.tasks)

    def _consider_draining(self, queue: _Queue) -> None:
        """Try again the holders that drain: a task with an earlier place may go there."""
        for one in self._queues.values():
            if one.drained is not None:
                queue.consider(one.drained.number)

    def _enqueue(self, queue: _Queue, order: int, since: float, task: Hashable) -> None:
        self._last_entry += 1
        self._entries[task] = self._last_entry, queue
        heapq.heappush(queue.tasks, _WaitingTask(order, self._last_entry, since, task))

    def remove(self, task: TaskT) -> None:
        """Remove a task: it has ended and gives its resources back, or it need not wait any longer.
        An unknown task is no error.
        """
        waited = self._entries.pop(task, None)
        if waited is not None:
            self._stop_draining(waited[1])
        elif task in self._given:
            holder, given = self._given.pop(task)
            holder.tasks.discard(task)
            try:
                holder.free.of(given).deallocate(given)
            finally:  # the kinds that did not raise have their parts back
                self._freed(holder)

    def can_hold(self, request: Resource, now: float) -> bool:
        """Return whether a present holder could satisfy a request if it were empty.

        Raises:
            BaseException: an exception of a kind's method.
        """
        return any(holder.could_hold(request, now) for holder in self._holders.values())

    def place_at(
        self, key: HolderT, task: TaskT, request: Resource, now: float
    ) -> Placed[TaskT, HolderT] | None:
        """Give a task a place at this holder if there is room now, before all waiting tasks.

        Raises:
            BaseException: an exception of a kind's method.
        """
        holder = self._holders[key]
        if not holder.has_room(request, now):
            return None
        given = holder.free.of(request).allocate(request)
        self._given[task] = holder, given
        holder.tasks.add(task)
        return Placed(task, key, given, 0)

    def place(self, now: float) -> Iterator[Placed[TaskT, HolderT]]:
        """Yield each task that may begin now. Call this after every change, and every now and then.

        During the iteration tasks may be added: the rest of a task just placed, with the same
        order, is tried next.

        Raises:
            RequestFailed: a method of a kind raised. Remove the tasks of that request before you
            call this again.
        """
        heads = [
            (head.order, head.entry, queue)
            for queue in self._queues.values()
            if (head := self._head(queue))
        ]
        heapq.heapify(heads)
        try:
            yield from self._place(heads, now)
        finally:
            self._look_back(now)

    def _place(
        self, heads: list[tuple[int, int, _Queue]], now: float
    ) -> Iterator[Placed[TaskT, HolderT]]:
        while heads:
            queue = heapq.heappop(heads)[-1]
            head = self._head(queue)
            if head is None:
                continue
            try:
                holder = self._room(queue, head, now)
                if holder is None:
                    self._blocked(queue, head, now)
                    continue
                placed = self._give(queue, head, holder)
            except BaseException as error:  # a kind may be a user's own, and raise anything
                tasks = [one.task for one in queue.tasks if self._waits(one, queue)]
                raise RequestFailed(tasks) from error
            yield placed
            head = self._head(queue)
            if head is not None:
                heapq.heappush(heads, (head.order, head.entry, queue))

    # ---------------------------------------------------------------- for checks

    @property
    def places(self) -> dict[Hashable, set[Hashable]]:
        """The tasks that have their places at each holder."""
        return {one.key: set(one.tasks) for one in self._holders.values()}

    def overlooked(self, now: float) -> Iterator[tuple[Any, Any]]:
        """Yield each task that waits though it could begin, with its holder: none after `place`."""
        for queue in self._queues.values():
            if (head := self._head(queue)) is None:
                continue
            for holder in self._holders.values():
                if self._may_have(queue, head, holder) and holder.has_room(queue.request, now):
                    yield head.task, holder.key

    # ---------------------------------------------------------------- how

    def _must_be_possible(self, request: Resource, asked: Resource) -> None:
        if self._offers is None:
            return
        shapes = [*self._offers, *(holder.resources for holder in self._holders.values())]
        if not any(FreeResources(shape).of(request).can_allocate(request) for shape in shapes):
            held = ", or ".join(sorted(set(map(safe_repr, shapes)))) or "nothing"
            raise ConfigurationError(
                f"no worker can ever hold {safe_repr(asked)}: they hold {held}",
                hint="ask for less; or have workers hold more: worker_resources= of the scheduler",
            )

    def _head(self, queue: _Queue) -> _WaitingTask | None:
        while queue.tasks:
            head = queue.tasks[0]
            if self._waits(head, queue):
                return head
            heapq.heappop(queue.tasks)
        return None

    def _waits(self, one: _WaitingTask, queue: _Queue) -> bool:
        return self._entries.get(one.task, (0, queue))[0] == one.entry

    def _room(self, queue: _Queue, head: _WaitingTask, now: float) -> _Holder | None:
        while queue.candidates:
            holder = self._by_number.get(queue.candidates[0])
            if (
                holder is not None
                and self._may_have(queue, head, holder)
                and holder.has_room(queue.request, now)
            ):
                return holder
            queue.listed.discard(heapq.heappop(queue.candidates))
        return None

    def _may_have(self, queue: _Queue, head: _WaitingTask, holder: _Holder) -> bool:
        """Return whether the head of a queue may have something of a holder: it is admitted there,
        and the holder does not drain for a task that came earlier.
        """
        if not self._admits(head.task, holder.key):
            return False
        other = holder.drains_for
        first = None if other is None or other is queue else self._head(other)
        return first is None or head.order <= first.order

    def _give(self, queue: _Queue, head: _WaitingTask, holder: _Holder) -> Placed[TaskT, HolderT]:
        given = holder.free.of(queue.request).allocate(queue.request)
        heapq.heappop(queue.tasks)
        del self._entries[head.task]
        self._given[head.task] = holder, given
        holder.tasks.add(head.task)
        self._stop_draining(queue)
        self.furthest = max(self.furthest, head.order)
        self._forgive(queue)
        return Placed(head.task, holder.key, given, head.order)  # type: ignore[arg-type]

    def _forgive(self, queue: _Queue) -> None:
        """Note that the head of a queue is no longer overtaken. An empty queue keeps its state: its
        next task may have an earlier order.
        """
        head = self._head(queue)
        if head is not None and head.order > self.furthest:
            queue.overtaken_since = None

    def _freed(self, holder: _Holder) -> None:
        for queue in self._queues.values():
            queue.consider(holder.number)

    def _blocked(self, queue: _Queue, head: _WaitingTask, now: float) -> None:
        """Let a holder drain for this queue, whose head fits nowhere, if the head has waited long
        enough.
        """
        drained = queue.drained
        if drained is not None and not (
            self._admits(head.task, drained.key) and drained.could_hold(queue.request, now)
        ):
            self._stop_draining(queue)
        if (
            queue.drained is None
            and queue.searched_at != self._changes
            and self._is_due(queue, head, now)
        ):
            queue.searched_at = self._changes
            able = [
                one
                for one in self._holders.values()
                if self._may_have(queue, head, one) and one.could_hold(queue.request, now)
            ]
            if able:
                holder = min(able, key=lambda one: one.load(queue.request))
                self._stop_draining(holder.drains_for)
                queue.drained, holder.drains_for = holder, queue

    def _is_due(self, queue: _Queue, head: _WaitingTask, now: float) -> bool:
        if self.overtake_seconds == 0:
            return True
        return (
            queue.overtaken_since is not None
            and now - max(queue.overtaken_since, head.since) >= self.overtake_seconds
        )

    def _stop_draining(self, queue: _Queue | None) -> None:
        """Release the holder that drains for this queue, if there is one."""
        if queue is not None and queue.drained is not None:
            holder, queue.drained = queue.drained, None
            holder.drains_for = None
            self._changes += 1
            self._freed(holder)

    def _look_back(self, now: float) -> None:
        """Note which queues were overtaken. Forget empty queues except the last few: they remember
        which holders have no room.
        """
        empty = []
        for queue in self._queues.values():
            head = self._head(queue)
            if head is None:
                queue.overtaken_since = None
                empty.append(queue.key)
            elif queue.overtaken_since is None and head.order < self.furthest:
                queue.overtaken_since = now
        for key in empty[:-EMPTY_QUEUES]:
            del self._queues[key]
