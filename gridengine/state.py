"""The core of a dispatcher, SANS-I/O: `DispatchState.handle(event, now)` returns the effects to perform.

No clock, socket, thread, file or pickle is in it, so that every failure can be played in a test. What it promises: each call of
each task is settled exactly once, whatever workers do; no work for one event grows with the number of tasks that wait or workers
that are connected (but for cancelling, the tick and the scheduler's reports).

Calls wait as *spans*: a stretch of one task's calls, with the number of the attempt. A span, or as much of it as measured durations
say is a sensible piece of work, becomes a *run* on a worker. Runs are numbered and never repeated: an answer to a run that is no
more is late, and dropped.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

from gridengine import blame
from gridengine.errors import GridEngineError, OutOfMemory, TimeoutError, VersionMismatch
from gridengine.events import (
    Attempt,
    Began,
    CancelAsked,
    Closing,
    Effect,
    Event,
    Launched,
    LaunchFailed,
    Look,
    Lost,
    Note,
    Polled,
    Received,
    Send,
    Settled,
    Submitted,
    Tick,
    Warn,
)
from gridengine.fleet import Fleet, Policy, keys_of
from gridengine.fleet import Started as StartedWorker
from gridengine.pools import WorkerPool
from gridengine.protocol import (
    CANCELLED,
    CRASH,
    MEMORY,
    OUT_OF_MEMORY,
    RAISED,
    RETRYABLE,
    VALUES,
    VERSION,
    Assign,
    Assignment,
    Cancel,
    Crashed,
    Define,
    Forget,
    Goodbye,
    Hello,
    Payload,
    Pushed,
    Recall,
    Refuse,
    Result,
    Results,
    Returned,
    Shortened,
    Started,
    Stop,
    Welcome,
    portions,
)
from gridengine.schedulers.base import ANY, Demand, TaskState
from gridengine.work import Batch, Known, Open, Phase, Running, Span, Worker

KEPT_FUNCTIONS = 64
KEPT_BYTES = 16_000_000
"""How many functions that no task uses are kept, and how much of them; a larger one is let go at once."""
SETTLE_SECONDS = 0.5
LEAVE_SECONDS = 10.0
LATE_SECONDS = 0.05
MOST_LOOKED_AT = 200
MOST_FRUITLESS = 3


class DispatchState:
    """Decides for one dispatcher. `handle` is the only way in; its effects are to be performed in order."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.pools: dict[Demand, WorkerPool] = {}
        self.open: dict[int, Open] = {}
        self.workers: dict[bytes, Worker] = {}
        self.closing = False
        self.restless = False
        """Whether a `Look` may find something: a worker holds calls that have not begun."""
        self._strangers: dict[str, bytes] = {}
        self._withdrawn: dict[str, None] = {}
        self._functions: dict[bytes, Known] = {}
        self._retired: dict[bytes, int] = {}
        """The functions that no task uses, oldest first, with their sizes in bytes."""
        self._runs: dict[int, Running] = {}
        self._last_run = 0
        self._effects: list[Effect] = []
        self._common = self.pools[ANY] = self._new_pool(ANY)

    @property
    def running(self) -> int:
        """How many runs are under way."""
        return len(self._runs)

    @property
    def calls_waiting(self) -> int:
        """How many calls wait for a worker."""
        return sum(pool.calls for pool in self.pools.values())

    @property
    def gathering(self) -> bool:
        """Whether workers are about to be asked for."""
        return any(pool.fleet.demand_since is not None for pool in self.pools.values())

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to look after: no task, no worker, nor one that was asked for."""
        return not (
            self.open or self.workers or self.closing or any(pool.fleet.started or pool.fleet.asked for pool in self.pools.values())
        )

    def unsettled(self) -> list[Span]:
        """Return all calls that are not settled."""
        waiting = [span for pool in self.pools.values() for span in pool.waiting]
        return waiting + [replace(run.span, start=run.done) for run in self._runs.values()]

    def launched_workers(self) -> list[StartedWorker]:
        """Return the launched workers of which the scheduler has not said that they have ended."""
        return [one for pool in self.pools.values() for one in pool.fleet.started.values() if one.ended_at is None]

    def _pool(self, demand: Demand) -> WorkerPool:
        """Return the pool that serves a demand: where workers are not asked for one by one, all share one."""
        pool = self.pools.get(demand) if self.policy.pooled else self._common
        if pool is None:
            pool = self.pools[demand] = self._new_pool(demand)
        return pool

    def _new_pool(self, demand: Demand) -> WorkerPool:
        return WorkerPool(Fleet(self.policy, demand, strangers=self._strangers, withdrawn=self._withdrawn))

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event at the (monotonic) time `now`; return what is to be done, in order."""
        self._effects = []
        _HANDLERS[type(event)](self, event, now)
        return self._effects

    # ---------------------------------------------------------------- what users ask

    def _submitted(self, event: Submitted, now: float) -> None:
        for task in event.tasks:
            if task.id in self.open or task.count < 1:
                raise ValueError(f"task {task.id} was submitted twice, or has no calls")
        if not event.tasks:
            return
        known = self._functions.get(event.function.digest)
        if known is None:
            known = self._functions[event.function.digest] = Known(event.function)
        self._retired.pop(event.function.digest, None)
        pools: dict[int, WorkerPool] = {}
        for task in event.tasks:
            self.open[task.id] = one = Open(task, known, task.count)
            known.open += 1
            pool = self._pool(task.demand)
            pool.put(Span(one, 0, task.count, task.demand))
            pools[id(pool)] = pool
        if self.closing:
            self._cancel([task.id for task in event.tasks], signal.SIGKILL)
            return
        for pool in pools.values():
            self._hand_out(now, pool)
        self._scale(now)

    def _cancel_asked(self, event: CancelAsked, now: float) -> None:
        self._cancel(event.tasks, event.signal)
        self._scale(now)

    def _cancel(self, tasks: Iterable[int], number: int) -> None:
        per_worker: dict[bytes, list[int]] = {}
        for one in [self.open[id] for id in tasks if id in self.open]:
            one.cancelled = number
            for run in one.runs:
                per_worker.setdefault(self._runs[run].worker.id, []).append(run)
        self._drop_waiting(lambda span: bool(span.open.cancelled), lambda span: self._settle_cancelled(span, number))
        for worker, runs in per_worker.items():
            self._effects.append(Send(worker, Cancel(runs, number)))

    def _drop_waiting(self, which: Callable[[Span], bool], settle: Callable[[Span], None]) -> None:
        for pool in self.pools.values():
            for span in pool.drop(which):
                settle(span)

    def _closing(self, event: Closing, now: float) -> None:
        self.closing = True
        self._drop_waiting(lambda span: True, lambda span: self._settle_cancelled(span, signal.SIGKILL))
        for run in list(self._runs.values()):
            self._end_run(run)
            self._settle_cancelled(replace(run.span, start=run.done), signal.SIGKILL)
        for worker in list(self.workers.values()):
            if worker.phase is not Phase.STOPPING:
                self._stop(worker, now)
        self._withdraw_expected()

    def _withdraw_expected(self) -> None:
        for pool in self.pools.values():
            self._effects += pool.fleet.withdraw(list(pool.fleet.expected.values()))

    # ---------------------------------------------------------------- what workers say

    def _received(self, event: Received, now: float) -> None:
        if isinstance(event.message, Hello):
            self._hello(event.worker, event.message, now)
            return
        worker = self.workers.get(event.worker)
        if worker is None:
            self._effects.append(Lost(event.worker))
            return
        worker.heard_at = now
        woken = worker.phase is Phase.SILENT
        if woken:
            worker.enter(Phase.READY)
        answer = _ANSWERS.get(type(event.message))
        if answer is not None:
            answer(self, worker, event.message, event.buffers, now)
        if woken:
            self._make_room(worker, now)

    def _hello(self, id: bytes, hello: Hello, now: float) -> None:
        if id in self.workers:
            return
        if hello.run_id != self.policy.run_id or hello.slots < 1:
            self._refuse(id, f"this dispatcher's run is {self.policy.run_id}; the worker's is {hello.run_id}, with {hello.slots} slots")
            return
        keys = keys_of(hello.log, hello.pid)
        withdrawn = any(key in self._withdrawn for key in keys)
        pool, started = (self._common, None) if withdrawn else self._recognise(id, keys)
        mismatch = self._mismatch(hello, started)
        if mismatch is not None:
            self._refuse(id, mismatch.message)
            self._forget_launch(id, started, pool)
            pool.fleet.hold_back(now)
            if not self.workers:
                self._give_up(mismatch, now)
            return
        pool.fleet.welcomed()
        self.workers[id] = worker = Worker(id, hello, now, now, pool, started=started)
        pool.join(worker)
        self._effects.append(Send(id, Welcome()))
        if withdrawn or self.closing:
            self._stop(worker, now)
            return
        self._make_room(worker, now)

    def _recognise(self, id: bytes, keys: list[str]) -> tuple[WorkerPool, StartedWorker | None]:
        """Return the pool of a worker that calls home, and its launch, if that is known yet."""
        for pool in self.pools.values():
            started = pool.fleet.called_home(id, keys)
            if started is not None:
                return pool, started
        self._strangers.update(dict.fromkeys(keys, id))
        return next((pool for pool in self.pools.values() if pool.fleet.asked), self._common), None

    def _forget_launch(self, id: bytes, started: StartedWorker | None, pool: WorkerPool) -> None:
        if started is not None:
            pool.fleet.drop(started)
        for key in [key for key, stranger in self._strangers.items() if stranger == id]:
            del self._strangers[key]

    def _refuse(self, id: bytes, reason: str) -> None:
        self._effects += [Send(id, Refuse(reason)), Lost(id)]

    def _mismatch(self, hello: Hello, started: StartedWorker | None) -> VersionMismatch | None:
        if (hello.protocol, hello.version, hello.python) == (VERSION, self.policy.version, self.policy.python):
            return None
        return VersionMismatch(
            f"the worker on {hello.host} has gridengine {hello.version} (protocol {hello.protocol}) on Python {hello.python}, "
            f"the dispatcher gridengine {self.policy.version} (protocol {VERSION}) on Python {self.policy.python}",
            host=hello.host,
            job=started.handle.id if started is not None else None,
            log=hello.log or None,
            hint="install the same versions on both sides, or set python=",
        )

    def _breach(self, worker: Worker, what: str, now: float) -> None:
        """A worker broke the protocol. It may not go on: a call would wait for ever for an answer that fits."""
        self._effects.append(Send(worker.id, Refuse(what)))
        self._dismiss(worker, f"broke the protocol: {what}", now)

    def _results(self, worker: Worker, message: Results, buffers: Payload, now: float) -> None:
        for result, payload in portions(message.results, buffers):
            run = worker.runs.get(result.run)
            if run is None or result.stop <= run.done:
                continue
            if not _fits(result, run):
                self._breach(worker, f"calls {result.start} to {result.stop} of run {result.run} cannot be answered so", now)
                return
            worker.fruitless = 0
            self._result(run, result, payload, now)
        self._make_room(worker, now)

    def _result(self, run: Running, result: Result, payload: Payload, now: float) -> None:
        span = run.span
        span.open.function.measured(result.stop - result.start, result.seconds)
        run.done, run.touched = result.stop, now
        if run.done == span.stop:
            self._end_run(run)
        stdout = stderr = b""
        if result.output:
            *payload, out, err = payload
            stdout, stderr = bytes(out), bytes(err)
        raised = result.status != VALUES
        again = result.status == RETRYABLE or (result.status == OUT_OF_MEMORY and span.open.task.escalate_memory > 1)
        if span.open.task.watched or result.status in (RETRYABLE, OUT_OF_MEMORY):
            self._remember(run, result.start, now, _OUTCOMES[result.status], int(raised), result.peak_memory)
        if again and span.attempt <= span.open.task.retries and not span.open.cancelled:
            self._again(replace(span, start=result.start, stop=result.stop), out_of_memory=result.status == OUT_OF_MEMORY)
            return
        self._settle(span, result.start, result.stop, payload=payload, raised=raised, exitcode=int(raised), stdout=stdout, stderr=stderr)

    def _crashed(self, worker: Worker, message: Crashed, buffers: Payload, now: float) -> None:
        run = worker.runs.get(message.run)
        if run is None:
            return
        if message.reason not in blame.OUTCOMES or not (message.index == -1 or run.done <= message.index < run.span.stop):
            self._breach(worker, f"run {message.run} cannot have ended at call {message.index} by {message.reason!r}", now)
            return
        if message.index == -1 and message.reason != CANCELLED:
            self._returned(worker, Returned([message.run]), (), now)
            return
        worker.fruitless = 0
        self._end_run(run)
        span, index = run.span, message.index
        if span.open.cancelled or index == -1:
            if index != -1:
                self._remember(run, index, now, blame.OUTCOMES[message.reason](message.exitcode), message.exitcode, message.peak_memory)
            who = worker if index != -1 else None
            self._settle_cancelled(replace(span, start=run.done), -message.exitcode, *map(bytes, buffers), worker=who)
        else:
            self._remember(run, index, now, blame.OUTCOMES[message.reason](message.exitcode), message.exitcode, message.peak_memory)
            self._wait_or_cancel(replace(span, start=index + 1))
            self._wait_or_cancel(replace(span, start=run.done, stop=index))
            if message.reason in (CRASH, MEMORY) and span.attempt <= span.open.task.retries:
                self._again(replace(span, start=index, stop=index + 1), out_of_memory=message.reason == MEMORY)
            else:
                stdout, stderr = map(bytes, buffers)
                error = blame.why_crashed(worker, span, index, message)
                self._settle(span, index, index + 1, error=error, exitcode=message.exitcode, stdout=stdout, stderr=stderr)
        self._make_room(worker, now)

    def _returned(self, worker: Worker, message: Returned, buffers: Payload, now: float) -> None:
        runs = [worker.runs[number] for number in reversed(message.runs) if number in worker.runs]
        worker.fruitless += any(not run.recalled for run in runs)
        if worker.fruitless > MOST_FRUITLESS:
            worker.pool.fleet.hold_back(now)
            self._dismiss(worker, "could run nothing: it gave back all it was given", now)
            return
        for run in runs:
            self._end_run(run)
            self._wait_or_cancel(replace(run.span, start=run.done))
        self._make_room(worker, now)

    def _shortened(self, worker: Worker, message: Shortened, buffers: Payload, now: float) -> None:
        run = worker.runs.get(message.run)
        if run is None or not run.span.start < message.stop < run.span.stop:
            return
        if message.stop < run.done:
            self._breach(worker, f"run {message.run} was answered beyond call {message.stop}", now)
            return
        self._wait_or_cancel(replace(run.span, start=message.stop))
        run.span = replace(run.span, stop=message.stop)
        if run.done == message.stop:
            self._end_run(run)
        self._make_room(worker, now)

    def _started(self, worker: Worker, message: Started, buffers: Payload, now: float) -> None:
        run = worker.runs.get(message.run)
        if run is not None:
            run.since = now
            self._effects.append(Began(run.span.open.task.id, message.pid, worker.hello.host, run.span.attempt))

    def _pushed(self, worker: Worker, message: Pushed, buffers: Payload, now: float) -> None:
        run = worker.runs.get(message.run)
        if run is not None:
            self._effects.append(Note(run.span.open.task.id, buffers))

    def _goodbye(self, worker: Worker, message: Goodbye, buffers: Payload, now: float) -> None:
        """Who says goodbye has told all its results before: only the calls that its runners were in can be to blame."""
        self._lose(worker, f"left ({message.reason})", now, suspects=_under_way(worker))

    # ---------------------------------------------------------------- what schedulers say, and time

    def _launched(self, event: Launched, now: float) -> None:
        pool = self._pool(event.demand)
        for id, started in pool.fleet.launched(event.handles, now):
            worker = self.workers.get(id)
            if worker is not None:
                worker.started = started
                self._move(worker, pool)
        if self.closing:
            self._withdraw_expected()
        if not event.handles:
            pool.fleet.hold_back(now)
        self._scale(now)

    def _move(self, worker: Worker, pool: WorkerPool) -> None:
        """A worker called home before it was known for whom it was launched."""
        if worker.pool is not pool:
            worker.pool.leave(worker)
            worker.pool = pool
            pool.join(worker)
            pool.place(worker)

    def _launch_failed(self, event: LaunchFailed, now: float) -> None:
        pool = self._pool(event.demand)
        pool.fleet.asked = 0
        if event.for_now or pool.workers or pool.fleet.expected:
            pool.fleet.hold_back(now)
            self._effects.append(Warn(f"no workers were started{' for now' if event.for_now else ''}: {event.error.message}"))
        else:
            self._give_up(event.error, now, pool)

    def _polled(self, event: Polled, now: float) -> None:
        for pool in list(self.pools.values()):
            for started in pool.fleet.polled(event.reports, now):
                if started.worker is None and pool.fleet.knows(started):
                    self._start_failed(pool, started, now)
        self._scale(now)

    def _tick(self, event: Tick, now: float) -> None:
        for worker in list(self.workers.values()):
            self._look_after(worker, now)
        for pool in list(self.pools.values()):
            for started in pool.fleet.overdue(now):
                if pool.fleet.knows(started):
                    self._effects.append(Warn(f"cluster job {started.handle.id} runs and has not called home in time; it is stopped"))
                    self._effects += pool.fleet.withdraw([started])
                    self._start_failed(pool, started, now)
            self._effects += pool.fleet.explain(now, calls_waiting=pool.calls, workers=pool.workers)
        self._scale(now)

    def _look(self, event: Look, now: float) -> None:
        """Where calls take longer than those before them did, call back what has not begun: it must not wait behind them."""
        busy = {run.worker.id: run.worker for run in islice(self._runs.values(), MOST_LOOKED_AT)}
        self.restless = False
        for worker in busy.values():
            begun = worker.under_way()
            spare = [run for run in worker.runs.values() if run.number not in begun or run.span.stop - run.done > 1]
            self.restless = self.restless or bool(spare)
            late = [worker.runs[number] for number in begun if now - worker.runs[number].touched > LATE_SECONDS]
            if worker.phase is not Phase.READY or not spare or not late:
                continue
            for run in late:
                run.span.open.function.exceeded(now - run.touched)
            for run in spare:
                run.touched, run.recalled = now, True
            self._effects.append(Send(worker.id, Recall([run.number for run in spare])))

    def _start_failed(self, pool: WorkerPool, started: StartedWorker, now: float) -> None:
        error = pool.fleet.start_failed(started, now)
        if error is not None and pool.workers:
            self._effects.append(Warn(error.message))
        elif error is not None:
            self._give_up(error, now, pool)

    def _look_after(self, worker: Worker, now: float) -> None:
        started, silence = worker.started, now - worker.heard_at
        if started is not None and started.ended_at is not None and now - max(started.ended_at, worker.heard_at) > SETTLE_SECONDS:
            reason = started.report.reason if started.report is not None else ""
            self._lose(worker, f"ended: {reason}" if reason else "ended", now)
        elif worker.phase is Phase.STOPPING and now - worker.stopping_since > LEAVE_SECONDS:
            self._dismiss(worker, "does not leave", now)
        elif started is not None and started.state is TaskState.SUSPENDED:
            worker.heard_at = now
            self._set_aside(worker)
        elif silence > self.policy.lease_seconds + 2 * self.policy.beat_seconds:
            self._dismiss(worker, f"has not been heard of for {silence:.0f} s", now)
        elif silence > 3 * self.policy.beat_seconds:
            self._set_aside(worker)
        elif worker.phase is Phase.READY and not worker.batches and now - worker.idle_since >= self.policy.idle_seconds:
            self._stop(worker, now)

    def _set_aside(self, worker: Worker) -> None:
        """Give a worker nothing more until it is heard again."""
        if worker.phase is Phase.READY:
            worker.enter(Phase.SILENT)
            worker.pool.place(worker)

    # ---------------------------------------------------------------- handing out

    def _make_room(self, worker: Worker, now: float) -> None:
        """See how much more a worker may be given, have it leave when it has done its share, and hand out what waits."""
        if worker.phase is Phase.READY:
            if not worker.batches:
                worker.idle_since = now
                if worker.pool.share_left(worker) == 0:
                    self._stop(worker, now)
            worker.pool.place(worker)
        self._hand_out(now, worker.pool)

    def _hand_out(self, now: float, pool: WorkerPool) -> None:
        while (worker := pool.next_worker()) is not None:
            self._give(worker, now)

    def _give(self, worker: Worker, now: float) -> None:
        batch = Batch()
        assignments, payload = [], list[Any]()
        for span in worker.pool.next_spans(worker):
            run = self._begin_run(span, worker, batch, now)
            assignments.append(_assignment(run))
            payload += span.open.task.payload
        self._define(worker, span.open.function)
        worker.batches += 1
        self.restless = self.restless or span.calls > 1 or batch.left > 1 or worker.batches > worker.hello.slots
        self._effects.append(Send(worker.id, Assign(assignments), payload))
        worker.pool.place(worker)

    def _begin_run(self, span: Span, worker: Worker, batch: Batch, now: float) -> Running:
        self._last_run += 1
        run = Running(self._last_run, span, worker, batch, span.start, now, now)
        self._runs[run.number] = worker.runs[run.number] = run
        span.open.runs.add(run.number)
        batch.left += 1
        worker.taken += span.calls
        return run

    def _define(self, worker: Worker, known: Known) -> None:
        if worker.id not in known.workers:
            function = known.function
            known.workers.add(worker.id)
            worker.functions.add(function.digest)
            message = Define(function.digest, list(function.path), function.directory, len(function.payload))
            self._effects.append(Send(worker.id, message, function.payload))

    # ---------------------------------------------------------------- ends

    def _end_run(self, run: Running) -> None:
        del self._runs[run.number], run.worker.runs[run.number]
        run.span.open.runs.discard(run.number)
        run.batch.left -= 1
        if not run.batch.left:
            run.worker.batches -= 1

    def _again(self, span: Span, *, out_of_memory: bool = False) -> None:
        """Have calls that failed wait for another attempt, with more memory if it was that they wanted."""
        demand, factor = span.demand, span.open.task.escalate_memory
        if out_of_memory and factor > 1:
            demand = replace(demand, factor=demand.factor * factor)
        self._wait_or_cancel(replace(span, demand=demand, attempt=span.attempt + 1))

    def _wait_or_cancel(self, span: Span) -> None:
        """Have calls that were handed out wait again, before all others, unless somebody ended their task."""
        if span.start == span.stop:
            return
        if span.open.cancelled:
            self._settle_cancelled(span, span.open.cancelled)
        else:
            self._pool(span.demand).put_back(span)

    def _settle_cancelled(self, span: Span, number: int, stdout: bytes = b"", stderr: bytes = b"", *, worker: Worker | None = None) -> None:
        error = blame.why_cancelled(span, worker)
        self._settle(span, span.start, span.stop, error=error, exitcode=-number, stdout=stdout, stderr=stderr)

    def _settle(self, span: Span, start: int, stop: int, **outcome: Any) -> None:
        one = span.open
        one.unsettled -= stop - start
        attempts = tuple(one.attempts.get(start, ())) if stop - start == 1 and one.attempts else ()
        last = not one.unsettled
        self._effects.append(Settled(one.task.id, start, stop, **{"payload": None, **outcome}, attempts=attempts, last=last))
        if last:
            del self.open[one.task.id]
            one.function.open -= 1
            if not one.function.open:
                self._retire(one.function)

    def _retire(self, known: Known) -> None:
        """Keep the last functions a while, since the next call is often of the same one; have workers forget the oldest."""
        size = sum(memoryview(buffer).nbytes for buffer in known.function.payload)
        if size > KEPT_BYTES:
            self._forget(known.function.digest)
            return
        self._retired[known.function.digest] = size
        while len(self._retired) > KEPT_FUNCTIONS or sum(self._retired.values()) > KEPT_BYTES:
            digest = next(iter(self._retired))
            del self._retired[digest]
            self._forget(digest)

    def _forget(self, digest: bytes) -> None:
        for worker in self._functions.pop(digest).workers:
            self.workers[worker].functions.discard(digest)
            self._effects.append(Send(worker, Forget([digest])))

    def _give_up(self, error: GridEngineError, now: float, only: WorkerPool | None = None) -> None:
        """No worker can be had: what waits has failed, and the next that is submitted asks anew."""
        for pool in self.pools.values() if only is None else [only]:
            for span in pool.drop(lambda span: True):
                self._settle(span, span.start, span.stop, error=error, exitcode=1)
            self._effects += pool.fleet.give_up(now)

    def _stop(self, worker: Worker, now: float) -> None:
        worker.enter(Phase.STOPPING)
        worker.stopping_since = now
        worker.pool.place(worker)
        self._effects.append(Send(worker.id, Stop()))

    def _dismiss(self, worker: Worker, reason: str, now: float) -> None:
        """Do without a worker that may still be there: its calls go elsewhere, so its cluster task must end."""
        if worker.started is not None:
            self._effects += worker.pool.fleet.withdraw([worker.started])
        self._lose(worker, reason, now)

    def _lose(self, worker: Worker, reason: str, now: float, *, suspects: Collection[int] | None = None) -> None:
        """A worker is no more: what it was given waits again, or has been tried often enough.

        With `suspects` only the first open calls of these runs are charged with an attempt, else all the worker held.
        """
        worker.enter(Phase.GONE)
        del self.workers[worker.id]
        worker.pool.leave(worker)
        self._forget_launch(worker.id, worker.started, worker.pool)
        self._effects.append(Lost(worker.id))
        for digest in worker.functions:
            self._functions[digest].workers.discard(worker.id)
        for run in reversed(list(worker.runs.values())):
            self._end_run(run)
            span = replace(run.span, start=run.done)
            if span.open.cancelled or (suspects is not None and run.number not in suspects):
                self._wait_or_cancel(span)
                continue
            if suspects is not None and span.calls > 1:
                self._wait_or_cancel(replace(span, start=span.start + 1))
                span = replace(span, stop=span.start + 1)
            self._remember(run, run.done, now, f"the worker {reason}")
            self._retry_lost(worker, span, reason)
        for pool in list(self.pools.values()):
            self._hand_out(now, pool)
        self._scale(now)

    def _retry_lost(self, worker: Worker, span: Span, reason: str) -> None:
        report = worker.started.report if worker.started is not None else None
        fault = report.fault if report is not None else None
        if span.attempt <= span.open.task.retries and fault is not TimeoutError:
            self._again(span, out_of_memory=fault is OutOfMemory)
        else:
            error = blame.why_lost(worker, span, reason, report)
            self._settle(span, span.start, span.stop, error=error, exitcode=-signal.SIGKILL)

    def _remember(self, run: Running, index: int, now: float, outcome: str, exitcode: int | None = None, peak_memory: int = 0) -> None:
        worker = run.worker
        attempt = Attempt(worker.hello.host, worker.job, run.since, now, outcome, worker.hello.log, exitcode, peak_memory)
        run.span.open.attempts.setdefault(index, []).append(attempt)

    def _scale(self, now: float) -> None:
        if self.closing:
            return
        for pool in self.pools.values():
            others = sum(other.size for other in self.pools.values() if other is not pool)
            self._effects += pool.scale(now, others=others)


def _assignment(run: Running) -> Assignment:
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
        task.timeout,
        span.demand.memory_limit,
        task.first,
        len(task.payload),
    )


def _fits(result: Result, run: Running) -> bool:
    """Return whether a result answers the next calls of a run, as the protocol has it."""
    return (
        result.start == run.done
        and result.stop <= run.span.stop
        and (result.status == VALUES or (result.status in (RAISED, RETRYABLE, OUT_OF_MEMORY) and result.stop == result.start + 1))
        and result.buffers > 2 * result.output
        and math.isfinite(result.seconds)
    )


def _under_way(worker: Worker) -> set[int]:
    """Return the runs that a worker's runners are in: they take batches, and the runs of a batch, in order."""
    first: dict[int, int] = {}
    for number, run in worker.runs.items():
        if id(run.batch) not in first and len(first) < worker.hello.slots:
            first[id(run.batch)] = number
    return set(first.values())


_OUTCOMES = {
    VALUES: "it returned",
    RAISED: "it raised an exception",
    RETRYABLE: "it raised an exception of those to be retried",
    OUT_OF_MEMORY: "it ran out of memory",
}

_HANDLERS: dict[type, Callable[[DispatchState, Any, float], None]] = {
    Submitted: DispatchState._submitted,
    CancelAsked: DispatchState._cancel_asked,
    Received: DispatchState._received,
    Launched: DispatchState._launched,
    LaunchFailed: DispatchState._launch_failed,
    Polled: DispatchState._polled,
    Tick: DispatchState._tick,
    Look: DispatchState._look,
    Closing: DispatchState._closing,
}

_ANSWERS: dict[type, Callable[[DispatchState, Worker, Any, Payload, float], None]] = {
    Results: DispatchState._results,
    Crashed: DispatchState._crashed,
    Returned: DispatchState._returned,
    Shortened: DispatchState._shortened,
    Started: DispatchState._started,
    Pushed: DispatchState._pushed,
    Goodbye: DispatchState._goodbye,
}
