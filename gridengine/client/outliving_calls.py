"""Calls of named runs that were handed to stand-alone dispatchers. They go on when the process that
has the run is gone. The next process that has the run takes over their outcomes.

Calls without a result are either in the hands of a script that has the run, or of such dispatchers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gridengine.calls.outstanding import Left
from gridengine.client.connect import dispatcher_of
from gridengine.client.outcomes import name_arguments
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, DispatcherState
from gridengine.display import plural
from gridengine.errors import Cancelled, GridEngineError, JournalError
from gridengine.journal import run_reader
from gridengine.journal.handed_calls import (
    forget_handed,
    handed_calls,
    handed_to,
    origin,
    places_of,
)
from gridengine.journal.lock_file import read_holder
from gridengine.journal.run_file import (
    LOCK,
    SUFFIX,
    RunFile,
    files_in_use,
    leave,
    open_run,
    release,
)
from gridengine.journal.run_reader import RunSummary
from gridengine.journal.writer import JournalWriter
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.wire.messages import ClientWelcome

if TYPE_CHECKING:  # it imports ZeroMQ, and most commands need none
    from gridengine.calls.remote import RemoteDispatcher

log = logging.getLogger("gridengine")

MOST_LEFT = 32
"""Messages with outcomes are written in groups of at most this many."""


def place_of_run(
    file: RunFile, client: RemoteScheduler, *, anew: bool = False
) -> tuple[RemoteScheduler, str]:
    """Return the scheduler for the calls of a run that must go on without this process, shared by
    all users of the run's file, and the identity of its dispatcher. The file closes the scheduler.
    If the run's file cannot be written, return the client itself and an empty identity.

    Before this returns, the outcomes that earlier processes have left are in the file. It waits for
    calls that still run, or with `anew` ends them.

    Raises:
        ConfigurationError, DispatcherGone: the dispatcher cannot be reached, or has ended.
    """
    with file.clients_lock:
        place = file.clients.get(client.path)
        if place is None:
            name = origin(file)
            if not name:
                return client, ""
            if anew:
                with client.leaving_as(name) as others:
                    dispatcher_of(others)
            place = client.leaving_as(name)
            take_left(file, place)
            file.clients[client.path] = place
            dispatcher = cast("RemoteDispatcher", dispatcher_of(place))
            dispatcher.file_fault = partial(_fault_of, str(file.path), file.writer)
        made = cast(RemoteScheduler, place)
        return made, cast("RemoteDispatcher", dispatcher_of(made)).identity


def _fault_of(path: str, writer: JournalWriter) -> tuple[str, str]:
    failure = writer.failure
    return ("", "") if failure is None else (path, str(failure))


def take_left(file: RunFile, place: RemoteScheduler, *, wait: bool = True) -> bool:
    """Write the outcomes that earlier processes have left at a dispatcher to the file of their run:
    all of them, or without `wait` those that have arrived by now. If they cannot be written, they
    stay at the dispatcher. Return whether there is more to come.

    Raises:
        JournalError: they cannot be written.
        DispatcherGone: the dispatcher has ended meanwhile.
    """
    dispatcher = cast("RemoteDispatcher", dispatcher_of(place))
    try:
        return _LeftCalls(file, dispatcher).take(wait=wait)
    except BaseException:
        dispatcher.close(detach=True)
        raise


def flush_handed(client: RemoteScheduler, timeout: float | None = None) -> bool:
    """Write which calls of named runs were handed in, for the process that takes over their
    outcomes. Return whether that is durable, within `timeout` seconds for each run if given.
    """
    # A list, so that all files are flushed even if one fails.
    flushed = [file.writer.flush(timeout) for file in _files_of(client)]
    return all(flushed)


def leave_runs(client: RemoteScheduler) -> None:
    """Leave the calls of named runs to the dispatcher, and the runs to the next process that opens
    them.
    """
    files = _files_of(client)
    for place in client.of_runs:
        cast("RemoteDispatcher", dispatcher_of(place)).close(detach=True)
    for file in files:
        if len(file.clients) == 1:  # otherwise another dispatcher still runs calls of it
            leave(file)


def _files_of(client: RemoteScheduler) -> list[RunFile]:
    return [file for file in files_in_use() if file.clients.get(client.path) in client.of_runs]


class _LeftCalls:
    """The outcomes that a dispatcher has of a run's earlier processes."""

    def __init__(self, file: RunFile, dispatcher: RemoteDispatcher) -> None:
        self._file = file
        self._dispatcher = dispatcher
        self._handed = handed_calls(file, dispatcher.identity)
        self._written: list[Left] = []
        self._owed = self._ready = self._taken = 0
        """How many tasks, and how many waiting messages, are still to come; how many results have
        been taken.
        """

    def take(self, *, wait: bool) -> bool:
        """Write the outcomes, and have the dispatcher delete them; return whether there is more to
        come.
        """
        self._begin(self._next())
        if wait and self._owed:
            log.info("%s: waiting for calls that an earlier process has handed in", self._file.what)
        while self._owed and (wait or self._ready > 0):
            self._begin(self._next())
        self._finish()
        if not self._owed:
            forget_handed(self._file, self._dispatcher.identity)
        if self._taken:
            what, taken = self._file.what, plural(self._taken, "result")
            log.info("%s: %s of an earlier process taken from the dispatcher", what, taken)
        return self._owed > 0

    def _next(self) -> ClientWelcome | Left:
        left = self._dispatcher.left
        if self._written and (left.empty() or len(self._written) >= MOST_LEFT):
            self._finish()
        found = left.get()
        if isinstance(found, GridEngineError):
            raise found
        return found

    def _begin(self, found: ClientWelcome | Left) -> None:
        """Take a welcome, which says how much is left, or a message with outcomes, which are added
        to the file. Cancelled calls have no outcome.
        """
        if isinstance(found, ClientWelcome):
            self._owed, self._ready = found.owed, found.ready
            return
        self._ready -= 1
        for event in found.outcomes:
            self._owed -= event.last
            if event.recalled or isinstance(event.error, Cancelled):
                continue
            name_arguments(event)
            for place in places_of(self._handed.get(event.task, ()), event.start, event.stop):
                self._file.add_result(place, event.payload, event.error, raised=event.raised)
                self._taken += place[2] - place[1]
        self._written.append(found)

    def _finish(self) -> None:
        """Have the dispatcher delete the outcomes that are durable."""
        if not self._file.writer.flush():
            raise JournalError(
                f"{self._file.what}: its results at the dispatcher cannot be written to "
                f"{self._file.path}: {self._file.writer.failure}",
                hint="they stay at the dispatcher: run the script again when there is room",
            )
        self._dispatcher.took(self._written)
        self._written = []


def take_what_has_ended(name: str, path: Path, client: RemoteScheduler) -> bool:
    """Write the outcomes of a run that its dispatcher has by now to the run's file. Do nothing if
    another process has the run: that process gets them. Return whether there is more to
    come.
    """
    try:
        file = open_run(name, path, wait=False)
    except JournalError as error:  # if the file cannot be read either, its reader reports that
        log.debug("nothing is taken from the dispatcher: %s", error)
        return False
    try:
        if client.path in file.clients:
            return False
        with client.leaving_as(origin(file)) as place:
            more = take_left(file, place, wait=False)
            cast("RemoteDispatcher", dispatcher_of(place)).close(detach=True)
            return more
    finally:
        release(file)


def dispatchers_with(name: str, path: Path) -> list[DispatcherFolder]:
    """Return the dispatchers, running or not, that were handed calls of a run whose outcomes are
    not all in the run's file.
    """
    keys = handed_to(name, path)
    return [one for one in DispatcherFolder.all() if one.server_key() in keys] if keys else []


def runs_at(folder: DispatcherFolder) -> Iterator[RunSummary]:
    """Yield the runs in the run directory that have handed calls to a dispatcher whose results are
    not all in the run's file.
    """
    key = folder.server_key()
    for path in run_reader.paths():
        name = path.name.removesuffix(SUFFIX)
        if key in handed_to(name, path) and (run := run_reader.summary(path)).left:
            yield run


def who_has(name: str, path: Path) -> str:
    """Return, in words, which processes have calls of a run without a result; empty if none has.

    Raises:
        JournalError: the run's file cannot be read.
    """
    if run_reader.is_under_way(name, path):
        holder = read_holder(path.with_name(f"{path.name}{LOCK}"))
        return "a script" if holder is None else f"process {holder.pid} on {holder.host}"
    running = (
        one for one in dispatchers_with(name, path) if one.state() is DispatcherState.RUNNING
    )
    return " and ".join(f"the dispatcher {one.name}" for one in running)


def how_left_go_on(name: str, path: Path) -> str:
    """Return who will finish the calls without a result, or how to have them finished, in words."""
    if who := who_has(name, path):
        return f"{who} has them"
    for one in dispatchers_with(name, path):
        return (
            f"the dispatcher {one.name} has calls of it, and does not run: `{one.how_to_start()}` "
            "goes on with them"
        )
    return "run the script again"


def take_by_now(name: str, path: Path, client: RemoteScheduler | None, warned: set[str]) -> bool:
    """Write the outcomes of a run that a client's dispatcher has by now to the run's file; without
    a client, those that any dispatcher of this user has. Return whether there is more to come.

    warned: the names of the dispatchers that the user was warned of; each is added, and told once.

    Raises:
        JournalError: the file cannot be written.
        DispatcherGone, ConfigurationError: the client's dispatcher does not answer. For other
            dispatchers this is a warning.
    """
    if client is not None:
        return bool(handed_to(name, path)) and take_what_has_ended(name, path, client)
    more = False
    for one in dispatchers_with(name, path):
        if one.state() is DispatcherState.RUNNING:
            try:
                more = take_what_has_ended(name, path, RemoteScheduler(one.client_file)) or more
            except GridEngineError as error:
                told = "the dispatcher %s does not tell of the run %r: %s"
                level = logging.DEBUG if one.name in warned else logging.WARNING
                log.log(level, told, one.name, name, error)
                warned.add(one.name)
    return more
