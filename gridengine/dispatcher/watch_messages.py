"""The requests of watchers, and a dispatcher's answers: lines of JSON on its Unix socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gridengine.status.figures import EndedCall
from gridengine.status.rows import CallStatus, GraphStatus, Status
from gridengine.wire.messages.common import VERSION

STATUS, REASONS, CALLS, CANCEL, DRAIN = "status", "reasons", "calls", "cancel", "drain"
REPORT, WINDOW, GRAPH, FOLLOW = "report", "window", "graph", "follow"
ACTS = CANCEL, DRAIN
"""The requests that change something. Over TCP, clients may make them, but watchers may not."""


class WatchRequest(Struct, frozen=True, omit_defaults=True):
    """One line to a dispatcher.

    ask: one of these.
        `status`: the status; with `words`, only of workers and calls on these hosts, at these
            workers, of these cluster jobs or functions.
        `report`: the status with a timeline, the settings, and the output of calls.
        `reasons`: ask the batch system why queued workers wait.
        `calls`: the calls that `words` name.
        `cancel`: end the calls that `words` name, or without words all calls.
        `drain`: let the workers on the hosts in `words` leave when the calls that they run have
            ended.
        `window`: the calls that have not ended, in the order of submission, from number `first` on.
        `graph`: the calls that need each other's results.
        `follow`: the status again and again, each time with the events since. It replaces an
            earlier `follow` of the same connection.
    most: the answer may list this many workers, runs, failures, calls and nodes, each.
    interval: the seconds between two answers to `follow`.
    run: the named run, or the client, to whose calls `cancel` is limited; empty is all.
    """

    ask: str
    most: int = 100
    words: Sequence[str] = ()
    first: int = 0
    interval: float = 1.0
    run: str = ""


class Identity(Struct, frozen=True):
    """The identity of a dispatcher.

    name: as its user calls it, or its script's file name.
    since: when it began, in seconds since 1970.
    folder: of its logs; empty if there are none.
    runs: the named runs whose calls it runs or has run, each with its file, as far as known.
    home: the folder of a stand-alone dispatcher.
    clients: the scripts and process ids of its clients.
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
    protocol: int = VERSION
    runs: Mapping[str, str] = {}
    home: str = ""
    clients: Sequence[tuple[str, int]] = ()


class Line(Struct, frozen=True):
    """A line of the log."""

    seconds_ago: float
    text: str
    warning: bool = False


class WatchAnswer(Struct, frozen=True):
    """One line from a dispatcher.

    lines: the latest lines of its log.
    cpu_seconds, memory: the processor time of its process, in seconds, and its memory, in bytes.
    calls: the calls that the request names, or of the window.
    count: how many calls, or workers, the request affects; for a window, how many calls there are
    in all.
    timeline: an even sample of the calls that have ended, the oldest first.
    settings: as texts.
    received, sent: how many messages workers have sent, and were sent, by kind; one message may
    carry several.
    printed: the beginning and the end of the output of calls, if no log has it.
    killed: the dispatcher's process was killed, and only its identity is known.
    error: why the request was refused; empty if it was not.
    """

    identity: Identity
    status: Status = Status()
    lines: Sequence[Line] = ()
    cpu_seconds: float = 0.0
    memory: int = 0
    calls: Sequence[CallStatus] = ()
    count: int = 0
    timeline: Sequence[EndedCall] = ()
    settings: Mapping[str, str] = {}
    received: Mapping[str, int] = {}
    sent: Mapping[str, int] = {}
    graph: GraphStatus | None = None
    printed: str = ""
    error: str = ""
    killed: bool = False
