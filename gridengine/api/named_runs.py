"""`runs`, `run_named`: read named runs, from any script, and make their calls again."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from gridengine.arguments import flag
from gridengine.client.keywords_and_arguments import CallKeywords, takes
from gridengine.client.options import RunOptions, call_options
from gridengine.client.outliving_calls import take_by_now
from gridengine.display import html_table
from gridengine.errors import JournalError, Pending, PicklingError, VersionMismatch, trimmed
from gridengine.journal import run_reader
from gridengine.journal.run_file import RETURNED, SUFFIX
from gridengine.journal.run_reader import RunSummary, StoredCalls
from gridengine.schedulers.base import SchedulerSpec
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.serialize.classes import known_classes

if TYPE_CHECKING:
    import sqlite3

    from gridengine.api.progress import ProgressSpec


class CallsToMake(NamedTuple):
    """Consecutive calls of one function: the function, the form of the calls, their arguments, and
    the place of each in the run's file, for `RunOptions.places`.
    """

    function: Any
    form: int
    given: list[Any]
    places: list[tuple[int, int]]


def calls_to_make(name: str, path: Path, failed_only: bool) -> list[CallsToMake]:
    """Return the calls of a run that have failed and, without `failed_only`, those that have no
    outcome.

    Raises:
        JournalError: see `NamedRun.resubmit`.
    """
    groups: list[CallsToMake] = []
    with run_reader.reading(name, path) as connection:
        meant = [
            one
            for one in run_reader.calls(connection)
            if (one.state != RETURNED if one.row else not failed_only)
        ]
        before = None
        for number, form, call, given in run_reader.arguments(connection, meant):
            if before != (number, form):
                before = number, form
                told, function = run_reader.function_of(connection, number)
                groups.append(CallsToMake(function, form, [], []))
            if function is None or given is None:
                what = f"the function {told} is" if function is None else "its arguments are"
                raise JournalError(
                    f"a call of {told} cannot be made again: {what} not stored, because of its "
                    "size or because it refers to other calls",
                    hint="run the script again: it continues where it stopped",
                )
            groups[-1].given.extend(given)
            groups[-1].places.extend((call.block, at) for at in range(call.start, call.stop))
    return groups


LEAST_LOOK_SECONDS, MOST_LOOK_SECONDS = 0.2, 1.0
"""How often the file is checked while results are awaited: at first, and later."""


class CallOfRun(NamedTuple):
    """A call of a named run: its `number` in the order of the calls, its `arguments` by the names
    of the parameters, and its `result`, as in `NamedRun.results`. Arguments are None if they are
    not stored (see `docs/runs.md`) or cannot be rebuilt here. If the names are not known, they are
    `argument1`, `argument2`, ...
    """

    number: int
    arguments: dict[str, Any] | None
    result: Any


class NamedRun:
    """A run with a name, as it was when this object was made by `run_named` or `runs`.

    `name`; `when` it was last begun (seconds since 1970), by which `script` on which `host`; how
    many calls since then are `done`, have `failed`, and are `left`; its `size` in bytes and its
    `path`. `error` says why it cannot be read, and is empty when it can.
    """

    def __init__(self, summary: RunSummary, client: RemoteScheduler | None = None) -> None:
        self._client = client
        self._warned = set[str]()
        """The names of the dispatchers that the user was warned of: they do not answer."""
        self.name, self.path, self.size = summary.name, Path(summary.path), summary.size
        self.when, self.script, self.host = summary.when, summary.script, summary.host
        self.done, self.failed, self.left = summary.done, summary.failed, summary.left
        self.error = summary.error

    def __repr__(self) -> str:
        counts = f"{self.done} done, {self.failed} failed, {self.left} left"
        return f"<run {self.name!r}: {self.error.splitlines()[0] if self.error else counts}>"

    def _repr_html_(self) -> str:
        facts: list[tuple[str, object]] = [
            ("calls", f"{self.done:,} done, {self.failed:,} failed, {self.left:,} left"),
            ("begun", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.when))),
            ("script", f"{self.script} on {self.host}"),
            ("file", self.path),
        ]
        return html_table(f"run {self.name}", [("error", self.error)] if self.error else facts)

    @trimmed
    def results(self, timeout: float | None = None) -> list[Any]:
        """Return the results in the order of the calls, with the exception of a failed call in its
        place. While a script has the run, or a stand-alone dispatcher has its calls, missing
        results are waited for, up to `timeout` seconds. Then, or where nobody has them, `Pending`
        stands in their places.

        Raises:
            JournalError: the file cannot be read, or not be written where a dispatcher has results.
            DispatcherGone: this object is of a client, whose dispatcher has ended.
            PicklingError: a result cannot be rebuilt here, for example because its class is one of
            the script's.
            VersionMismatch: it cannot be rebuilt because another version of Python has stored it.
        """
        self._wait(timeout)
        with run_reader.reading(self.name, self.path) as connection:
            return [one for call, values in _outcomes(connection) for one in _results(call, values)]

    @trimmed
    def calls(self, timeout: float | None = None) -> list[CallOfRun]:
        """Return the calls in their order, with their arguments and results. For missing results,
        and errors, see `results`.
        """
        from gridengine.api.stored_arguments import StoredArguments  # few ask

        self._wait(timeout)
        made: list[CallOfRun] = []
        with run_reader.reading(self.name, self.path) as connection:
            stored = StoredArguments(connection)
            for call, values in _outcomes(connection):
                for one in zip(stored.of(call), _results(call, values), strict=True):
                    made.append(CallOfRun(len(made), *one))
        return made

    def _wait(self, timeout: float | None) -> None:
        """Wait for missing results that may come, up to `timeout` seconds."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        pause = LEAST_LOOK_SECONDS
        while (
            run_reader.is_under_way(self.name, self.path)
            or take_by_now(self.name, self.path, self._client, self._warned)
        ) and time.monotonic() < end:
            time.sleep(min(pause, max(end - time.monotonic(), 0.0)))
            pause = min(2 * pause, MOST_LOOK_SECONDS)

    @trimmed
    def failures(self) -> dict[int, BaseException]:
        """Return the exceptions of the calls that have failed, by their numbers.

        Raises:
            JournalError: the file cannot be read.
        """
        found: dict[int, BaseException] = {}
        number = 0
        with run_reader.reading(self.name, self.path) as connection:
            for call, values in _outcomes(connection, only_failures=True):
                stop = number + call.stop - call.start
                if isinstance(values, BaseException):
                    found.update(dict.fromkeys(range(number, stop), values))
                number = stop
        return found

    @takes(CallKeywords)
    @trimmed
    def resubmit(
        self,
        *,
        failed_only: bool = False,
        scheduler: SchedulerSpec = None,
        reraise: bool = False,
        chunksize: int | None = None,
        progress: ProgressSpec = None,
        **options: Unpack[CallKeywords],
    ) -> list[Any]:
        """Run the failed calls again, and the calls that have no result. Return their results in
        the order of the calls. Unless `reraise`, each exception stands in the place of its call's
        result. The run stores the outcomes.

        failed_only: leave out calls that have no result; others: as for `gridengine.map`.

        Raises:
            Exception: with `reraise`, that of the first call that fails.
            VersionMismatch: another version of Python has stored the calls.
            JournalError: another script has the run; or the function, or the arguments of a call,
                are not stored: they were large, or refer to the results of other calls.
        """
        from gridengine.api.map_results import gather
        from gridengine.api.progress import check_progress
        from gridengine.client.submission import MapRequest

        check_progress(progress)
        checked = call_options(NamedRun.resubmit, options)
        results: list[Any] = []
        only_failures = flag("failed_only", failed_only)
        for function, form, given, places in calls_to_make(self.name, self.path, only_failures):
            request = MapRequest(
                f=function,
                form=form,
                scheduler=scheduler,
                reraise=reraise,
                chunksize=chunksize,
                options=checked,
                named_run=RunOptions(self.name, self.path, places=tuple(places)),
            )
            results += gather(request, iter(given), len(given), progress)
        return results


def _outcomes(
    connection: sqlite3.Connection, *, only_failures: bool = False
) -> Iterator[tuple[StoredCalls, list[Any] | BaseException | None]]:
    known_classes().finds_by_name = True
    known = False
    for call in run_reader.calls(connection):
        if not call.row or (only_failures and call.state == RETURNED):
            yield call, None
            continue
        try:
            yield call, run_reader.outcome(connection, call)
        except (PicklingError, VersionMismatch):
            run_reader.check_python(connection, call)
            if known:
                raise
            known = True  # from here on, classes that came with the functions are known
            run_reader.load_classes(connection)
            yield call, run_reader.outcome(connection, call)


def _results(call: StoredCalls, values: list[Any] | BaseException | None) -> list[Any]:
    """Return a result for each of these calls: what it returned, or the exception in its place."""
    if isinstance(values, list):
        return values
    missing = Pending("the call has no result yet") if values is None else values
    return [missing] * (call.stop - call.start)


def runs() -> list[NamedRun]:
    """Return the runs with a name in the run directory, the latest first."""
    return runs_of(None)


def runs_of(client: RemoteScheduler | None) -> list[NamedRun]:
    """Return the runs, like `runs`, with the outcomes that a client's dispatcher has by now."""
    paths = run_reader.paths()
    if client is not None:
        for path in paths:
            take_by_now(path.name.removesuffix(SUFFIX), path, client, set())
    found = [NamedRun(run_reader.summary(path), client) for path in paths]
    return sorted(found, key=lambda run: run.when, reverse=True)


@trimmed
def run_named(name: str, *, journal: str | os.PathLike[str] | None = None) -> NamedRun:
    """Return a run, whichever script made it, including the outcomes that your stand-alone
    dispatchers have by now. `name` is its name, the path of its file, or another word for a run
    (see `docs/watching.md`). `journal` is the argument `journal=` that the script gave.

    Raises:
        JournalError: there is no such run, or its file cannot be read.
    """
    return run_of(None, name, journal)


def run_of(
    client: RemoteScheduler | None, name: str, journal: str | os.PathLike[str] | None
) -> NamedRun:
    """Return a run, like `run_named`. With a client, only its dispatcher is asked for outcomes."""
    from gridengine.watching.run_lookup import run_file  # few ask

    path, warned = run_file(name, journal), set[str]()
    take_by_now(path.name.removesuffix(SUFFIX), path, client, warned)
    summary = run_reader.summary(path)
    if summary.error:
        raise JournalError(summary.error)
    run = NamedRun(summary, client)
    run._warned = warned
    return run
