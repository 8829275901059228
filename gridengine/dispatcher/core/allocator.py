"""Which queue has how much of which worker, where all requests share the workers. Sans-I/O, a part
of the core.

What a worker holds is lent in *lanes*: one lane is what one request asks for, given by the packer.
A lane is a seat of its queue, and is given batch after batch without asking anybody again. Only
when another queue waits for room does a lane go back at the end of its batch, and the packer
decides anew whose turn it is. So calls that have the workers to themselves cost the packer nothing.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING

from gridengine.dispatcher.core import failures
from gridengine.dispatcher.core.events import Grant, Send, Warn
from gridengine.dispatcher.core.model import Phase, SlotGroup, Worker
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.task_queue import TaskQueue
from gridengine.errors import ConfigurationError, safe_repr
from gridengine.resources.base import ZERO, Resource, is_nothing
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores, WTime
from gridengine.resources.packing import Books, Packer, Placed, RequestFailed
from gridengine.wire.messages import Release

if TYPE_CHECKING:
    from gridengine.dispatcher.core.state import StateMachine

MOST_FITTING = 1024
MOST_REMEMBERED = 1000


class Allocator:
    """Lends what workers hold to the pools of a core, `resources` by each worker."""

    def __init__(self, core: StateMachine, resources: Resource) -> None:
        self._core = core
        self._resources = resources
        self._offer = lasting(resources, core.policy.stay(resources))
        self._packer: Packer[int, bytes] = Packer(
            [self._offer], overtake_seconds=core.policy.overtake_seconds
        )
        self._wishes: dict[TaskQueue, int] = {}
        self._wishers: dict[int, TaskQueue] = {}
        self._open: set[bytes] = set()
        self._freed: dict[SlotGroup, None] = {}
        self._stirred: dict[TaskQueue, None] = {}
        self._room = False
        self._fitting: dict[Demand, int] = {}

    # ---------------------------------------------------------------- what happens to workers

    def open(self, worker: Worker, now: float) -> None:
        """A worker has come."""
        self._packer.open(worker.id, lasting(self._resources, worker.leave_at - now), now)
        self._open.add(worker.id)
        self._room = True

    def shut(self, worker: Worker) -> None:
        """A worker leaves, or has gone."""
        for seat in list(worker.seats):
            seat.pool.leave(seat)
            self.stir(seat.pool)
            self._freed.pop(seat, None)
        if worker.id in self._open:
            self._open.remove(worker.id)
            self._packer.shut(worker.id)

    def pause(self, worker: Worker) -> None:
        """Lend nothing more of a worker."""
        if worker.id in self._open:
            self._packer.pause(worker.id)

    def wake(self, worker: Worker) -> None:
        """A worker that was silent is heard again."""
        if worker.id in self._open:
            self._packer.resume(worker.id)
            self._freed.update(dict.fromkeys(worker.seats))
            self._stirred.update(dict.fromkeys(seat.pool for seat in worker.seats))
            self._room = True

    # ---------------------------------------------------------------- what happens to calls

    def freed(self, seat: SlotGroup) -> None:
        """Note that a batch has ended."""
        self._freed[seat] = self._stirred[seat.pool] = None

    def stir(self, pool: TaskQueue) -> None:
        """Note that calls have come to a queue, or have left it."""
        self._stirred[pool] = None

    def is_possible(self, demand: Demand) -> bool:
        """Return whether a worker can hold this."""
        try:
            request = booked(demand.request)
            return bool(Books(self._offer).of(request)._request(request))
        except BaseException:  # what it raised comes out when it is asked for
            return False

    def fitting(self, demand: Demand) -> int:
        """Return how many such requests one worker holds, at least 1."""
        if demand not in self._fitting:
            if len(self._fitting) >= MOST_REMEMBERED:
                self._fitting.clear()
            self._fitting[demand] = _fitting(self._offer, booked(demand.request))
        return self._fitting[demand]

    def settle(self, now: float, *, again: bool = False) -> None:
        """See that all that can be given is given, as the last act of an event; with `again` though
        nothing has happened.
        """
        for seat in self._freed:
            if seat not in seat.worker.seats:
                continue
            if self._others_wish(seat.pool):
                self._take_back(seat)
            else:
                seat.pool.place(seat)
        self._freed.clear()
        fresh = self._serve(now)
        if self._wishes and (self._room or fresh or again):
            self._room = False
            self._lend(now)
            for pool in fresh:
                self._gather_room(pool, now)
        self._serve(now)

    def _serve(self, now: float) -> list[TaskQueue]:
        """Give the calls of the queues that were stirred to the seats these have; return which wish
        for more since now.
        """
        fresh = []
        while self._stirred:
            pool = next(iter(self._stirred))
            del self._stirred[pool]
            if self._wants(pool, now):
                fresh.append(pool)
        return fresh

    def _wants(self, pool: TaskQueue, now: float) -> bool:
        """Give the calls of a queue to the seats it has; return whether it now wishes for more, and
        did not before.
        """
        self._core.fill(pool, now)
        if not pool.waiting:
            self._drop_wish(pool)
            self._core.tidy(pool)
            return False
        return pool not in self._wishes and self._wish(pool)

    def _others_wish(self, pool: TaskQueue) -> bool:
        return len(self._wishes) > (pool in self._wishes)

    # ---------------------------------------------------------------- lending

    def _request(self, pool: TaskQueue) -> Resource:
        return booked(self._core.limited(pool.demand))

    def _wish(self, pool: TaskQueue) -> bool:
        first = pool.waiting.first().open
        allocation = self._core.new_lane()
        try:
            self._packer.add(allocation, self._request(pool), first.since, order=first.order)
        # a kind may be a user's own, here as below: what it raises is the error of its calls alone
        except BaseException as error:
            self._fail(pool, error)
            return False
        self._wishes[pool] = allocation
        self._wishers[allocation] = pool
        return True

    def _drop_wish(self, pool: TaskQueue) -> None:
        allocation = self._wishes.pop(pool, None)
        if allocation is not None:
            del self._wishers[allocation]
            self._packer.remove(allocation)

    def _fail(self, pool: TaskQueue, error: BaseException) -> None:
        self._drop_wish(pool)
        self._core.fail(pool, failures.cannot_give(pool.demand.resources, error))
        self._core.tidy(pool)

    def _lend(self, now: float) -> None:
        """Have the packer say whose turn it is, and give calls to who has got a lane."""
        while True:
            try:
                for placed in self._packer.place(now):
                    self._seat(placed, now)
                return
            except RequestFailed as error:
                for pool in [self._wishers[allocation] for allocation in error.tasks]:
                    self._fail(pool, error.__cause__ or error)

    def _seat(self, placed: Placed[int, bytes], now: float) -> None:
        pool = self._wishers.pop(placed.task)
        del self._wishes[pool]
        worker = self._core.workers[placed.holder]
        seat = next((one for one in worker.seats if one.pool is pool and not one.allocation), None)
        if seat is None:
            seat = SlotGroup(
                worker, pool, 0, 0 if is_nothing(pool.demand.resources) else placed.task
            )
            pool.join(seat)
        seat.lent.append(placed.task)
        seat.slots += 1
        pool.slots += 1
        if seat.allocation:
            cores = placed.given.get(Cores)
            given = asked_only(placed.given, pool.demand.resources)
            self._core.effects.append(
                Grant(worker.id, seat.allocation, given, 0 if cores is None else cores.N)
            )
        before = seat.batches
        pool.place(seat)
        self._core.fill(pool, now)
        if (
            seat.batches == before and pool.waiting
        ):  # it may not be given anything, whatever the reason: else it would be lent for ever
            self._take_back(seat)
            self.pause(worker)
        if pool.waiting:
            self._wish(pool)

    def _gather_room(self, pool: TaskQueue, now: float) -> None:
        """Take back what others have and do not use, until there is room for what this queue wishes
        for.
        """
        for other in list(self._core.pools.values()):
            for seat in list(other.idle) if other is not pool else ():
                if pool not in self._wishes:
                    return
                self._take_back(seat)
                self._lend(now)

    def _take_back(self, seat: SlotGroup) -> None:
        """Take back the lanes of a seat that have nothing to do."""
        worker, pool = seat.worker, seat.pool
        while seat.slots > max(seat.batches, 0):
            try:
                self._packer.remove(seat.lent.pop())
            except (
                BaseException
            ) as error:  # its books may be wrong from here on, all others are right
                what = safe_repr(pool.demand.resources)
                self._core.effects.append(
                    Warn(
                        f"resources={what} of {worker.hello.host} could not be taken back: "
                        f"{safe_repr(error)}"
                    )
                )
            seat.slots -= 1
            pool.slots -= 1
            self._room = True
        if seat.slots:
            pool.unlist(seat)  # nothing ahead while others wait
            return
        pool.leave(seat)
        if seat.allocation and worker.phase is not Phase.GONE:
            self._core.effects.append(Send(worker.id, Release([seat.allocation])))
        self._core.tidy(pool)


def booked(request: Resource) -> Resource:
    """Return what is booked for a call that asks for this: who does not say how many cores has
    one.
    """
    return request if request.get(Cores) is not None else request & Cores(1)


def can_hold(policy: Policy, request: Resource) -> None:
    """See whether workers can ever hold a request: those that are shared, or one of its own for as
    long as the scheduler lets it.

    Raises:
        ConfigurationError: they cannot; the text says what they hold.
    """
    if policy.resources is None:
        time, stay = request.get(WTime), policy.stay(request)
        if time is not None and (time.softT or 0.0) > stay:
            raise ConfigurationError(
                f"{safe_repr(request)} wants {time.softT:g} s, and the scheduler lets a worker "
                f"work for {stay:g} s",
                hint="ask for less, or give the scheduler's jobs more time",
            )
        return
    Packer[int, int]([lasting(policy.resources, policy.stay(policy.resources))]).add(
        0, booked(request), 0.0
    )


def lasting(held: Resource, seconds: float) -> Resource:
    """Return the same, held for so long; at least a millisecond."""
    if math.isinf(seconds):
        return held
    return functools.reduce(
        operator.and_, (part for part in held if type(part) is not WTime), WTime(max(seconds, 1e-3))
    )


def asked_only(given: Resource, asked: Resource) -> Resource:
    """Return of what was given the kinds that were asked for."""
    return functools.reduce(
        operator.and_, (part for part in given if asked.get(type(part)) is not None), ZERO
    )


def _fitting(held: Resource, request: Resource) -> int:
    try:
        books = Books(held).of(request)
        for count in range(MOST_FITTING):
            if not books._request(request):
                return max(count, 1)
            books._alloc(request)
    except BaseException:  # what it raised comes out when it is asked for
        return 1
    return MOST_FITTING
