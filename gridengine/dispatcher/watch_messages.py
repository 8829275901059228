"""What who watches a dispatcher asks of it, and is answered: lines of JSON on its Unix socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gridengine.dispatcher.core.graph_view import GraphStatus
from gridengine.dispatcher.core.status import CallStatus, Status

PROTOCOL = 1
STATUS, REASONS, CALLS, CANCEL, DRAIN = "status", "reasons", "calls", "cancel", "drain"
REPORT, WINDOW, GRAPH, FOLLOW = "report", "window", "graph", "follow"
ACTS = CANCEL, DRAIN
"""What changes something: who may only look may not ask for it."""


class Request(Struct, frozen=True, omit_defaults=True):
    """One line to a dispatcher.

    ask: `status`, of those workers and calls alone that are on hosts, at workers, of cluster jobs
        or functions that `words` name; `report`: the same, with a timeline, the settings and what
        calls have printed;
        `reasons`: have the batch system asked what queued workers wait for; `calls`: those that
        `words` name; `cancel`: end these, or without words all; `drain`: have the workers on the
        hosts that `words` name leave when what they run has ended; `window`: the calls that have
        not ended, as submitted, from the `first` on; `graph`: the calls that need each other's
        results; `follow`: the status, now and then unasked, with what has happened since; who
        follows already follows this instead.
    most: how many workers, runs and failures, or calls or nodes, are wanted at most, each.
    interval: seconds between two that are unasked.
    run: the run with a name, or the client, whose calls alone are cancelled; empty is all.
    """

    ask: str
    most: int = 100
    words: Sequence[str] = ()
    first: int = 0
    interval: float = 1.0
    run: str = ""


class Identity(Struct, frozen=True):
    """Which dispatcher it is.

    name: as its user calls it, or its script's file name. since: when it began, in seconds of the
    epoch. folder: that of its logs; empty where there are none. runs: the runs with a name whose
    calls it runs or has run, each with its file, as far as that is known. home, clients: of one
    that stands alone its folder, and the scripts and processes that are its clients.
    """

    name: str
    run_id: str
    pid: int
    host: str
    script: str
    directory: str
    since: float
    scheduler: str
    version: str
    python: str
    folder: str = ""
    protocol: int = PROTOCOL
    runs: Mapping[str, str] = {}
    home: str = ""
    clients: Sequence[tuple[str, int]] = ()


class Line(Struct, frozen=True):
    """What the log has told."""

    seconds_ago: float
    text: str
    warning: bool = False


class Ended(Struct, frozen=True):
    """Calls that have ended: of which function, at which worker, how long ago, how long they took,
    how many they were, and whether the only one has failed. id, call: of the first, as those of a
    `RunStatus`; host, job, log: of the worker, as those.
    """

    function: str
    worker: str
    seconds_ago: float
    seconds: float
    calls: int = 1
    failed: bool = False
    id: str = ""
    call: str = ""
    host: str = ""
    job: str = ""
    log: str = ""


class Answer(Struct, frozen=True):
    """One line of a dispatcher: who it is, its core, the last lines of its log, and its process:
    for how long it has used a processor, in seconds, and its memory, in bytes. With `error` the
    request was refused. `calls` and `count`: those that were named, and of how many calls, or
    workers, something was asked; or those of a window, and how many there are in all. `timeline`:
    an even sample of the calls that have ended, the oldest first; `settings`: as texts. `received`
    and `sent`: how many messages workers have sent, and were sent, by kind; several travel as one.
    `printed`: the first and the last of what calls have printed, where no log has it. `killed`: its
    process was, and no more is known of it than who it was.
    """

    identity: Identity
    status: Status = Status()
    lines: Sequence[Line] = ()
    cpu_seconds: float = 0.0
    memory: int = 0
    calls: Sequence[CallStatus] = ()
    count: int = 0
    timeline: Sequence[Ended] = ()
    settings: Mapping[str, str] = {}
    received: Mapping[str, int] = {}
    sent: Mapping[str, int] = {}
    graph: GraphStatus | None = None
    printed: str = ""
    error: str = ""
    killed: bool = False
