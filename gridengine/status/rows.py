"""The status of a dispatcher, as watchers are sent it: plain data that become JSON.

Times are seconds. The time of an event is given as seconds ago, since only the dispatcher's process
knows its clock. Where there is much of a kind, there is a sample, and the whole number beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gridengine.display import html_table
from gridengine.errors import safe_repr
from gridengine.resources.base import Resource
from gridengine.resources.units import format_seconds
from gridengine.status.watch_events import MOST_EVENTS, WatchEvent


class FunctionStatus(Struct, frozen=True):
    """The calls of functions of one name, since the dispatcher began.

    done, failed, retried: calls that ended with a value, or otherwise; attempts that another
    followed. waiting, running: calls that no worker has yet, also for want of results; calls that
    one has. mean_seconds, p95_seconds: how long one took, and all but 5 % at most, None while none
    has ended; quicker ones count as a millisecond. peak_memory, asked_memory: the most that a
    process had, and that a call asked for, in bytes, 0 if unknown. grown_memory: by how many bytes
    a process grew from call to call. histogram: (upper bound in seconds, calls) for calls over a
    millisecond.
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


class QueueStatus(Struct, frozen=True):
    """The calls of one demand: how many wait, how many workers have, and for how many there are
    slots. `launches`: by whom workers for them are requested. `command`: if no worker holds them
    and somebody has to start one by hand, the command for that, or empty; else None.
    """

    request: str
    waiting: int
    running: int
    slots: int
    launches: str = ""
    command: str | None = None


class LaunchStatus(Struct, frozen=True):
    """The workers for one request: those there are, and those that were asked for.

    request, label: what they hold, and the calls they were last asked for.
    workers, idle: how many are connected, and of them have nothing to do.
    requested: how many the scheduler was asked for and has not answered.
    queued, starting: of those that it has launched, how many wait in its queue, and how many run
        and have not connected yet.
    job, job_state, job_seconds, log: the first of them, as the batch system calls it, its state,
        for how long it has been known, and its log.
    reason: what keeps them from starting, in the batch system's words. unanswered: what keeps one
        that runs from connecting, in its own.
    failures: how many in a row ended before they connected. held_back_seconds: for how long no more
        are asked for, since something went wrong.
    waited_seconds: for how long calls have waited while there was no worker.
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


class WorkerStatus(Struct, frozen=True):
    """A connected worker.

    id: unique among them. job, log: as the batch system has it; empty on this machine. phase:
    `idle`, `busy`, `silent`, `stopping`. since_seconds, heard_seconds: how long ago it connected,
    and was heard last. left_seconds: after how long it leaves, None without a limit. slots, taken:
    how many calls it runs at a time, and was assigned in its life. running, queued, waiting: calls
    that its runners are at, that wait for a runner, and that wait for their children. request: what
    it was requested with.

    load, memory, runners: the machine's load, the bytes of the agent and its runners, and their
    number; None until it has said so. processor: how many processors its runners used in their last
    seconds, without the programs that calls start; None until it has said so, and while there are
    very many. agent_processor: the same of the agent; None where it is part of the dispatcher's
    process. clock_ahead: by how many seconds its machine's clock is ahead of the dispatcher's, to
    some tenths. suspended: whether the scheduler says that its job, or its process, is suspended.
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


class RunStatus(Struct, frozen=True):
    """Calls of a task that a worker has.

    id: the task's number, and the first unsettled call. call: what people call that. calls: how
    many are unsettled. seconds: since the last of them ended, or they were assigned. attempt,
    attempts: which attempt it is, of how many. limit: the seconds that each may take, or None.
    late: they take longer than expected. waits: for their children. history: how earlier attempts
    ended. arguments: the pickled calls, if short, and the call's place among them. memory: the
    bytes of its process; 0 if unknown.
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
    history: Sequence[str] = ()
    arguments: bytes = b""
    place: int = 0
    form: int = 0
    memory: int = 0


class FailureStatus(Struct, frozen=True):
    """Calls that ended without a value.

    error, hint: the kind of error with its words, and what to try, if the dispatcher knows them;
    else `exception` is the beginning of the pickled one. seconds_ago, seconds: when it ended, and
    how long its last attempt took. cancelled: somebody ended it.
    """

    id: str
    call: str
    function: str
    calls: int
    seconds_ago: float
    error: str = ""
    exception: bytes = b""
    host: str = ""
    job: str = ""
    log: str = ""
    seconds: float | None = None
    attempts: int = 0
    peak_memory: int = 0
    cancelled: bool = False
    history: Sequence[str] = ()
    arguments: bytes = b""
    place: int = 0
    form: int = 0
    hint: str = ""


class CallStatus(Struct, frozen=True):
    """One unsettled call, or one of a task that has unsettled calls.

    state: `waiting` in a queue or for `missing` results, `running`, or `ended`. since_seconds:
    since it was submitted. request, waiting: what it asks for, and how many calls wait for the
    same. attempts: how many it may have. history: how the ended ones did. arguments, place, form:
    see `RunStatus`.
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
    history: Sequence[str] = ()
    arguments: bytes = b""
    place: int = 0
    form: int = 0


class FileFault(Struct, frozen=True):
    """A file or folder of a dispatcher or run that cannot be written: why, and what is lost by
    that.
    """

    path: str
    error: str
    loss: str


class Status(Struct, frozen=True):
    """A dispatcher's core at one moment.

    elapsed_seconds: since it began. left_seconds: an estimate of when all calls will have ended,
        None while nothing is known.
    waiting, running, done, failed, retried: calls, as in `Snapshot`. blocked: all that is open
        needs results that no call of this dispatcher makes.
    statuses: workers by what they do, as in `Snapshot`. submitters: who has calls here.
    max_workers, slots: how many workers it starts at most, and how many calls each runs at a time;
        where they are `local`, all processes of this machine are one worker's.
    workers, runs, failures: samples, of `worker_count`, `run_count` (those that wait at workers
        included) and `failed`. worker_slots: how many calls all workers that are heard of run at a
        time.
    faults: what cannot be written at this moment, as its process and who asks know of it.
    allocation: the cores of the batch job that its process runs in, in words; empty in none.
    events: what has happened since who follows was told last, in order; of much of one kind at a
        time a sample. left_out: by kind, how many more calls or workers it has happened to.
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
    workers: Sequence[WorkerStatus] = ()
    run_count: int = 0
    runs: Sequence[RunStatus] = ()
    failures: Sequence[FailureStatus] = ()
    faults: Sequence[FileFault] = ()
    allocation: str = ""
    events: Sequence[WatchEvent] = ()
    left_out: Mapping[str, int] = {}

    @property
    def room(self) -> int:
        """The scheduler's `max_workers=`, as its user has said it: of local processes how many run
        calls at a time.
        """
        return self.max_workers * self.slots if self.local else self.max_workers

    @property
    def worker_words(self) -> str:
        """How many workers there are, and may be."""
        if not self.max_workers:
            return f"{self.worker_count:,} started by hand"
        most = f", max_workers={self.room} here" if self.local else f" of at most {self.room:,}"
        return f"{self.worker_count:,}{most}"

    def facts(self) -> list[tuple[str, object]]:
        """Return the most important figures as (label, words)."""
        ended = [f"{self.done:,} done", f"{self.failed:,} failed"]
        ended += [f"{self.retried:,} retried"] * bool(self.retried)
        workers = [self.worker_words]
        workers += [f"{count:,} {what}" for what, count in self.statuses.items() if count]
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
    """Return the later status with the last events and all left-out counts of both."""
    passed = after.elapsed_seconds - before.elapsed_seconds
    events = [replace(one, seconds_ago=one.seconds_ago + passed) for one in before.events]
    events += after.events
    left_out = Counter(before.left_out) + Counter(after.left_out)
    for one in events[:-MOST_EVENTS]:
        left_out[one.kind] += one.count
    return replace(after, events=events[-MOST_EVENTS:], left_out=dict(left_out))


class GraphNode(Struct, frozen=True):
    """A task that needs others' results, or whose result others need.

    id: its number, with the place of its first call. call: how people call that. state: `missing`
    (inputs), `waiting` (for a worker), or `running`. after: the ids of the unfinished tasks whose
    results it needs.
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
    """The unfinished tasks of a graph: one by one, unless there are too many, and by function.
    looked_at, tasks: how many of all tasks this is about.
    """

    nodes: Sequence[GraphNode] = ()
    functions: Sequence[GraphFunction] = ()
    count: int = 0
    looked_at: int = 0
    tasks: int = 0


def request_words(resources: Resource | None) -> str:
    """Return resources as people write them; empty for none."""
    words = "" if resources is None else safe_repr(resources)
    return "" if words == "ZERO" else words
