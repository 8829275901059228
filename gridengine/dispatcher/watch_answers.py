"""What a dispatcher answers who watches it, derived from its core when it is asked."""

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
from gridengine.dispatcher.core.call_window import call_window
from gridengine.dispatcher.core.calls import OpenTask
from gridengine.dispatcher.core.events import CancelRequested, DrainHosts, Event
from gridengine.dispatcher.core.graph_view import graph_of
from gridengine.dispatcher.core.state import KEPT_FAILURES, CoreState
from gridengine.dispatcher.core.status import FileFault
from gridengine.dispatcher.core.status_views import call_status, find_calls, status_of
from gridengine.dispatcher.kept_reports import keep
from gridengine.dispatcher.named_calls import NamedCalls
from gridengine.dispatcher.run_directory import python_version
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
    Answer,
    Ended,
    Identity,
    Line,
    Request,
)
from gridengine.dispatcher.watch_server import Follower, WatchStreams
from gridengine.errors import safe_repr
from gridengine.schedulers.detect import this_allocation
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.settings.values import Settings
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.worker.memory_limit import resident_bytes
from gridengine.worker.output_excerpt import OutputExcerpt

if TYPE_CHECKING:
    from gridengine.dispatcher.launcher_thread import LauncherThread
    from gridengine.dispatcher.serving.client_listener import ClientListener
    from gridengine.journal.dispatcher_file import DispatcherFile

log = logging.getLogger("gridengine")

KEPT_SECONDS = 0.5
"""For how long an answer is good for all who ask the same."""
MOST_KEPT = 16
UNIQUE = *ACTS, FOLLOW
"""What is not to be answered with what another was."""
MOST_SAMPLED = 1000
MOST_NODES = 5000
REPORT_SECONDS = 10.0
"""How long a dispatcher must have been there for a report of it to be kept, if no call fails."""
MOST_NAMED = 1000
UNWRITTEN = "what it is to keep stays in memory, and is lost if the process ends before"
MOST_ASKED = 5
"""About how many queued workers the batch system is asked at a time."""


class WatchAnswers:
    """Answers lines of who watches. All methods are for the I/O thread.

    Args:
        post: has an event handled, soon.
        began: when the dispatcher did, in monotonic seconds.
        recent: the last lines of its log, as `EffectPerformer` has them.
        traffic: how many messages workers have sent, and were sent, by kind.
        journal: that of a dispatcher which keeps one.
        listener: what knows its clients in other processes, if it may have any.
        printed: what calls have printed here, if no log has it.
        named: which runs with a name its calls are of.
        clock: that of the I/O thread.
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
        self._allocation = str(this_allocation() or "")  # it may be in a file: not for each answer
        self._kept: dict[bytes, tuple[float, bytes]] = {}
        self.streams = WatchStreams(state.log, self.status)

    @property
    def _identity(self) -> Identity:
        seen = () if self._listener is None else self._listener.seen()
        clients = [(one["script"], one["pid"]) for one in seen if not one["gone"]]
        return replace(self._who, runs=self._named_calls.files(), clients=clients)

    def answer(
        self, line: bytes, follower: Follower | None = None, *, may_act: bool = True
    ) -> bytes:
        """Return the answer to a line, without an end of line: one that was made just now for who
        asked the same. `follower` is who asks, if he can be told more unasked.
        """
        now = self._clock.monotonic()
        made_at, answer = self._kept.get(line, (-math.inf, b""))
        if now - made_at <= KEPT_SECONDS:
            return answer
        try:
            request = msgspec.json.decode(line, type=Request)
            if request.ask in ACTS and not may_act:
                raise PermissionError(f"who may only look may not {request.ask}")
            if request.ask == FOLLOW and follower is not None:
                self.streams.add(follower, request, now)
            answer = msgspec.json.encode(_ANSWERS[request.ask](self, request, now))
        except Exception as error:  # whatever it is, no call is to suffer from it
            log.debug("who watches could not be answered", exc_info=True)
            words = f"cannot be answered: {safe_repr(error)}"
            return msgspec.json.encode(Answer(self._identity, error=words))
        if request.ask not in UNIQUE:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[line] = now, answer
        return answer

    def status(self, request: Request, now: float) -> Answer:
        """Tell all that is asked for now and then."""
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
        return Answer(
            self._identity,
            replace(status, faults=list(self._faults()), allocation=self._allocation),
            [Line(now - at, text, warning) for at, text, warning in self._recent],
            used.ru_utime + used.ru_stime,
            resident_bytes(),
            received={one.__name__: count for one, count in self._received.items()},
            sent={one.__name__: count for one, count in self._sent.items()},
        )

    def _faults(self) -> Iterator[FileFault]:
        """Yield which files of this process, or of its clients, cannot be written."""
        # A process without runs of a name has no such files, and need not import SQLite. To import
        # it at exit would also take away that a Ctrl-C ended the script: CPython forgets so when a
        # text is compiled, as for a named tuple (pythonrun.c, run_eval_code_obj).
        run_file = sys.modules.get("gridengine.journal.run_file")
        used = () if run_file is None else run_file.files_in_use()
        files = [(one.path, one.writer.failure) for one in used]
        if self._journal is not None:
            files.append((self._journal.path, self._journal.failure))
        if self._listener is not None:
            for name, error, client in self._listener.faults():
                yield FileFault(name, error, f"it is of {client}; {UNWRITTEN}")
        for path, failure in files:
            if failure is not None:
                yield FileFault(str(path), str(failure), UNWRITTEN)

    def report(self, request: Request, now: float) -> Answer:
        """Tell all that there is to tell of a run, for a page that can be kept."""
        timeline = [
            Ended(
                one.function,
                f"{one.host} {one.job or one.pid}",
                now - one.ended,
                one.seconds,
                one.calls,
                one.failed,
                one.id,
                one.call,
                one.host,
                one.job,
                one.log,
            )
            for one in self._state.sample.kept
        ]
        said = {name: str(value) for name, value in asdict(self._settings).items()}
        kept = b"" if self._printed is None else self._printed.content()
        printed = kept.decode(errors="replace")
        answer = self.status(request, now)
        return replace(answer, timeline=timeline, settings=said, printed=printed)

    def record(self) -> bytes:
        """Return what is left of this run when its process is killed."""
        return msgspec.json.encode(self._identity)

    def leave_report(self) -> None:
        """Write down how the run was, for `gridengine report`, if calls ran for long enough, or
        have failed.
        """
        now, state = self._clock.monotonic(), self._state
        if not (state.failed or (state.done and now - self._began >= REPORT_SECONDS)):
            return
        answer = self.report(Request(REPORT, MOST_SAMPLED), now)
        keep(self._identity.run_id, msgspec.json.encode(answer), int(self._settings.keep_reports))

    def ask_reasons(self, request: Request, now: float) -> Answer:
        """Have the batch system asked what queued workers wait for; the answers come into the
        status.
        """
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
        return Answer(self._identity)

    def name_calls(self, request: Request, now: float) -> Answer:
        """Tell of the calls that are named."""
        named = self._named(request.words)
        told = [call_status(self._state, one, index, now) for one, index in named[:MOST_NAMED]]
        return Answer(self._identity, calls=told, count=len(named))

    def window(self, request: Request, now: float) -> Answer:
        """Tell some of the calls that have not ended."""
        most = min(max(request.most, 0), MOST_SAMPLED)
        calls, count = call_window(self._state, request.first, most, now)
        return Answer(self._identity, calls=calls, count=count)

    def graph(self, request: Request, now: float) -> Answer:
        """Tell which calls need each other's results, and the functions' counts with them."""
        made = graph_of(self._state, min(max(request.most, 0), MOST_NODES))
        return replace(self.status(Request(STATUS, KEPT_FAILURES), now), graph=made)

    def cancel(self, request: Request, now: float) -> Answer:
        """Have the calls that are named ended, or all; of one run alone if one is named."""
        if not request.words:
            self._state.open_all()
            left = [one for one in self._state.open_tasks.values() if self._is_of(one, request.run)]
            self._post(CancelRequested([one.task.id for one in left], signal.SIGTERM))
            return Answer(self._identity, count=sum(one.unsettled for one in left))
        calls = [
            (one.task.id, index, index + 1)
            for one, index in self._named(request.words)
            if not one.is_settled(index) and self._is_of(one, request.run)
        ]
        self._post(CancelRequested((), signal.SIGTERM, calls))
        return Answer(self._identity, count=len(calls))

    def _is_of(self, one: OpenTask, run: str) -> bool:
        return not run or self._named_calls.has(run, one.task.submitter)

    def drain(self, request: Request, now: float) -> Answer:
        """Have workers leave when they have done what they are at."""
        hosts = frozenset(request.words)
        count = sum(one.hello.host in hosts for one in self._state.workers.values())
        self._post(DrainHosts(hosts))
        return Answer(self._identity, count=count)

    def _named(self, words: Sequence[str]) -> list[tuple[OpenTask, int]]:
        return [found for word in words[:MOST_NAMED] for found in find_calls(self._state, word)]


_ANSWERS: Mapping[str, Callable[[WatchAnswers, Request, float], Answer]] = {
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
    """Return who a dispatcher of this process is, that has begun then; what it has no words for is
    called as this process's script.
    """
    script = script or _script()
    return Identity(
        name or (Path(script).name if script else "python"),
        run_id,
        os.getpid(),
        socket.gethostname(),
        script,
        _directory(),
        since,
        scheduler,
        __version__,
        python_version(),
        str(folder) if folder != Path() else "",
    )


def _script() -> str:
    """Return what this process runs: the path of its script, say; empty for a prompt, and for a
    program of this package.
    """
    program = sys.argv[0] if sys.argv else ""
    if "ipykernel" in program:
        return os.environ.get("JPY_SESSION_NAME", "") or "notebook"
    ours = Path(program).is_relative_to(Path(__file__).parents[1])
    if ours or program in ("", "-c", "-"):
        return ""
    path = Path(program)
    return str(path.absolute()) if path.exists() else program


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it has been removed
        return ""
