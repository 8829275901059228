"""The status of a dispatcher in the form in which watchers are sent it: plain data that become
JSON.

Times are seconds. The time of an event is given as seconds ago, since only the dispatcher's process
knows its clock. Where there are many rows of a kind, the status has a sample of them and their
number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gridengine.arguments import format_seconds
from gridengine.display import html_table
from gridengine.errors import safe_repr
from gridengine.resources.base import Resource
from gridengine.status.figures import DescribedCall, FailureStatus
from gridengine.status.watch_events import MOST_EVENTS, WatchEvent


class FunctionStatus(Struct, frozen=True):
    """The calls of functions of one name, since the dispatcher began.

    done, failed, cancelled: as in `Snapshot`. retried: attempts that another followed.
    waiting: calls that no worker has yet, including those that lack results. running: calls that a
        worker has.
    mean_seconds: how long one took on average; None while none has ended.
    p95_seconds: the time that 95 % of the calls did not exceed; calls under a millisecond count as
    one. peak_memory, asked_memory: the most that a process had and that a call requested, in bytes;
    0 if
        unknown.
    grown_memory: by how many bytes a process grew from call to call.
    histogram: (upper bound in seconds, calls) for calls over a millisecond.
    """

    name: str
    done: int = 0
    failed: int = 0
    retried: int = 0
    mean_seconds: float | None = None
    p95_seconds: float | None = None
    peak_memory: int = 0
    asked_memory: int = 0
    histogram: Sequence[tuple[float, int]] = ()
    grown_memory: int = 0
    waiting: int = 0
    running: int = 0
    numbered: int = 0
    """The numbers of its calls in maps are below this; 0 when none has a number."""
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """How many calls have ended."""
        return self.done + self.failed + self.cancelled


class QueueStatus(Struct, frozen=True):
    """The calls of one demand.

    waiting, running: how many wait, and how many workers have.
    slots: how many of them may run at a time on the connected workers.
    launches: the request of the workers that are launched for them, see `LaunchStatus.request`.
    command: if no worker can hold them and somebody must start one by hand, the command for that,
        or empty if there is none; else None.
    """

    request: str
    waiting: int
    running: int
    slots: int
    launches: str = ""
    command: str | None = None


class LaunchStatus(Struct, frozen=True):
    """The workers for one request: those that are connected, and those that are requested.

    request, label: the resources of each, and the name of the calls for which workers were last
        requested.
    workers, idle: how many are connected, and how many of these have nothing to do.
    requested: how many the scheduler was asked for without having answered yet.
    queued, starting: of the launched workers, how many wait in the batch system's queue, and how
        many run without having connected yet.
    job, job_state, job_seconds, log: the first of those that have not connected: its name and state
        in the batch system, for how long it has been known, and its log.
    reason: why they do not start, in the batch system's words.
    unanswered: why a running one does not connect, in its own words.
    failures: how many in a row ended before they connected.
    held_back_seconds: for how long no more are requested, because something went wrong.
    waited_seconds: for how long calls have waited while there was no worker.
    left_out: the hosts that are left out, because workers could not be started there.
    """

    request: str
    label: str = ""
    workers: int = 0
    idle: int = 0
    requested: int = 0
    queued: int = 0
    starting: int = 0
    job: str = ""
    job_state: str = ""
    job_seconds: float = 0.0
    log: str = ""
    reason: str = ""
    unanswered: str = ""
    failures: int = 0
    held_back_seconds: float = 0.0
    waited_seconds: float = 0.0
    left_out: Sequence[str] = ()


class ConnectedWorkerStatus(Struct, frozen=True):
    """A connected worker.

    id: unique among workers.
    job, log: its name in the batch system and its log; empty on the dispatcher's machine.
    phase: `idle`, `busy`, `silent` or `stopping`.
    since_seconds, heard_seconds: how long ago it connected, and when it was last heard.
    left_seconds: after how long it leaves; None without a limit.
    slots, taken: how many calls it runs at a time, and how many it was assigned in its life.
    running, queued, waiting: calls that its runners run, that wait for a runner, and that wait for
        their nested calls.
    request: the resources that were requested for it.
    load, memory, runners: the load of its machine, the bytes of its agent and runners, and the
        number of runners; None until it has reported them.
    processor: how many processors its runners used in the last seconds, without programs that calls
        start; None until it has reported that, and while there are very many runners.
    agent_processor: the same for its agent; None if the agent is part of the dispatcher's process.
    clock_ahead: by how many seconds the clock of its machine is ahead of the dispatcher's, to some
        tenths.
    suspended: whether the scheduler says that its job, or its process, is suspended.
    """

    id: str
    host: str
    pid: int
    job: str
    log: str
    phase: str
    since_seconds: float
    heard_seconds: float
    left_seconds: float | None
    slots: int
    taken: int
    running: int
    queued: int
    waiting: int
    request: str = ""
    load: float | None = None
    memory: int | None = None
    runners: int | None = None
    clock_ahead: float | None = None
    suspended: bool = False
    processor: float | None = None
    agent_processor: float | None = None


class RunStatus(DescribedCall, frozen=True):
    """Calls of a task that a worker has.

    id: the task's number, and the index of the first unsettled call.
    call: the name of that call for people.
    calls: how many calls are unsettled.
    seconds: since the last call ended, or since the calls were assigned.
    attempt, attempts: the number of this attempt, and how many there may be.
    limit: the seconds that each call may take, or None.
    late: whether the calls take longer than expected. waits: whether they wait for their nested
        calls.
    memory: the bytes of the process that runs them; 0 if unknown.
    """

    id: str
    call: str
    function: str
    calls: int
    seconds: float
    host: str
    job: str
    log: str
    worker: str
    attempt: int
    attempts: int
    limit: float | None = None
    late: bool = False
    waits: bool = False
    memory: int = 0


class CallStatus(DescribedCall, frozen=True):
    """One unsettled call, or a settled call of a task that has unsettled ones.

    state: `waiting` in a queue, or for `missing` results; `running`; or `ended`.
    since_seconds: since its submission.
    request, waiting: the resources that it requests, and how many calls wait for the same.
    attempts: how many attempts it may have.
    """

    id: str
    call: str
    function: str
    state: str
    since_seconds: float
    request: str = ""
    waiting: int = 0
    missing: int = 0
    attempts: int = 1


class FileFault(Struct, frozen=True):
    """A file or folder of a dispatcher or run that cannot be written, why it cannot, and what is
    lost.
    """

    path: str
    error: str
    loss: str


class Status(Struct, frozen=True):
    """A dispatcher's core at one moment.

    elapsed_seconds: since the dispatcher began.
    left_seconds: an estimate of when all calls will have ended; None while nothing is known.
    waiting, running, done, failed, cancelled, retried: numbers of calls, as in `Snapshot`.
    awaited: how many results others need, or may need.
    blocked: whether all open calls need results that no call of this dispatcher makes.
    statuses: numbers of workers by their state, as in `Snapshot`.
    submitters: how many submitters have open tasks.
    max_workers, slots: the most workers at a time, and how many calls each runs at a time. With
        `local`, all processes of this machine are one worker's.
    workers, runs, failures: samples. `worker_count`, `run_count` (including runs that wait at
        workers) and `failed` are the whole numbers.
    worker_slots: how many calls all workers that are not silent run at a time.
    faults: the files that cannot be written now, as far as the dispatcher's process and its watcher
        know.
    allocation: the cores of the batch job in which the dispatcher's process runs, in words; empty
        outside of a job.
    events: the events since a follower was last told, in order; of many events of one kind a
        sample.
    left_out: by kind, how many more calls or workers had such an event.
    """

    elapsed_seconds: float = 0.0
    left_seconds: float | None = None
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    retried: int = 0
    tasks: int = 0
    submitters: int = 0
    blocked: bool = False
    closing: bool = False
    max_workers: int = 0
    slots: int = 0
    local: bool = False
    worker_resources: str = ""
    jobs_per_worker: int | None = None
    connected_workers: int = 0
    lost_workers: int = 0
    statuses: Mapping[str, int] = {}
    functions: Sequence[FunctionStatus] = ()
    queues: Sequence[QueueStatus] = ()
    launches: Sequence[LaunchStatus] = ()
    worker_count: int = 0
    worker_slots: int = 0
    workers: Sequence[ConnectedWorkerStatus] = ()
    run_count: int = 0
    runs: Sequence[RunStatus] = ()
    failures: Sequence[FailureStatus] = ()
    faults: Sequence[FileFault] = ()
    allocation: str = ""
    events: Sequence[WatchEvent] = ()
    left_out: Mapping[str, int] = {}
    cancelled: int = 0
    awaited: int = 0

    @property
    def ended(self) -> int:
        """How many calls have ended."""
        return self.done + self.failed + self.cancelled

    @property
    def room(self) -> int:
        """The number that the user may set as `max_workers=`. For local processes it is the number
        of calls that run at a time.
        """
        return self.max_workers * self.slots if self.local else self.max_workers

    @property
    def ended_words(self) -> str:
        """How many calls have ended, by how."""
        cancelled = f", {self.cancelled:,} cancelled" if self.cancelled else ""
        return f"{self.done:,} done, {self.failed:,} failed{cancelled}"

    @property
    def in_room(self) -> int:
        """How many of the `room` there are: workers, or for local processes, processes."""
        told = [one.runners for one in self.workers if one.runners is not None]
        if not self.local:
            return self.worker_count
        return sum(told) if told else self.worker_count * self.slots

    @property
    def worker_words(self) -> str:
        """The number of workers, and of how many there may be, in words."""
        if not self.max_workers:
            return f"{self.worker_count:,} started by hand"
        return f"{self.in_room:,} of at most {self.room:,}{' here' * self.local}"

    @property
    def state_words(self) -> list[str]:
        """How many workers are in which state; nothing for local processes, of one worker."""
        told = {} if self.local else self.statuses
        return [f"{count:,} {state}" for state, count in told.items() if count]

    def facts(self) -> list[tuple[str, object]]:
        """Return the most important figures as (label, words)."""
        ended = [self.ended_words]
        ended += [f"{self.retried:,} retried"] * bool(self.retried)
        workers = [self.worker_words, *self.state_words]
        left = None if self.left_seconds is None else format_seconds(self.left_seconds)
        return [
            (
                "calls",
                ", ".join([*ended, f"{self.running:,} running", f"{self.waiting:,} waiting"]),
            ),
            ("time left", left),
            ("workers", ", ".join(workers) if self.max_workers or self.worker_count else None),
            ("slots", self.slots),
        ]

    def _repr_html_(self) -> str:
        titles = ["function", "done", "failed", "retried", "mean", "95 %"]
        return html_table("dispatcher", self.facts(), [titles, *map(_row, self.functions[:10])])


def _row(one: FunctionStatus) -> list[object]:
    times = [one.mean_seconds, one.p95_seconds]
    told = ["-" if time is None else f"{time:.3g} s" for time in times]
    return [one.name, one.done, one.failed, one.retried, *told]


def merged(before: Status, after: Status) -> Status:
    """Return the later status, with the latest events and the left-out counts of both."""
    passed = after.elapsed_seconds - before.elapsed_seconds
    events = [replace(one, seconds_ago=one.seconds_ago + passed) for one in before.events]
    events += after.events
    left_out = Counter(before.left_out) + Counter(after.left_out)
    for one in events[:-MOST_EVENTS]:
        left_out[one.kind] += one.count
    return replace(after, events=events[-MOST_EVENTS:], left_out=dict(left_out))


class GraphNode(Struct, frozen=True):
    """A task that needs others' results, or whose result others need.

    id: its number, with the place of its first call.
    call: the name of that call for people.
    state: `missing` (inputs), `waiting` (for a worker), or `running`.
    after: the ids of the unfinished tasks whose results it needs.
    """

    id: str
    call: str
    function: str
    state: str
    after: Sequence[str] = ()


class GraphFunction(Struct, frozen=True):
    """The tasks of a graph by function name: how many are in each state, and how often they need
    results of other functions.
    """

    name: str
    states: Mapping[str, int]
    after: Mapping[str, int] = {}


class GraphStatus(Struct, frozen=True):
    """The unfinished tasks of a graph: one by one, unless there are too many, and by function. Of
    all `tasks`, the first `looked_at` are described.
    """

    nodes: Sequence[GraphNode] = ()
    functions: Sequence[GraphFunction] = ()
    count: int = 0
    looked_at: int = 0
    tasks: int = 0


def request_words(resources: Resource | None) -> str:
    """Return resources in the form in which people write them; empty for none."""
    words = "" if resources is None else safe_repr(resources)
    return "" if words == "ZERO" else words
