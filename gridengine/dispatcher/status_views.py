"""The status of a core, for watchers. Pure, and called only on request: the cost grows with the
samples, demands and functions, not with calls.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from msgspec import convert
from msgspec.structs import replace

from gridengine.dispatcher.core.calls import OpenTask, shown_calls
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import Run, TaskQueue, Worker, WorkerPhase
from gridengine.errors import UNNUMBERED, call_words
from gridengine.schedulers import launcher
from gridengine.status import rows
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import request_words

T = TypeVar("T")
N = TypeVar("N", rows.RunStatus, FailureStatus)

MOST_QUEUES = 50
"""A status lists at most this many demands, and requests for workers."""
NAMING = "worker", "host", "job", "function"
"""The fields of a call or failure by which people name its worker, host, job or function."""
MOST_LOOKED_AT = 50_000
"""One answer looks at no more runs or tasks than this: some ten milliseconds' work."""


def status_of(
    state: CoreState,
    began: float,
    now: float,
    *,
    most: int,
    epoch: float = 0.0,
    names: Collection[str] = (),
) -> rows.Status:
    """Return the status of a dispatcher that began at `began`.

    most: how many workers, runs and failures there are at most, each. names: if any are given, only
    the workers, runs and failures of such a worker, host, cluster job or function. epoch: what to
    add to `now` for seconds since 1970; 0 if unknown.
    """
    snapshot, policy = state.snapshot(), state.policy
    waits = bool(state.open_tasks) and not state.runs and not snapshot.waiting
    workers = _named_workers(state, names) if names else state.workers.values()
    queues = sorted(state.queues.values(), key=lambda queue: -queue.calls - queue.running)
    return rows.Status(
        elapsed_seconds=now - began,
        left_seconds=_seconds_left(state, snapshot.waiting, snapshot.calls_running),
        waiting=snapshot.waiting,
        running=snapshot.calls_running,
        done=state.done,
        failed=state.failed,
        cancelled=state.cancelled,
        awaited=len(state.awaited),
        retried=state.retried,
        tasks=len(state.open_tasks),
        submitters=len(state.submitters),
        blocked=waits,
        closing=state.closing,
        max_workers=policy.max_workers,
        slots=policy.slots,
        local=not policy.pooled,
        worker_resources=request_words(policy.resources),
        jobs_per_worker=policy.jobs_per_worker,
        connected_workers=state.log.connected_workers,
        lost_workers=state.log.lost_workers,
        statuses=dict(snapshot.statuses),
        functions=convert(
            list(state.functions.values()), list[rows.FunctionStatus], from_attributes=True
        ),
        queues=[_queue(state, one) for one in queues[:MOST_QUEUES]],
        launches=[_launches(one, now) for one in islice(state.provisioners.values(), MOST_QUEUES)],
        worker_count=len(state.workers),
        worker_slots=state.slots_by_phase[WorkerPhase.READY],
        workers=[worker_status(one, now, epoch) for one in sample(workers, most)],
        run_count=len(state.runs),
        runs=list(islice(_named(_oldest_runs(state, now), names), most)),
        failures=_failures(state, now, names, most),
    )


def _named_workers(state: CoreState, names: Collection[str]) -> Collection[Worker]:
    """Return the workers of these names, and the workers with calls of such functions."""
    found = {
        worker.id: worker
        for worker in state.workers.values()
        if {_short(worker), worker.hello.host, worker.job, str(worker.hello.pid)} & set(names)
    }
    for run in islice(state.runs.values(), MOST_LOOKED_AT):
        if run.span.open_task.function.function.name in names:
            found[run.worker.id] = run.worker
    return found.values()


def _failures(
    state: CoreState, now: float, names: Collection[str], most: int
) -> list[FailureStatus]:
    """Return the last failures."""
    known = (replace(one, seconds_ago=now - at) for at, one in state.failures)
    found = list(_named(known, names))
    return found[max(0, len(found) - most) :]


def _named(many: Iterable[N], names: Collection[str]) -> Iterator[N]:
    """Yield the calls or failures of these workers, hosts, jobs or functions; all without names."""
    for one in many:
        if not names or any(getattr(one, field, "") in names for field in NAMING):
            yield one


def _short(worker: Worker) -> str:
    return worker.id.hex()[:8]


def sample(many: Collection[T], most: int) -> Iterable[T]:
    """Return at most `most` of the items, at even distances."""
    step = -(-len(many) // max(most, 1)) or 1
    return islice(many, 0, None, step)


def _seconds_left(state: CoreState, waiting: int, running: int) -> float | None:
    """Return an estimate of when all calls will have ended, from the mean duration so far."""
    calls = sum(one.calls for one in state.functions.values())
    slots = sum(queue.slots for queue in state.queues.values())
    if not calls or not slots or not waiting + running:
        return None
    mean = sum(one.seconds for one in state.functions.values()) / calls
    return mean * (waiting + 0.5 * running) / slots


def _queue(state: CoreState, queue: TaskQueue) -> rows.QueueStatus:
    waits_for_people = queue.calls and not queue.slots and not queue.demand.function
    request, launches = queue.demand.request, queue.provisioner.demand.request
    command = state.missing_worker(queue.demand) if waits_for_people else None
    counts = queue.calls, queue.running, queue.slots
    return rows.QueueStatus(request_words(request), *counts, request_words(launches), command)


def _launches(one: Provisioner, now: float) -> rows.LaunchStatus:
    states = [launch.state for launch in one.expected.values()]
    queued = states.count(launcher.WorkerStatus.QUEUED)
    first = next(iter(one.expected.values()), None)
    reason = one.reason
    if first is not None and first.report is not None:
        reason = reason or first.report.reason
    return rows.LaunchStatus(
        request=request_words(one.demand.request),
        label=one.label,
        workers=one.workers,
        idle=len(one.idle),
        requested=one.requested,
        queued=queued,
        starting=len(states) - queued,
        job=first.handle.id if first is not None else "",
        job_state=first.state.value if first is not None else "",
        job_seconds=now - first.launched_at if first is not None else 0.0,
        log=first.handle.log if first is not None else "",
        reason=reason,
        unanswered=one.starts.unanswered,
        failures=one.starts.count,
        held_back_seconds=max(0.0, one.ask_again_at - now),
        waited_seconds=0.0 if one.unserved_since is None else now - one.unserved_since,
        left_out=[*one.starts.left_out],
    )


def worker_status(worker: Worker, now: float, epoch: float = 0.0) -> rows.ConnectedWorkerStatus:
    """Return the status of a worker; `epoch`: see `status_of`."""
    hello, running = worker.hello, sum(min(one.batches, one.slots) for one in worker.slot_groups)
    phase, launch = worker.phase.value, worker.launch
    if phase == "ready":
        phase = "busy" if worker.batches else "idle"
    told = rows.ConnectedWorkerStatus(
        id=_short(worker),
        host=hello.host,
        pid=hello.pid,
        job=worker.job,
        log=hello.log,
        phase=phase,
        since_seconds=now - worker.since,
        heard_seconds=now - worker.heard_at,
        left_seconds=None if worker.leave_at == math.inf else worker.leave_at - now,
        slots=hello.slots,
        taken=worker.taken,
        running=running,
        queued=max(0, worker.calls - running - worker.waiting),
        waiting=worker.waiting,
        request=request_words(worker.held or worker.provisioner.demand.request),
        suspended=launch is not None and launch.state is launcher.WorkerStatus.SUSPENDED,
    )
    measured = worker.measured
    if measured is None:
        return told
    processor, agent = measured.processor, measured.agent_processor
    if not worker.batches:  # an idle worker measures nothing
        processor, agent = processor and 0.0, agent and 0.0
    return replace(
        told,
        load=measured.load,
        memory=measured.memory + sum(one.memory for one in measured.runners),
        runners=len(measured.runners),
        clock_ahead=measured.clock - worker.measured_at - epoch
        if measured.clock and epoch
        else None,
        processor=processor,
        agent_processor=agent,
    )


def _oldest_runs(state: CoreState, now: float) -> Iterator[rows.RunStatus]:
    """Yield the runs that are probably under way, the oldest first."""
    begun: dict[bytes, set[int]] = {}
    for run in islice(state.runs.values(), MOST_LOOKED_AT):
        worker = run.worker
        if worker.id not in begun:
            begun[worker.id] = worker.under_way()
        if run.number in begun[worker.id]:
            yield run_status(run, now)


def run_status(run: Run, now: float) -> rows.RunStatus:
    """Return the status of a run."""
    span, worker = run.span, run.worker
    task, function = span.open_task, span.open_task.function.function
    index = min(run.done, span.stop - 1)
    began = max(run.touched, run.since)
    history = (task.details.attempts or {}).get(index, ())
    figures = worker.measured.runners if worker.measured is not None else ()
    return rows.RunStatus(
        id=f"{task.id}.{index}",
        call=call_words(function.name, task.first, index, task.options.name),
        function=function.name,
        calls=span.stop - run.done,
        seconds=now - began,
        host=worker.hello.host,
        job=worker.job,
        log=worker.hello.log,
        worker=_short(worker),
        attempt=span.attempt,
        attempts=task.options.retries + 1,
        limit=run.limit,
        late=run.late,
        waits=run.batch.waiting,
        history=[str(one) for one in history],
        arguments=shown_calls(task),
        place=index,
        form=task.options.form,
        memory=next((one.memory for one in figures if one.run == run.number), 0),
        parameters=function.parameters,
    )


def find_calls(state: CoreState, word: str) -> list[tuple[OpenTask, int]]:
    """Return the open calls that a text means, with their indices: an id (`12.3`), a number among
    all calls of a map, or a job's name. Among very many tasks, only the first are searched.
    """
    task, _, place = word.partition(".")
    number = int(task) if task.isdecimal() else None
    if number is not None and place.isdecimal():
        one = state.open_tasks.get(number)
        return [(one, int(place))] if one is not None and int(place) < one.count else []
    found = []
    for one in islice(state.open_tasks.values(), MOST_LOOKED_AT):
        first, numbered = one.first, one.first != UNNUMBERED and not one.options.name
        if numbered and number is not None and first <= number < first + one.count:
            found.append((one, number - first))
        elif one.options.name == word:
            found.append((one, 0))
    return found


def call_status(state: CoreState, one: OpenTask, index: int, now: float) -> rows.CallStatus:
    """Return the status of a call."""
    options, function = one.options, one.function.function
    history = (one.details.attempts or {}).get(index, ())
    queue = state.queues.get(options.demand, state.common_queue)
    words = {"assigned": "running", "settled": "ended"}.get(state.state_of(one, index), "waiting")
    return rows.CallStatus(
        id=f"{one.id}.{index}",
        call=call_words(function.name, one.first, index, options.name),
        function=function.name,
        state=words,
        since_seconds=now - one.since,
        request=request_words(options.demand.request),
        waiting=queue.calls,
        missing=one.missing,
        attempts=options.retries + 1,
        history=[str(attempt) for attempt in history],
        arguments=shown_calls(one),
        place=index,
        form=options.form,
        parameters=function.parameters,
    )
