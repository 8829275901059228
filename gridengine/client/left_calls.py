"""Runs with a name at a stand-alone dispatcher: their calls go on when the process that has the run
is gone, and the next that has it takes what has come of them.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import cast

from gridengine.calls.left_outcomes import Left
from gridengine.calls.remote import RemoteDispatcher
from gridengine.client.connect import dispatcher_of
from gridengine.errors import Cancelled, GridEngineError, JournalError
from gridengine.journal.handed_calls import (
    forget_handed,
    handed_calls,
    origin,
    places_of,
)
from gridengine.journal.run_file import RunFile, files_in_use, leave, open_run, release
from gridengine.journal.writer import JournalWriter
from gridengine.resources.units import plural
from gridengine.schedulers.remote import RemoteScheduler
from gridengine.wire.messages import ClientWelcome as ChildrenWelcome

log = logging.getLogger("gridengine")

MOST_LEFT = 32
"""How many messages of outcomes are written together."""


def place_of_run(
    file: RunFile, client: RemoteScheduler, *, anew: bool = False
) -> tuple[RemoteScheduler, str]:
    """Return where the calls of a run are made that are to go on without this process, for all
    users of the file, and which dispatcher that is. It is closed with the file; where that cannot
    be written it is the client, and the dispatcher empty. What earlier processes have left is in
    the file then; this waits for what still runs, or with `anew` ends it.

    Raises:
        ConfigurationError, DispatcherGone: the dispatcher cannot be reached, or has ended.
    """
    with file.keeping:
        place = file.keepers.get(client.path)
        if place is None:
            name = origin(file)
            if not name:
                return client, ""
            if anew:
                with client.keeping(name) as others:
                    dispatcher_of(others)
            place = client.keeping(name)
            take_left(file, place)
            file.keepers[client.path] = place
            dispatcher = cast(RemoteDispatcher, dispatcher_of(place))
            dispatcher.file_fault = partial(_fault_of, str(file.path), file.writer)
        made = cast(RemoteScheduler, place)
        return made, cast(RemoteDispatcher, dispatcher_of(made)).identity


def _fault_of(path: str, writer: JournalWriter) -> tuple[str, str]:
    failure = writer.failure
    return ("", "") if failure is None else (path, str(failure))


def take_left(file: RunFile, place: RemoteScheduler, *, wait: bool = True) -> bool:
    """Write what earlier processes have left at a dispatcher to the file of their run: all of it,
    or without `wait` what has come by now. If it cannot be, it is left there. Return whether there
    is more to come.

    Raises:
        JournalError: it cannot be written.
        DispatcherGone: the dispatcher has ended meanwhile.
    """
    dispatcher = cast(RemoteDispatcher, dispatcher_of(place))
    try:
        return _LeftCalls(file, dispatcher).take(wait=wait)
    except BaseException:
        dispatcher.close(detach=True)
        raise


def flush_handed(client: RemoteScheduler, timeout: float | None = None) -> bool:
    """Write which calls of runs were handed in, for who takes what comes of them; return whether it
    is on disk, within so many seconds for each run if that is given.
    """
    files = [file for file in files_in_use() if file.keepers.get(client.path) in client.kept]
    flushed = [file.writer.flush(timeout) for file in files]  # all, also behind one that fails
    return all(flushed)


def leave_runs(client: RemoteScheduler) -> None:
    """Leave the calls of runs to the dispatcher, and the runs to whoever asks for them next."""
    files = [file for file in files_in_use() if file.keepers.get(client.path) in client.kept]
    for place in tuple(client.kept):
        cast(RemoteDispatcher, dispatcher_of(place)).close(detach=True)
    for file in files:
        if len(file.keepers) == 1:  # else another dispatcher makes calls of it, too
            leave(file)


class _LeftCalls:
    """What a dispatcher has of a run's earlier processes."""

    def __init__(self, file: RunFile, dispatcher: RemoteDispatcher) -> None:
        self._file = file
        self._dispatcher = dispatcher
        self._handed = handed_calls(file, dispatcher.identity)
        self._written: list[Left] = []
        self._owed = self._ready = self._taken = 0
        """How many tasks, and how many messages that were ready, are still to come; how many calls
        have come.
        """

    def take(self, *, wait: bool) -> bool:
        """Write it, and have the dispatcher forget it; return whether there is more to come."""
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

    def _next(self) -> ChildrenWelcome | Left:
        left = self._dispatcher.left
        if self._written and (left.empty() or len(self._written) >= MOST_LEFT):
            self._finish()
        found = left.get()
        if isinstance(found, GridEngineError):
            raise found
        return found

    def _begin(self, found: ChildrenWelcome | Left) -> None:
        if isinstance(found, ChildrenWelcome):
            self._owed, self._ready = found.owed, found.ready
            return
        self._ready -= 1
        for event in found.outcomes:
            self._owed -= event.last
            if event.recalled or isinstance(event.error, Cancelled):
                continue
            for place in places_of(self._handed.get(event.task, ()), event.start, event.stop):
                self._file.add_result(place, event.payload, event.error, raised=event.raised)
                self._taken += place[2] - place[1]
        self._written.append(found)

    def _finish(self) -> None:
        """Have the dispatcher forget what is on disk."""
        if not self._file.writer.flush():
            raise JournalError(
                f"{self._file.what}: what the dispatcher has of it cannot be written to "
                f"{self._file.path}: {self._file.writer.failure}",
                hint="it stays at the dispatcher: run the script again when there is room",
            )
        self._dispatcher.took(self._written)
        self._written = []


def take_what_has_ended(name: str, path: Path, client: RemoteScheduler) -> bool:
    """Write what a dispatcher has by now of a run to its file; nothing when another process has the
    run: it has that, too. Return whether there is more to come.
    """
    try:
        file = open_run(name, path, wait=False)
    except JournalError as error:  # if it cannot be read either, who reads it says so
        log.debug("nothing is taken from the dispatcher: %s", error)
        return False
    try:
        if client.path in file.keepers:
            return False
        with client.keeping(origin(file)) as place:
            more = take_left(file, place, wait=False)
            cast(RemoteDispatcher, dispatcher_of(place)).close(detach=True)
            return more
    finally:
        release(file)
