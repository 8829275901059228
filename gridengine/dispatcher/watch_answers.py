"""A dispatcher's answers to watchers, derived from its core when somebody asks."""

from __future__ import annotations

import logging
import math
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import asdict, replace

from gridengine._version import __version__
from gridengine.dispatcher.call_selection import NamedCalls
from gridengine.dispatcher.core.calls import OpenTask
from gridengine.dispatcher.core.events import DrainHosts, Event
from gridengine.dispatcher.core.state import MOST_FAILURES, CoreState
from gridengine.dispatcher.run_reports import write_report
from gridengine.dispatcher.status_views import call_status, find_calls, status_of
from gridengine.dispatcher.task_views import call_window, graph_of
from gridengine.dispatcher.watch_messages import (
    ACTS,
    CALLS,
    CANCEL,
    DRAIN,
    FOLLOW,
    GRAPH,
    REASONS,
    REPORT,
    STATUS,
    WINDOW,
    Identity,
    Line,
    WatchAnswer,
    WatchRequest,
)
from gridengine.dispatcher.watch_server import Follower, WatchStreams
from gridengine.errors import safe_repr
from gridengine.output.stream_writer import OutputExcerpt
from gridengine.requests import TasksCancelled
from gridengine.schedulers.detect import this_allocation
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.serialize.byte_code import PYTHON
from gridengine.settings.values import Settings
from gridengine.status.rows import FileFault
from gridengine.system import resident_bytes
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.processes import program

if TYPE_CHECKING:
    from gridengine.dispatcher.launcher_thread import LauncherThread
    from gridengine.dispatcher.serving.client_listener import ClientListener
    from gridengine.journal.dispatcher_file import DispatcherFile

log = logging.getLogger("gridengine")

FRESH_SECONDS = 0.5
"""An answer is used again for this long if somebody asks the same."""
MOST_FRESH = 16
UNIQUE = *ACTS, FOLLOW
"""Requests whose answers are not used again."""
MOST_SAMPLED = 1000
MOST_NODES = 5000
REPORT_SECONDS = 10.0
"""A dispatcher leaves a report if it ran for at least this long, or if a call failed."""
MOST_NAMED = 1000
UNWRITTEN = "unwritten data stays in memory, and is lost if the process ends before"
MOST_ASKED = 5
"""The batch system is asked about at most this many queued workers at a time."""


class WatchAnswers:
    """Answers lines of watchers. All methods are for the I/O thread.

    Args:
        state: the core's.
        launcher: asks the batch system why workers wait.
        recent: the latest lines of the log, see `EffectPerformer.recent`.
        traffic: how many messages workers have sent, and were sent, by kind.
        settings: shown in reports.
        post: has an event handled soon.
        began: when the dispatcher began, in monotonic seconds.
        listener: the end of clients in other processes, if there may be any.
        printed: the output of calls, if no log has it.
    """

    def __init__(
        self,
        state: CoreState,
        launcher: LauncherThread,
        recent: Iterable[tuple[float, str, bool]],
        identity: Identity,
        *,
        traffic: tuple[Mapping[type, int], Mapping[type, int]],
        settings: Settings,
        post: Callable[[Event], None],
        began: float,
        journal: DispatcherFile | None = None,
        listener: ClientListener | None = None,
        printed: OutputExcerpt | None = None,
        named: NamedCalls | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._journal = journal
        self._listener = listener
        self._printed = printed
        self._settings = settings
        self._post = post
        self._state = state
        self._launcher = launcher
        self._recent = recent
        self._who = identity
        self._named_calls = named or NamedCalls()
        self._began = began
        self._received, self._sent = traffic
        self._allocation = str(this_allocation() or "")  # read once, because it may be in a file
        self._fresh: dict[bytes, tuple[float, bytes]] = {}
        self._asked = False
        """Whether somebody has asked anything."""
        self.streams = WatchStreams(state.log, self.status)

    @property
    def _identity(self) -> Identity:
        seen = () if self._listener is None else self._listener.seen()
        clients = [(one["script"], one["pid"]) for one in seen if not one["gone"]]
        return replace(self._who, runs=self._named_calls.files(), clients=clients)

    def answer(
        self, line: bytes, follower: Follower | None = None, *, may_act: bool = True
    ) -> bytes:
        """Return the answer to a line, without a line end. An answer that was made just now for the
        same request is used again. `follower` is the asker, if it can receive further answers.
        """
        self._asked, now = True, self._clock.monotonic()
        made_at, answer = self._fresh.get(line, (-math.inf, b""))
        if now - made_at <= FRESH_SECONDS:
            return answer
        try:
            request = msgspec.json.decode(line, type=WatchRequest)
            if request.ask in ACTS and not may_act:
                raise PermissionError(f"a watcher may not {request.ask}")
            if request.ask == FOLLOW and follower is not None:
                self.streams.add(follower, request, now)
            answer = msgspec.json.encode(_ANSWERS[request.ask](self, request, now))
        except Exception as error:  # an exception here would end the I/O thread
            log.debug("a watcher could not be answered", exc_info=True)
            words = f"cannot be answered: {safe_repr(error)}"
            return msgspec.json.encode(WatchAnswer(self._identity, error=words))
        if request.ask not in UNIQUE:
            if len(self._fresh) >= MOST_FRESH:
                self._fresh.clear()
            self._fresh[line] = now, answer
        return answer

    def status(self, request: WatchRequest, now: float) -> WatchAnswer:
        """Return the status, with the log's latest lines and the process's own figures."""
        most = min(max(request.most, 0), MOST_SAMPLED)
        used = resource.getrusage(resource.RUSAGE_SELF)
        status = status_of(
            self._state,
            self._began,
            now,
            most=most,
            epoch=time.time() - now,
            names=request.words[:MOST_NAMED],
        )
        return WatchAnswer(
            identity=self._identity,
            status=replace(status, faults=list(self._faults()), allocation=self._allocation),
            lines=[Line(now - at, text, warning) for at, text, warning in self._recent],
            cpu_seconds=used.ru_utime + used.ru_stime,
            memory=resident_bytes(),
            received={one.__name__: count for one, count in self._received.items()},
            sent={one.__name__: count for one, count in self._sent.items()},
        )

    def _faults(self) -> Iterator[FileFault]:
        """Yield the files that this process, or one of its clients, cannot write."""
        # A process without named runs has no such files, and need not import SQLite. Importing it
        # at exit would also make Python forget that a Ctrl-C ended the script: CPython does so when
        # a text is compiled, as for a named tuple (pythonrun.c, run_eval_code_obj).
        run_file = sys.modules.get("gridengine.journal.run_file")
        used = () if run_file is None else run_file.files_in_use()
        files = [(one.path, one.writer.failure) for one in used]
        if self._journal is not None:
            files.append((self._journal.path, self._journal.failure))
        if self._listener is not None:
            for name, error, client in self._listener.faults():
                yield FileFault(name, error, f"the file belongs to {client}; {UNWRITTEN}")
        for path, failure in files:
            if failure is not None:
                yield FileFault(str(path), str(failure), UNWRITTEN)

    def report(self, request: WatchRequest, now: float) -> WatchAnswer:
        """Return everything that is known of a run, for a report that is stored."""
        timeline = [replace(one, seconds_ago=now - at) for at, one in self._state.sample.calls]
        said = {name: str(value) for name, value in asdict(self._settings).items()}
        output = b"" if self._printed is None else self._printed.content()
        printed = output.decode(errors="replace")
        answer = self.status(request, now)
        return replace(answer, timeline=timeline, settings=said, printed=printed)

    def record(self) -> bytes:
        """Return the facts that stay on disk if the process of this run is killed."""
        return msgspec.json.encode(self._identity)

    def leave_report(self) -> None:
        """Store a report of the run, for `gridengine report`, if a call failed, if the dispatcher
        ran for long enough, if somebody watched, or if workers have left logs.
        """
        now, state = self._clock.monotonic(), self._state
        matters = self._asked or self._who.folder or now - self._began >= REPORT_SECONDS
        if not (state.failed or state.cancelled or (state.done and matters)):
            return
        answer = self.report(WatchRequest(REPORT, MOST_SAMPLED), now)
        write_report(
            self._identity.run_id, msgspec.json.encode(answer), int(self._settings.keep_reports)
        )

    def ask_reasons(self, request: WatchRequest, now: float) -> WatchAnswer:
        """Ask the batch system why queued workers wait. Its answers go into the status."""
        queued = [
            next(
                (one for one in each.expected.values() if one.state is WorkerStatus.QUEUED),
                None,
            )
            for each in self._state.provisioners.values()
        ]
        for launch in [one for one in queued if one is not None][:MOST_ASKED]:
            seconds = now - launch.launched_at
            self._launcher.explain([launch.handle], seconds, level=logging.DEBUG)
        return WatchAnswer(self._identity)

    def name_calls(self, request: WatchRequest, now: float) -> WatchAnswer:
        """Return the calls that the request names."""
        named = self._named(request.words)
        told = [call_status(self._state, one, index, now) for one, index in named[:MOST_NAMED]]
        return WatchAnswer(self._identity, calls=told, count=len(named))

    def window(self, request: WatchRequest, now: float) -> WatchAnswer:
        """Return a window of the calls that have not ended."""
        most = min(max(request.most, 0), MOST_SAMPLED)
        calls, count = call_window(self._state, request.first, most, now)
        return WatchAnswer(self._identity, calls=calls, count=count)

    def graph(self, request: WatchRequest, now: float) -> WatchAnswer:
        """Return the calls that need each other's results, and the counts of their functions."""
        made = graph_of(self._state, min(max(request.most, 0), MOST_NODES))
        return replace(self.status(WatchRequest(STATUS, MOST_FAILURES), now), graph=made)

    def cancel(self, request: WatchRequest, now: float) -> WatchAnswer:
        """End the calls that the request names, or all calls; with a run, only calls of that named
        run or client.
        """
        if not request.words:
            left = [one for one in self._state.open_tasks.values() if self._is_of(one, request.run)]
            self._post(TasksCancelled([one.id for one in left], signal.SIGTERM))
            return WatchAnswer(self._identity, count=sum(one.unsettled for one in left))
        calls = [
            (one.id, index, index + 1)
            for one, index in self._named(request.words)
            if not one.is_settled(index) and self._is_of(one, request.run)
        ]
        self._post(TasksCancelled((), signal.SIGTERM, calls))
        return WatchAnswer(self._identity, count=len(calls))

    def _is_of(self, one: OpenTask, run: str) -> bool:
        return not run or self._named_calls.has(run, one.options.submitter)

    def drain(self, request: WatchRequest, now: float) -> WatchAnswer:
        """Let the workers on these hosts leave when the calls that they run have ended."""
        hosts = frozenset(request.words)
        count = sum(one.hello.host in hosts for one in self._state.workers.values())
        self._post(DrainHosts(hosts))
        return WatchAnswer(self._identity, count=count)

    def _named(self, words: Sequence[str]) -> list[tuple[OpenTask, int]]:
        return [found for word in words[:MOST_NAMED] for found in find_calls(self._state, word)]


_ANSWERS: Mapping[str, Callable[[WatchAnswers, WatchRequest, float], WatchAnswer]] = {
    STATUS: WatchAnswers.status,
    REASONS: WatchAnswers.ask_reasons,
    REPORT: WatchAnswers.report,
    CALLS: WatchAnswers.name_calls,
    CANCEL: WatchAnswers.cancel,
    DRAIN: WatchAnswers.drain,
    WINDOW: WatchAnswers.window,
    GRAPH: WatchAnswers.graph,
    FOLLOW: WatchAnswers.status,
}


def identity_here(
    run_id: str, scheduler: str, folder: Path, since: float, name: str, script: str
) -> Identity:
    """Return the identity of a dispatcher in this process that began at `since`. Without a name or
    script it is called after this process's script.
    """
    script = script or _script()
    return Identity(
        name=name or (Path(script).name if script else "python"),
        run_id=run_id,
        pid=os.getpid(),
        host=socket.gethostname(),
        script=script,
        directory=_directory(),
        since=since,
        scheduler=scheduler,
        version=__version__,
        python=PYTHON,
        folder=str(folder) if folder != Path() else "",
    )


def _script() -> str:
    """Return the path of this process's script; empty for a prompt or a program of this package."""
    script = program()
    if "ipykernel" in script:
        return os.environ.get("JPY_SESSION_NAME", "") or "notebook"
    ours = Path(script).is_relative_to(Path(__file__).parents[1])
    if ours or script in ("", "-c", "-"):
        return ""
    path = Path(script)
    return str(path.absolute()) if path.exists() else script


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it has been removed
        return ""
