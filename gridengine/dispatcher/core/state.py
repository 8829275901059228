"""The core of a dispatcher, SANS-I/O: `StateMachine.handle(event, now)` returns the effects to
perform.

No clock, socket, thread, file or pickle is in it, so that every failure can be played in a test.
What it promises: each call of each task is settled exactly once, whatever workers do; no work for
one event grows with the number of tasks that wait or workers that are connected (but for
cancelling, the tick and the scheduler's reports).

Calls wait as *spans*: a stretch of one task's calls, with the number of the attempt. A span, or as
much of it as measured durations say is a sensible piece of work, becomes a *run* on a worker. Runs
are numbered and never repeated: an answer to a run that is no more is late, and dropped.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from msgspec.structs import replace

from gridengine.dispatcher.core import failures, objects, recall, worker_lifecycle, worker_messages
from gridengine.dispatcher.core.allocator import Allocator, can_hold
from gridengine.dispatcher.core.events import (
    CancelRequested,
    Closing,
    Continue,
    Effect,
    Event,
    Explained,
    Launched,
    LaunchFailed,
    Lost,
    Polled,
    Rebalance,
    RecallRequested,
    Received,
    Released,
    Send,
    Submitted,
    Tick,
    Warn,
)
from gridengine.dispatcher.core.long_waits import LongWait
from gridengine.dispatcher.core.model import (
    Batch,
    Open,
    Phase,
    RemoteObject,
    Run,
    SlotGroup,
    Span,
    Submitter,
    Worker,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.provisioner import LaunchedWorker as StartedWorker
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.dispatcher.core.task_queue import TaskQueue, may_go_ahead
from gridengine.dispatcher.core.tasks import Attempt, CallsFinished
from gridengine.errors import GridEngineError
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.estimates import GroupTimes, replaced
from gridengine.resources.kinds import Memory, WTime
from gridengine.wire.messages import Assign, Assignment, Cancel, Hello

LATE_SECONDS = 0.05
MOST_GIVEN = 2000
"""How many runs an event hands out at most, where workers are not shared: some ten milliseconds'
work.
"""


class StateMachine:
    """Decides for one dispatcher. `handle` is the only way in; its effects are to be performed in
    order.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.pools: dict[Demand, TaskQueue] = {}
        self.open: dict[int, Open] = {}
        self.workers: dict[bytes, Worker] = {}
        self.closing = False
        self.restless = False
        """Whether a `Rebalance` may find something: a worker holds calls that have not begun."""
        self.functions: dict[bytes, RemoteObject] = {}
        self.retired: dict[bytes, int] = {}
        """The functions that no task uses, oldest first, with their sizes in bytes."""
        self.runs: dict[int, Run] = {}
        self.resting: set[bytes] = set()
        """The workers that might work and have nothing to do."""
        self.submitters: dict[int, Submitter] = {}
        """Who has open tasks."""
        self.made_way_at = -math.inf
        """When workers were last asked to make way for a submitter that had none of them."""
        self.unfilled: dict[TaskQueue, None] = {}
        """The queues that had more to hand out than an event may: the next is to be `Continue`."""
        self.times = GroupTimes()
        self.generation = 0
        """Of the caller's modules, the latest that something was submitted with."""
        self.last_run = 0
        """The number of the run that was handed out last."""
        self._last_lane = self._last_order = 0
        self._scaling = False
        self._stall = LongWait()
        self.effects: list[Effect] = []
        provisioner = Provisioner(
            policy, ANY if policy.resources is None else Demand(policy.resources)
        )
        self.strangers, self.withdrawn = provisioner.strangers, provisioner.withdrawn
        self.common = self.pools[ANY] = TaskQueue(provisioner)
        self.allocator = None if policy.resources is None else Allocator(self, policy.resources)
        """What lends lanes, where all demands share the workers."""

    @property
    def running(self) -> int:
        """How many runs are under way."""
        return len(self.runs)

    @property
    def calls_waiting(self) -> int:
        """How many calls wait for a worker."""
        return sum(pool.calls for pool in self.pools.values())

    @property
    def gathering(self) -> bool:
        """Whether workers are about to be asked for."""
        return any(pool.provisioner.demand_since is not None for pool in self.homes)

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to look after: no task, no worker, nor one that was asked
        for.
        """
        return not (
            self.open
            or self.workers
            or self.closing
            or any(pool.provisioner.started or pool.provisioner.asked for pool in self.homes)
        )

    def launched_workers(self) -> list[StartedWorker]:
        """Return the launched workers of which the scheduler has not said that they have ended."""
        return [
            one
            for pool in self.homes
            for one in pool.provisioner.started.values()
            if one.ended_at is None
        ]

    @property
    def homes(self) -> list[TaskQueue]:
        """The pools that workers are asked for: all, or the one that stands for all where they
        share the workers.
        """
        return list(self.pools.values()) if self.allocator is None else [self.common]

    def home_of(self, demand: Demand) -> TaskQueue:
        """Return the pool that workers of this demand were asked for."""
        return self.common if self.allocator is not None else self.pool_for(demand)

    def pool_for(self, demand: Demand) -> TaskQueue:
        """Return the pool that serves a demand, made if need be: where nobody tells demands apart,
        all share one.
        """
        if demand is ANY or (self.allocator is None and not self.policy.pooled):
            return self.common
        if (
            self.allocator is not None
            and demand.factor != 1
            and demand.resources.get(Memory) is None
        ):
            demand = demand.with_factor(1.0)
        pool = self.pools.get(demand)
        if pool is None:
            shared = self.common.provisioner
            provisioner = (
                Provisioner(self.policy, demand, strangers=self.strangers, withdrawn=self.withdrawn)
                if self.allocator is None
                else shared
            )
            pool = self.pools[demand] = TaskQueue(provisioner, demand)
            self._limit(pool)
        return pool

    def limited(self, demand: Demand) -> Resource:
        """Return what a call of this demand asks for by now. What is only estimated is no reason
        never to begin it.
        """
        request = self.times.limited(demand.request)
        time, own = request.get(WTime), demand.resources.get(WTime)
        if time is None or own is None or time.T is None or time == own:
            return request
        most = 0.8 * self.policy.stay(
            demand.resources if self.policy.resources is None else self.policy.resources
        )
        soft = min(time.softT or 0.0, max(most, own.softT or 0.0))
        return replaced(request, WTime, lambda part: WTime(part.T, softT=soft, group=part.group))

    def _limit(self, pool: TaskQueue) -> None:
        pool.limit(self.limited(pool.demand).get(WTime))

    def learn(self, pool: TaskQueue, seconds: float) -> None:
        """Learn how long a call took that came to its end: of calls of one group the limits follow
        from it.
        """
        time = pool.demand.resources.get(WTime)
        if time is not None and time.group is not None:
            known = self.times.limits(time.group)
            self.times.ran(time.group, seconds)
            if known != self.times.limits(time.group):
                for one in self.pools.values():
                    self._limit(one)

    def tidy(self, pool: TaskQueue) -> None:
        """Forget a pool that has nothing, where workers are shared."""
        if pool is not self.common and not pool.waiting and not pool.slots:
            self.pools.pop(pool.demand, None)

    def new_lane(self) -> int:
        """Return a number for a lane, never used again."""
        self._last_lane += 1
        return self._last_lane

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event at the (monotonic) time `now`; return what is to be done, in order."""
        self.effects = []
        _HANDLERS[type(event)](self, event, now)
        if self.allocator is not None:
            self.allocator.settle(now, again=isinstance(event, Tick))
        if self._scaling:
            self._scaling = False
            self._scale(now)
        return self.effects

    # ---------------------------------------------------------------- what users ask

    def _submitted(self, event: Submitted, now: float) -> None:
        for task in event.tasks:
            if task.id in self.open or task.count < 1:
                raise ValueError(f"task {task.id} was submitted twice, or has no calls")
        if not event.tasks:
            return
        self.generation = max(self.generation, event.generation)
        known = objects.take(self, event.function)
        pools: dict[TaskQueue, None] = {}
        for task in event.tasks:
            self._last_order += 1
            needs = objects.take_shared(self, event.function, task)
            submitter = self._submitter(task.submitter)
            self.open[task.id] = one = Open(
                task,
                known,
                task.count,
                submitter,
                submitter.pace(known),
                needs,
                self._last_order,
                now,
            )
            known.open += 1
            pool = self.pool_for(task.demand)
            pool.put(Span(one, 0, task.count, task.demand))
            pools[pool] = None
        if self.closing:
            self._cancel([task.id for task in event.tasks], signal.SIGKILL)
            return
        for pool in pools:
            if pool.soft and self.allocator is None:
                self._must_be_possible(pool)
            self.hand_out(now, pool)
            if pool.waiting and not pool.idle and not submitter.load:
                recall.make_way(self, now)
            home = pool if self.allocator is None else self.common
            if pool.calls and home.provisioner.may_ask(now) and home.size < self.policy.max_workers:
                self.scale(now)

    def _submitter(self, number: int) -> Submitter:
        """Return who has one more task here."""
        submitter = self.submitters.get(number)
        if submitter is None:
            submitter = self.submitters[number] = Submitter(number)
        submitter.open += 1
        return submitter

    def _must_be_possible(self, pool: TaskQueue) -> None:
        try:
            can_hold(self.policy, pool.demand.resources)
        except GridEngineError as error:
            self.fail(pool, error)

    def _cancel_asked(self, event: CancelRequested, now: float) -> None:
        self._cancel(event.tasks, event.signal)
        self.scale(now)

    def _cancel(self, tasks: Iterable[int], number: int) -> None:
        per_worker: dict[bytes, list[int]] = {}
        for one in [self.open[id] for id in tasks if id in self.open]:
            one.cancelled = number
            for run in one.runs:
                per_worker.setdefault(self.runs[run].worker.id, []).append(run)
        self.drop_waiting(
            lambda span: bool(span.open.cancelled), lambda span: self.settle_cancelled(span, number)
        )
        for worker, runs in per_worker.items():
            self.effects.append(Send(worker, Cancel(runs, number)))

    def drop_waiting(self, which: Callable[[Span], bool], settle: Callable[[Span], None]) -> None:
        """Take out of all queues what waits and is such, and settle it."""
        for pool in list(self.pools.values()):
            for span in pool.drop(which):
                settle(span)
            if self.allocator is not None:
                self.allocator.stir(pool)

    def _closing(self, event: Closing, now: float) -> None:
        self.closing = True
        self.drop_waiting(
            lambda span: True, lambda span: self.settle_cancelled(span, signal.SIGKILL)
        )
        for run in list(self.runs.values()):
            self.end_run(run)
            self.settle_cancelled(replace(run.span, start=run.done), signal.SIGKILL)
        for worker in list(self.workers.values()):
            if worker.farewell:
                worker_lifecycle.lose(self, worker, worker.farewell, now)
            elif worker.phase is not Phase.STOPPING:
                worker_lifecycle.stop(self, worker, now)
        self.withdraw_expected()

    def withdraw_expected(self) -> None:
        """Take back all workers that have not called home."""
        for pool in self.homes:
            self.effects += pool.provisioner.withdraw(list(pool.provisioner.expected.values()))

    # ---------------------------------------------------------------- what workers say

    def _received(self, event: Received, now: float) -> None:
        if isinstance(event.message, Hello):
            worker_lifecycle.hello(self, event.worker, event.message, now)
            return
        worker = self.workers.get(event.worker)
        if worker is None:
            self.effects.append(Lost(event.worker))
            return
        worker.heard_at = now
        woken = worker.phase is Phase.SILENT
        if woken:
            worker_lifecycle.wake(self, worker)
        answer = worker_messages.ANSWERS.get(type(event.message))
        if answer is not None:
            answer(self, worker, event.message, event.buffers, now)
        if woken:
            self.make_room(worker, now)

    # ---------------------------------------------------------------- time

    def _tick(self, event: Tick, now: float) -> None:
        worker_lifecycle.look_after(self, now)
        for pool in self.homes:
            for started in pool.provisioner.overdue(now):
                if pool.provisioner.knows(started):
                    self.effects.append(
                        Warn(
                            f"cluster job {started.handle.id} runs and has not called home in "
                            "time; it is stopped"
                        )
                    )
                    self.effects += pool.provisioner.withdraw([started])
                    worker_lifecycle.start_failed(self, pool, started, now)
            calls = pool.calls if self.allocator is None else self.calls_waiting
            self.effects += pool.provisioner.explain(now, calls_waiting=calls, workers=pool.workers)
            late = pool.provisioner.start_timed_out(now)
            if late is not None:
                self.give_up(late, now, pool)
            if pool is not self.common and pool.is_spent(now):
                del self.pools[pool.demand]
        self.effects += self._stall.look(self, now)
        self.scale(now)

    def _look(self, event: Rebalance, now: float) -> None:
        """Where calls take longer than those before them did, call back what has not begun: it must
        not wait behind them.
        """
        busy = {
            run.worker.id: run.worker for run in islice(self.runs.values(), recall.MOST_LOOKED_AT)
        }
        self.restless = False
        for worker in busy.values():
            begun = worker.under_way()
            spare = worker.spare()
            self.restless = self.restless or bool(spare)
            late = [
                run
                for number in begun
                if now - _waited_for(run := worker.runs[number], now) > LATE_SECONDS
            ]
            if worker.phase is not Phase.READY or not spare or not late:
                continue
            for run in late:
                run.span.open.pace.exceeded(now - _waited_for(run, now))
            recall.send(self, worker, spare, now)

    # ---------------------------------------------------------------- handing out

    def make_room(self, worker: Worker, now: float) -> None:
        """See how much more a worker may be given, have it leave when it has done its share, and
        hand out what waits.
        """
        if worker.phase is Phase.READY and not worker.batches:
            worker.idle_since = now
            if worker.pool.share_left(worker) == 0:
                worker_lifecycle.stop(self, worker, now)
        if self.allocator is None:
            for seat in worker.seats:
                seat.pool.place(seat)
            self.hand_out(now, worker.pool)

    def hand_out(self, now: float, pool: TaskQueue) -> None:
        """Give a pool's workers what they have room for; where they are shared, once all that the
        event brings is known.
        """
        if self.allocator is None:
            self.fill(pool, now)
        else:
            self.allocator.stir(pool)

    def fill(self, pool: TaskQueue, now: float) -> None:
        """Give calls to the seats that a pool has."""
        last = self.last_run + MOST_GIVEN
        while (seat := pool.next_seat()) is not None:
            if self.last_run >= last and self.allocator is None:
                self.unfilled[pool] = None
                return
            if seat.worker.leave_at == math.inf or pool.has_time(seat.worker, now):
                self._give(seat, now)
            else:
                pool.unlist(seat)

    def _go_on(self, event: Continue, now: float) -> None:
        unfilled, self.unfilled = self.unfilled, {}
        for pool in unfilled:
            self.fill(pool, now)

    def _give(self, seat: SlotGroup, now: float) -> None:
        batch, worker = Batch(heard=None if seat.batches >= seat.slots else now), seat.worker
        assignments, payload = [], list[Any]()
        for span in seat.pool.next_spans(worker):
            run = self._begin_run(span, seat, batch, now)
            assignments.append(_assignment(run))
            payload += span.open.task.payload
            for shared in span.open.needs:
                if worker.id not in shared.workers:
                    objects.give(self, worker, shared)
        if worker.id not in span.open.function.workers:
            objects.give(self, worker, span.open.function)
        if worker.generation != self.generation:
            objects.renew(self, worker)
        submitter = span.open.submitter
        submitter.batches += 1
        batch.load = 1 if may_go_ahead(span) else 2
        submitter.load += batch.load
        submitter.served = self.last_run
        worker.batches += 1
        seat.batches += 1
        self.resting.discard(worker.id)
        self.restless = (
            self.restless or span.calls > 1 or batch.left > 1 or seat.batches > seat.slots
        )
        self.effects.append(Send(worker.id, Assign(assignments, seat.allocation), payload))
        seat.pool.place(seat)

    def _begin_run(self, span: Span, seat: SlotGroup, batch: Batch, now: float) -> Run:
        self.last_run += 1
        limit, hard = span.open.task.timeout, seat.pool.hard
        if hard is not None:
            limit = hard if limit is None else min(limit, hard)
        run = Run(self.last_run, span, seat, batch, span.start, now, now, limit)
        self.runs[run.number] = seat.worker.runs[run.number] = run
        span.open.runs[run.number] = None
        batch.left += 1
        seat.worker.taken += span.calls
        return run

    # ---------------------------------------------------------------- ends

    def end_run(self, run: Run) -> None:
        """A run is no more, whatever way."""
        seat, worker = run.seat, run.seat.worker
        del self.runs[run.number], worker.runs[run.number]
        run.span.open.runs.pop(run.number, None)
        run.batch.left -= 1
        if not run.batch.left:
            run.span.open.submitter.batches -= 1
            run.span.open.submitter.load -= run.batch.load
            seat.batches -= 1
            worker.batches -= 1
            if not worker.batches and worker.phase is Phase.READY:
                self.resting.add(worker.id)
            if self.allocator is not None:
                self.allocator.freed(seat)

    def again(self, span: Span, *, out_of_memory: bool = False) -> None:
        """Have calls that failed wait for another attempt, with more memory if it was that they
        wanted.
        """
        demand, factor = span.demand, span.open.task.escalate_memory
        if out_of_memory and factor > 1:
            demand = demand.with_factor(demand.factor * factor)
        self.wait_or_cancel(replace(span, demand=demand, attempt=span.attempt + 1))

    def may_grow(self, span: Span) -> bool:
        """Return whether calls that ran out of memory may run again with more."""
        factor = span.open.task.escalate_memory
        if factor == 1:
            return False
        return self.allocator is None or self.allocator.is_possible(
            span.demand.with_factor(span.demand.factor * factor)
        )

    def wait_or_cancel(self, span: Span) -> None:
        """Have calls that were handed out wait again, before all others, unless somebody ended
        their task.
        """
        if span.start == span.stop:
            return
        if span.open.cancelled:
            self.settle_cancelled(span, span.open.cancelled)
        elif span.open.recalled and span.attempt == 1:
            recall.come_back(self, span)
        else:
            self.put_back(span)

    def put_back(self, span: Span) -> None:
        """Have calls wait before all others."""
        pool = self.pool_for(span.demand)
        pool.put_back(span)
        if self.allocator is not None:
            self.allocator.stir(pool)

    def settle_cancelled(
        self,
        span: Span,
        number: int,
        stdout: bytes = b"",
        stderr: bytes = b"",
        *,
        worker: Worker | None = None,
    ) -> None:
        """Settle calls that somebody ended; `number` is the signal, and `worker` where the first of
        them ran.
        """
        error = failures.why_cancelled(span, worker)
        self.settle(
            span, span.start, span.stop, error=error, exitcode=-number, stdout=stdout, stderr=stderr
        )

    def settle(self, span: Span, start: int, stop: int, **outcome: Any) -> None:
        """Tell the outcome of calls, once."""
        one = span.open
        one.unsettled -= stop - start
        attempts = tuple(one.attempts.get(start, ())) if stop - start == 1 and one.attempts else ()
        last = not one.unsettled
        self.effects.append(
            CallsFinished(
                one.task.id,
                start,
                stop,
                **{"payload": None, **outcome},
                attempts=attempts,
                last=last,
            )
        )
        if last:
            del self.open[one.task.id]
            objects.let_go(self, one)
            one.submitter.open -= 1
            if not one.submitter.open:
                del self.submitters[one.submitter.number]

    def give_up(self, error: GridEngineError, now: float, only: TaskQueue | None = None) -> None:
        """No worker can be had: what waits has failed, and the next that is submitted asks anew."""
        for pool in (
            list(self.pools.values()) if only is None or self.allocator is not None else [only]
        ):
            self.fail(pool, error)
        for pool in self.homes if only is None else [only]:
            self.effects += pool.provisioner.give_up(now)

    def fail(self, pool: TaskQueue, error: GridEngineError) -> None:
        """Fail all calls that wait in a pool."""
        for span in pool.drop(lambda span: True):
            self.settle(span, span.start, span.stop, error=error, exitcode=1)
        if self.allocator is not None:
            self.allocator.stir(pool)

    def remember(
        self,
        run: Run,
        index: int,
        now: float,
        outcome: str,
        exitcode: int | None = None,
        peak_memory: int = 0,
    ) -> None:
        """Note how a run of a call ended, for its history."""
        worker = run.worker
        attempt = Attempt(
            worker.hello.host,
            worker.job,
            run.since,
            now,
            outcome,
            worker.hello.log,
            exitcode,
            peak_memory,
        )
        run.span.open.attempts.setdefault(index, []).append(attempt)

    def scale(self, now: float) -> None:
        """Have as many workers asked for, or taken back, as the queues say, once all that the event
        brings is known.
        """
        self._scaling = not self.closing

    def _scale(self, now: float) -> None:
        if self.allocator is not None:
            slots, fitting = self.policy.slots, self.allocator.fitting
            need = sum(
                -(-pool.calls * slots // fitting(pool.demand))
                for pool in self.pools.values()
                if pool.calls
            )
            self._scale_one(self.common, now, need, len(self.resting), 0)
            return
        crowd = sum(pool.size for pool in self.pools.values())
        for pool in self.pools.values():
            crowd -= pool.size
            self._scale_one(pool, now, pool.calls, len(pool.idle), crowd)
            crowd += pool.size

    def _scale_one(self, pool: TaskQueue, now: float, calls: int, idle: int, others: int) -> None:
        busy = pool.workers - idle
        self.effects += pool.provisioner.scale(
            now, calls_waiting=calls, workers_busy=busy, workers_idle=idle, others=others
        )


def _waited_for(run: Run, now: float) -> float:
    """Return since when an answer to a run that is under way is waited for. One that waited there
    begins when that is first seen.
    """
    if run.batch.heard is None:
        run.batch.heard = now
    return max(run.batch.heard, run.touched)


def _assignment(run: Run) -> Assignment:
    span, task = run.span, run.span.open.task
    return Assignment(
        run.number,
        task.id,
        span.open.function.function.digest,
        span.start,
        span.stop,
        span.attempt,
        task.form,
        task.watched,
        task.controlled,
        run.limit,
        0 if span.demand is ANY else span.demand.memory_limit,
        task.first,
        len(task.payload),
        task.name,
    )


_HANDLERS: dict[type, Callable[[StateMachine, Any, float], None]] = {
    Submitted: StateMachine._submitted,
    CancelRequested: StateMachine._cancel_asked,
    RecallRequested: recall.asked,
    Released: objects.released,
    Received: StateMachine._received,
    Launched: worker_lifecycle.launched,
    LaunchFailed: worker_lifecycle.launch_failed,
    Polled: worker_lifecycle.polled,
    Explained: worker_lifecycle.explained,
    Tick: StateMachine._tick,
    Rebalance: StateMachine._look,
    Continue: StateMachine._go_on,
    Closing: StateMachine._closing,
}
