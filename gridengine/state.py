"""The core of a dispatcher, SANS-I/O: `DispatchState.handle(event, now)` returns the effects to perform.

No clock, socket, thread, file or pickle is in it, so that every failure can be played in a test. What it promises: each call of
each task is settled exactly once, whatever workers do; no work for one event grows with the number of tasks that wait or workers
that are connected (but for cancelling, the tick and the scheduler's reports).

Calls wait as *spans*: a stretch of one task's calls, with the number of the attempt. A span, or as much of it as measured durations
say is a sensible piece of work, becomes a *run* on a worker. Runs are numbered and never repeated: an answer to a run that is no
more is late, and dropped.
"""

from __future__ import annotations

import enum
import math
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gridengine.errors import (
    CallError,
    Cancelled,
    GridEngineError,
    JobDeleted,
    OutOfMemory,
    TimeoutError,
    VersionMismatch,
    WorkerCrashed,
    WorkerLost,
)
from gridengine.events import (
    Attempt,
    Began,
    CancelAsked,
    Closing,
    Effect,
    Event,
    Function,
    Launched,
    LaunchFailed,
    Lost,
    Note,
    Polled,
    Received,
    Send,
    Settled,
    Submitted,
    Task,
    Tick,
    Warn,
)
from gridengine.fleet import Fleet, Policy
from gridengine.fleet import Started as StartedWorker
from gridengine.protocol import (
    CANCELLED,
    CRASH,
    MEMORY,
    RAISED,
    RETRYABLE,
    TIMEOUT,
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
    Refuse,
    Result,
    Results,
    Returned,
    Started,
    Stop,
    Welcome,
    portions,
)
from gridengine.schedulers.base import TaskState

BATCH_SECONDS = 0.025
AHEAD_SECONDS = 0.05
MOST_RUNS = 1000
MOST_BYTES = 4_000_000
KEPT_FUNCTIONS = 64
SETTLE_SECONDS = 0.5
LEAVE_SECONDS = 10.0
MOST_FRUITLESS = 3


class Phase(enum.Enum):
    """Where a worker stands."""

    READY = "ready"
    SILENT = "silent"
    STOPPING = "stopping"
    GONE = "gone"


NEXT_PHASES = {
    Phase.READY: {Phase.SILENT, Phase.STOPPING, Phase.GONE},
    Phase.SILENT: {Phase.READY, Phase.STOPPING, Phase.GONE},
    Phase.STOPPING: {Phase.GONE},
    Phase.GONE: set(),
}


@dataclass(slots=True)
class Open:
    """A task not all of whose calls are settled. `cancelled` is the signal that it was ended with, 0 while nobody ended it."""

    task: Task
    function: Known
    unsettled: int
    cancelled: int = 0
    runs: set[int] = field(default_factory=set)
    attempts: dict[int, list[Attempt]] = field(default_factory=dict)


@dataclass(slots=True)
class Known:
    """A function in use, or kept for a while after: its open tasks, its workers, and the mean duration of its calls."""

    function: Function
    open: int = 0
    workers: set[bytes] = field(default_factory=set)
    seconds: float | None = None

    def measured(self, calls: int, seconds: float) -> None:
        """Learn from an answer; a longer duration counts at once, a shorter one bit by bit."""
        mean = max(seconds, 0.0) / calls
        self.seconds = mean if self.seconds is None or mean > self.seconds else 0.5 * (self.seconds + mean)


@dataclass(frozen=True, slots=True)
class Span:
    """Calls `start` to `stop` of a task, waiting for their attempt number `attempt`."""

    open: Open
    start: int
    stop: int
    attempt: int = 1


@dataclass(slots=True)
class Batch:
    """What one runner was given at a time: how many of its runs have not ended."""

    left: int


@dataclass(slots=True)
class Running:
    """A span that a worker was given; the calls before `done` are settled."""

    number: int
    span: Span
    worker: Worker
    batch: Batch
    done: int
    since: float


@dataclass(slots=True)
class Worker:
    """A worker that called home. `fruitless`: how often in a row it gave work back and did none."""

    id: bytes
    hello: Hello
    heard_at: float
    idle_since: float
    phase: Phase = Phase.READY
    started: StartedWorker | None = None
    runs: dict[int, Running] = field(default_factory=dict)
    functions: set[bytes] = field(default_factory=set)
    batches: int = 0
    taken: int = 0
    fruitless: int = 0
    stopping_since: float = 0.0

    @property
    def job(self) -> str:
        """The batch system's id, when it is known."""
        return self.started.handle.id if self.started is not None else ""

    def enter(self, phase: Phase) -> None:
        """Change the phase; an illegal change is a fault of this package."""
        if phase not in NEXT_PHASES[self.phase]:
            raise AssertionError(f"a worker cannot go from {self.phase} to {phase}")
        self.phase = phase


class DispatchState:
    """Decides for one dispatcher. `handle` is the only way in; its effects are to be performed in order."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.fleet = Fleet(policy)
        self.open: dict[int, Open] = {}
        self.workers: dict[bytes, Worker] = {}
        self.calls_waiting = 0
        self.closing = False
        self._waiting: deque[Span] = deque()
        self._functions: dict[bytes, Known] = {}
        self._retired: dict[bytes, None] = {}
        self._runs: dict[int, Running] = {}
        self._last_run = 0
        self._idle: dict[bytes, Worker] = {}
        self._ahead: dict[bytes, Worker] = {}
        self._slots = 0
        self._effects: list[Effect] = []

    @property
    def running(self) -> int:
        """How many runs are under way."""
        return len(self._runs)

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
        known = self._functions.setdefault(event.function.digest, Known(event.function))
        self._retired.pop(event.function.digest, None)
        for task in event.tasks:
            self.open[task.id] = one = Open(task, known, task.count)
            known.open += 1
            self._waiting.append(Span(one, 0, task.count))
            self.calls_waiting += task.count
        if self.closing:
            self._cancel([task.id for task in event.tasks], signal.SIGKILL)
            return
        self._hand_out(now)
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
        kept: deque[Span] = deque()
        dropped: list[Span] = []
        for span in self._waiting:
            (dropped if which(span) else kept).append(span)
        self._waiting = kept
        for span in dropped:
            self.calls_waiting -= span.stop - span.start
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
        self._effects += self.fleet.withdraw(list(self.fleet.expected.values()))

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
        started, withdrawn = self.fleet.called_home(id, hello.log, hello.pid)
        mismatch = self._mismatch(hello)
        if mismatch is not None:
            self._refuse(id, mismatch.message)
            self.fleet.gone(id, started)
            self.fleet.hold_back(now)
            if not self.workers:
                self._give_up(mismatch, now)
            return
        self.fleet.welcomed()
        self.workers[id] = worker = Worker(id, hello, now, now, started=started)
        self._slots += hello.slots
        self._effects.append(Send(id, Welcome()))
        if withdrawn or self.closing:
            self._stop(worker, now)
            return
        self._make_room(worker, now)

    def _refuse(self, id: bytes, reason: str) -> None:
        self._effects += [Send(id, Refuse(reason)), Lost(id)]

    def _mismatch(self, hello: Hello) -> VersionMismatch | None:
        if (hello.protocol, hello.version, hello.python) == (VERSION, self.policy.version, self.policy.python):
            return None
        return VersionMismatch(
            f"the worker on {hello.host} has gridengine {hello.version} (protocol {hello.protocol}) on Python {hello.python}, "
            f"the dispatcher gridengine {self.policy.version} (protocol {VERSION}) on Python {self.policy.python}",
            host=hello.host,
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
        run.done = result.stop
        if run.done == span.stop:
            self._end_run(run)
        stdout = stderr = b""
        if result.output:
            *payload, out, err = payload
            stdout, stderr = bytes(out), bytes(err)
        if result.status == RETRYABLE and span.attempt <= span.open.task.retries and not span.open.cancelled:
            self._remember(run, result.start, now, "raised an exception that is to be retried")
            self._wait_again([Span(span.open, result.start, result.stop, span.attempt + 1)])
            return
        raised = result.status in (RAISED, RETRYABLE)
        self._settle(span, result.start, result.stop, payload=payload, raised=raised, exitcode=int(raised), stdout=stdout, stderr=stderr)

    def _crashed(self, worker: Worker, message: Crashed, buffers: Payload, now: float) -> None:
        run = worker.runs.get(message.run)
        if run is None:
            return
        if message.reason not in _OUTCOMES or not (message.index == -1 or run.done <= message.index < run.span.stop):
            self._breach(worker, f"run {message.run} cannot have ended at call {message.index} by {message.reason!r}", now)
            return
        if message.index == -1 and message.reason != CANCELLED:
            self._returned(worker, Returned([message.run]), (), now)
            return
        worker.fruitless = 0
        self._end_run(run)
        span, index = run.span, message.index
        if span.open.cancelled or index == -1:
            self._settle_cancelled(replace(span, start=run.done), -message.exitcode, *map(bytes, buffers))
        else:
            self._wait_again(
                [Span(span.open, first, last, span.attempt) for first, last in ((run.done, index), (index + 1, span.stop)) if first < last]
            )
            self._remember(run, index, now, _OUTCOMES[message.reason](message.exitcode), message.exitcode, message.peak_memory)
            if message.reason in (CRASH, MEMORY) and span.attempt <= span.open.task.retries:
                self._wait_again([Span(span.open, index, index + 1, span.attempt + 1)])
            else:
                stdout, stderr = map(bytes, buffers)
                error = self._why_crashed(worker, span, index, message)
                self._settle(span, index, index + 1, error=error, exitcode=message.exitcode, stdout=stdout, stderr=stderr)
        self._make_room(worker, now)

    def _why_crashed(self, worker: Worker, span: Span, index: int, message: Crashed) -> CallError:
        what = (
            f"call {index} of {span.open.function.function.name}"
            if span.open.task.count > 1
            else f"the call of {span.open.function.function.name}"
        )
        facts: dict[str, Any] = {
            "host": worker.hello.host,
            "job": worker.job or None,
            "log": worker.hello.log or None,
            "attempts": [str(attempt) for attempt in span.open.attempts.get(index, ())],
        }
        if message.reason == TIMEOUT:
            return TimeoutError(f"{what} ran over its limit of {span.open.task.timeout} s and was ended", hint="raise timeout=", **facts)
        if message.reason == MEMORY:
            peak = f"; its peak was {message.peak_memory / 1e9:.2f} GB" if message.peak_memory else ""
            return OutOfMemory(f"{what} went over its memory limit{peak}", hint="ask for more memory", **facts)
        if message.reason == CANCELLED:
            return Cancelled(f"{what} was ended", **facts)
        return WorkerCrashed(
            f"the process that ran {what} {exit_words(message.exitcode)}",
            hint="run this call alone with InlineScheduler() to see it fail; SIGKILL is often the sign of too little memory",
            **facts,
        )

    def _returned(self, worker: Worker, message: Returned, buffers: Payload, now: float) -> None:
        runs = [worker.runs[number] for number in reversed(message.runs) if number in worker.runs]
        worker.fruitless += bool(runs)
        if worker.fruitless > MOST_FRUITLESS:
            self.fleet.hold_back(now)
            self._dismiss(worker, "could run nothing: it gave back all it was given", now)
            return
        for run in runs:
            self._end_run(run)
            self._wait_or_cancel(replace(run.span, start=run.done))
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
        for id, started in self.fleet.launched(event.handles, now):
            if id in self.workers:
                self.workers[id].started = started
        if self.closing:
            self._effects += self.fleet.withdraw(list(self.fleet.expected.values()))
        if not event.handles:
            self.fleet.hold_back(now)
        self._scale(now)

    def _launch_failed(self, event: LaunchFailed, now: float) -> None:
        self.fleet.asked = 0
        if event.for_now or self.workers or self.fleet.expected:
            self.fleet.hold_back(now)
            self._effects.append(Warn(f"no workers were started{' for now' if event.for_now else ''}: {event.error.message}"))
        else:
            self._give_up(event.error, now)

    def _polled(self, event: Polled, now: float) -> None:
        for started in self.fleet.polled(event.reports, now):
            if started.worker is None and self.fleet.knows(started):
                self._start_failed(started, now)
        self._scale(now)

    def _tick(self, event: Tick, now: float) -> None:
        for worker in list(self.workers.values()):
            self._look_after(worker, now)
        for started in self.fleet.overdue(now):
            if self.fleet.knows(started):
                seconds = self.policy.start_seconds
                self._effects.append(
                    Warn(f"cluster job {started.handle.id} runs for {seconds:.0f} s and has not called home; it is stopped")
                )
                self._effects += self.fleet.withdraw([started])
                self._start_failed(started, now)
        self._effects += self.fleet.explain(now, calls_waiting=self.calls_waiting, workers=len(self.workers))
        self._scale(now)

    def _start_failed(self, started: StartedWorker, now: float) -> None:
        error = self.fleet.start_failed(started, now)
        if error is not None and self.workers:
            self._effects.append(Warn(error.message))
        elif error is not None:
            self._give_up(error, now)

    def _look_after(self, worker: Worker, now: float) -> None:
        started, silence = worker.started, now - worker.heard_at
        if started is not None and started.ended_at is not None and now - max(started.ended_at, worker.heard_at) > SETTLE_SECONDS:
            report = started.report
            deleted = report is not None and report.deleted
            self._lose(worker, (report.reason if report is not None else "") or "its process ended", now, deleted=deleted)
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
            self._place(worker)

    # ---------------------------------------------------------------- handing out

    def _make_room(self, worker: Worker, now: float) -> None:
        """See how much more a worker may be given, have it leave when it has done its share, and hand out what waits."""
        if worker.phase is Phase.READY:
            if not worker.batches:
                worker.idle_since = now
                if self._share_left(worker) == 0:
                    self._stop(worker, now)
            self._place(worker)
        self._hand_out(now)

    def _share_left(self, worker: Worker) -> int | None:
        share = self.policy.jobs_per_worker
        return None if share is None else max(0, share - worker.taken)

    def _place(self, worker: Worker) -> None:
        """List a worker by its room: idle when a slot is free, ahead when it may be given what its slots will want next."""
        self._idle.pop(worker.id, None)
        self._ahead.pop(worker.id, None)
        left = self._share_left(worker)
        if worker.phase is not Phase.READY or left == 0:
            return
        if worker.batches < worker.hello.slots:
            self._idle[worker.id] = worker
        elif worker.batches < 2 * worker.hello.slots and left is None:
            self._ahead[worker.id] = worker

    def _hand_out(self, now: float) -> None:
        """Give to who came last: if there is too little for all, those before it may leave."""
        while self._waiting and self._idle:
            self._give(self._idle.popitem()[1], now)
        while self._waiting and self._ahead and self._may_go_ahead(self._waiting[0]):
            self._give(self._ahead.popitem()[1], now)

    def _may_go_ahead(self, span: Span) -> bool:
        seconds = span.open.function.seconds
        return seconds is not None and seconds < AHEAD_SECONDS and span.attempt == 1

    def _give(self, worker: Worker, now: float) -> None:
        batch = Batch(0)
        assignments, payload = [], list[Any]()
        for span in self._next_spans(worker):
            self._last_run += 1
            run = Running(self._last_run, span, worker, batch, span.start, now)
            self._runs[self._last_run] = worker.runs[self._last_run] = run
            span.open.runs.add(self._last_run)
            batch.left += 1
            worker.taken += span.stop - span.start
            task = span.open.task
            assignments.append(
                Assignment(
                    self._last_run,
                    task.id,
                    span.open.function.function.digest,
                    span.start,
                    span.stop,
                    span.attempt,
                    task.form,
                    task.watched,
                    task.controlled,
                    task.timeout,
                    len(task.payload),
                )
            )
            payload += task.payload
        self._define(worker, span.open.function)
        worker.batches += 1
        self._effects.append(Send(worker.id, Assign(assignments), payload))
        self._place(worker)

    def _next_spans(self, worker: Worker) -> Iterator[Span]:
        """Take from the front of the queue what is a sensible piece of work for one runner: calls of one function."""
        function, attempt = self._waiting[0].open.function, self._waiting[0].attempt
        room = self._sensible_calls(function) if attempt == 1 else 1
        left = self._share_left(worker)
        room = room if left is None else min(room, left)
        size = 0
        for _ in range(MOST_RUNS):
            span = self._waiting.popleft()
            calls = min(room, span.stop - span.start)
            if calls < span.stop - span.start:
                self._waiting.appendleft(replace(span, start=span.start + calls))
                span = replace(span, stop=span.start + calls)
            self.calls_waiting -= calls
            room -= calls
            size += sum(map(len, span.open.task.payload))
            yield span
            if (
                not room
                or size > MOST_BYTES
                or not self._waiting
                or self._waiting[0].open.function is not function
                or self._waiting[0].attempt != attempt
            ):
                return

    def _sensible_calls(self, function: Known) -> int:
        """How many calls make one batch: what takes `BATCH_SECONDS`, but leave work for every slot; one when nothing is known yet."""
        if function.seconds is None:
            return 1
        share = -(-self.calls_waiting // (2 * max(self._slots, 1)))
        return max(1, min(share, int(BATCH_SECONDS / max(function.seconds, 1e-9))))

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

    def _wait_again(self, spans: list[Span]) -> None:
        self._waiting.extendleft(reversed(spans))
        self.calls_waiting += sum(span.stop - span.start for span in spans)

    def _wait_or_cancel(self, span: Span) -> None:
        if span.open.cancelled:
            self._settle_cancelled(span, span.open.cancelled)
        elif span.start < span.stop:
            self._wait_again([span])

    def _settle_cancelled(self, span: Span, number: int, stdout: bytes = b"", stderr: bytes = b"") -> None:
        error = Cancelled(f"{span.open.function.function.name} was ended before it was done")
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
        self._retired[known.function.digest] = None
        if len(self._retired) > KEPT_FUNCTIONS:
            digest = next(iter(self._retired))
            del self._retired[digest]
            for worker in self._functions.pop(digest).workers:
                self.workers[worker].functions.discard(digest)
                self._effects.append(Send(worker, Forget([digest])))

    def _give_up(self, error: GridEngineError, now: float) -> None:
        """No worker can be had: what waits has failed, and the next that is submitted asks anew."""

        def settle(span: Span) -> None:
            self._settle(span, span.start, span.stop, error=error, exitcode=1)

        self._drop_waiting(lambda span: True, settle)
        self._effects += self.fleet.give_up(now)

    def _stop(self, worker: Worker, now: float) -> None:
        worker.enter(Phase.STOPPING)
        worker.stopping_since = now
        self._place(worker)
        self._effects.append(Send(worker.id, Stop()))

    def _dismiss(self, worker: Worker, reason: str, now: float) -> None:
        """Do without a worker that may still be there: its calls go elsewhere, so its cluster task must end."""
        if worker.started is not None:
            self._effects += self.fleet.withdraw([worker.started])
        self._lose(worker, reason, now)

    def _lose(self, worker: Worker, reason: str, now: float, *, suspects: Collection[int] | None = None, deleted: bool = False) -> None:
        """A worker is no more: what it was given waits again, or has been tried often enough.

        With `suspects` only the first open calls of these runs are charged with an attempt, else all the worker held.
        """
        worker.enter(Phase.GONE)
        del self.workers[worker.id]
        self._place(worker)
        self._slots -= worker.hello.slots
        self.fleet.gone(worker.id, worker.started)
        self._effects.append(Lost(worker.id))
        for digest in worker.functions:
            self._functions[digest].workers.discard(worker.id)
        for run in reversed(list(worker.runs.values())):
            self._end_run(run)
            span = replace(run.span, start=run.done)
            if span.open.cancelled or (suspects is not None and run.number not in suspects):
                self._wait_or_cancel(span)
                continue
            if suspects is not None and span.stop - span.start > 1:
                self._wait_again([replace(span, start=span.start + 1)])
                span = replace(span, stop=span.start + 1)
            self._remember(run, run.done, now, f"the worker {reason}")
            if span.attempt <= span.open.task.retries:
                self._wait_again([replace(span, attempt=span.attempt + 1)])
            else:
                error = self._why_lost(worker, span, reason, deleted=deleted)
                self._settle(span, span.start, span.stop, error=error, exitcode=-signal.SIGKILL)
        self._hand_out(now)
        self._scale(now)

    def _why_lost(self, worker: Worker, span: Span, reason: str, *, deleted: bool) -> GridEngineError:
        return (JobDeleted if deleted else WorkerLost)(
            f"the worker that ran {span.open.function.function.name} {reason}",
            host=worker.hello.host,
            job=worker.job or None,
            log=worker.hello.log or None,
            attempts=[str(attempt) for attempt in span.open.attempts.get(span.start, ())],
            hint="look at the log and at the batch system's record of this job; raise retries= if the machines are to blame",
        )

    def _remember(self, run: Running, index: int, now: float, outcome: str, exitcode: int | None = None, peak_memory: int = 0) -> None:
        worker = run.worker
        attempt = Attempt(worker.hello.host, worker.job, run.since, now, outcome, worker.hello.log, exitcode, peak_memory)
        run.span.open.attempts.setdefault(index, []).append(attempt)

    def _scale(self, now: float) -> None:
        if not self.closing:
            busy = len(self.workers) - len(self._idle)
            self._effects += self.fleet.scale(now, calls_waiting=self.calls_waiting, workers_busy=busy, workers_idle=len(self._idle))


def _fits(result: Result, run: Running) -> bool:
    """Return whether a result answers the next calls of a run, as the protocol has it."""
    return (
        result.start == run.done
        and result.stop <= run.span.stop
        and (result.status == VALUES or (result.status in (RAISED, RETRYABLE) and result.stop == result.start + 1))
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


def exit_words(exitcode: int) -> str:
    """Return what an exit code says, in words: `was killed by SIGKILL`, `exited with status 3`."""
    if exitcode >= 0:
        return f"exited with status {exitcode}"
    try:
        return f"was killed by {signal.Signals(-exitcode).name}"
    except ValueError:
        return f"was killed by signal {-exitcode}"


_OUTCOMES: dict[str, Callable[[int], str]] = {
    CRASH: lambda exitcode: f"its process {exit_words(exitcode)}",
    TIMEOUT: lambda exitcode: "it ran over its time",
    MEMORY: lambda exitcode: "it went over its memory limit",
    CANCELLED: lambda exitcode: "it was ended on request",
}

_HANDLERS: dict[type, Callable[[DispatchState, Any, float], None]] = {
    Submitted: DispatchState._submitted,
    CancelAsked: DispatchState._cancel_asked,
    Received: DispatchState._received,
    Launched: DispatchState._launched,
    LaunchFailed: DispatchState._launch_failed,
    Polled: DispatchState._polled,
    Tick: DispatchState._tick,
    Closing: DispatchState._closing,
}

_ANSWERS: dict[type, Callable[[DispatchState, Worker, Any, Payload, float], None]] = {
    Results: DispatchState._results,
    Crashed: DispatchState._crashed,
    Returned: DispatchState._returned,
    Started: DispatchState._started,
    Pushed: DispatchState._pushed,
    Goodbye: DispatchState._goodbye,
}
