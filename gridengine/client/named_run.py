"""A named run, as seen by code that submits calls: it tells which calls have a result, and records
the results of the others.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct

from gridengine.calls.interface import Dispatcher
from gridengine.client.initializer import Initializer
from gridengine.client.options import RunOptions
from gridengine.client.outcomes import name_arguments
from gridengine.dispatcher.unsettled import Listener
from gridengine.display import plural
from gridengine.errors import Cancelled, JournalError
from gridengine.journal.call_keys import CallKeys, FunctionKey, is_plain
from gridengine.journal.known_calls import KnownCalls, Piece, digest_of
from gridengine.journal.run_file import (
    MOST_ARGUMENTS,
    StoredBlock,
    open_run,
    path_of,
    release,
)
from gridengine.journal.what_counts import check_ignored, dependencies
from gridengine.requests import CallsFinished, Function, Task
from gridengine.schedulers.base import SchedulerSpec
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.serialize.byte_code import PYTHON
from gridengine.serialize.classes import known_classes
from gridengine.serialize.payload import Payload, PayloadAtWorker, size_of
from gridengine.serialize.users_modules import own_modules
from gridengine.threads import once

log = logging.getLogger("gridengine")


class RecordPlace(NamedTuple):
    """Where the outcomes of the calls `item` to `stop` (exclusive) of a task are recorded: at the
    calls of a block from `offset` on. With `only_here`, a result that stays at its worker is left
    out.
    """

    item: int
    stop: int
    block: int
    offset: int
    only_here: bool = False


class OpenRun:
    """A map or an executor that uses a named run. `place` is where its calls run: the scheduler
    that was given or, for a stand-alone dispatcher, one whose calls go on without this process. The
    initializer of its processes counts with each function.

    Raises:
        JournalError: another process has the run, or its file cannot be read.
    """

    def __init__(
        self,
        options: RunOptions,
        place: SchedulerSpec,
        initializer: Initializer | None = None,
    ) -> None:
        self._options = options
        self.name = options.name
        self._depends = [*dependencies(options.depends)]
        self._prepared_by = [] if initializer is None else [*initializer.parts()]
        self.place = place
        self.left_at = ""
        """The identity of the dispatcher at which calls go on without this process; empty if none
        do.
        """
        # Results refer to classes of the script by a token of the process that got them. A later
        # process finds these classes by name.
        known_classes().finds_by_name = True
        self._file = open_run(
            options.name, path_of(options.name, options.journal), wait=options.wait
        )
        try:
            if isinstance(place, RemoteScheduler):
                from gridengine.client.outliving_calls import place_of_run  # few need it

                anew = options.resume is False
                self.place, self.left_at = place_of_run(self._file, place, anew=anew)
        except BaseException:
            release(self._file)
            raise
        again = options.places is not None  # resubmitted calls have places in the run's order
        self.first = 0 if again else self._file.begin(anew=options.resume is False)
        """The number of its first call in the run."""
        self._numbers = itertools.count(self.first)
        """The numbers of calls that are asked for one by one."""
        self._functions: dict[bytes, RunFunction] = {}
        self._current: dict[bytes, RunFunction] = {}
        """Functions by the digest of their pickle. Valid until modules are edited."""
        self._generation = -1
        self._places: dict[int, Sequence[RecordPlace]] = {}
        """The places of the outcomes of tasks that have not ended."""
        self._submitters: set[int] = set()
        self._release = once(functools.partial(release, self._file))
        """Writes the remaining rows, and releases the run for other processes. If two threads call
        it, the second waits until the first is done.
        """
        # A finalizer, because an iterator may be abandoned. In the garbage collector it must not
        # wait for a disk, so it uses a thread. At the interpreter's exit it must wait, even if a
        # thread that the exit ends has begun to close this.
        self._finalizer = weakref.finalize(self, _release_elsewhere, self._release)

    def expect(self, task: int, places: Sequence[RecordPlace]) -> None:
        """Note, before a task is submitted, where the outcomes of its calls are recorded."""
        self._places[task] = places

    def ask(
        self, f: Callable[..., Any], function: Function, call: Any, form: int
    ) -> RunCall | None:
        """Ask for one call; return None if it has no key, and cannot be recorded."""
        run_function = self.function(f, function)
        keys = run_function.keys_of([call], form)
        return None if keys is None else self.look_up(run_function, keys[0], form)

    def look_up(self, run_function: RunFunction, key: bytes, form: int) -> RunCall:
        """Ask for one call by its key; it gets the next number."""
        number = next(self._numbers)
        [piece] = run_function.take_keys([key], number)
        return RunCall(
            run_function=run_function,
            form=form,
            key=key,
            number=number,
            found=run_function.outcome(piece),
            block=piece.block,
            offset=piece.offset,
        )

    def expect_calls(
        self, calls: Sequence[tuple[int, int, RunCall]], arguments: Payload | None = None
    ) -> None:
        """Note, before tasks are submitted, where the outcomes of calls are recorded, each given
        with its task and its index there. Calls without a place get one, a block for each function.

        arguments: these calls as they travel, if they are all calls of one task.
        """
        new: dict[RunFunction, list[RunCall]] = {}
        for _, _, call in calls:
            if not call.block:
                new.setdefault(call.run_function, []).append(call)
        for run_function, its in new.items():
            whole = arguments if len(its) == len(calls) else None
            if whole is None:
                its.sort(key=attrgetter("number"))
            keys, numbers = b"".join(one.key for one in its), [one.number for one in its]
            block = run_function.add_block(its[0].form, numbers, whole, keys)
            for offset, call in enumerate(its):
                call.block, call.offset = block, offset
        for (task, *_), group in itertools.groupby(calls, _row_of):
            row = list(group)
            _, item, call = row[0]
            place = RecordPlace(item, row[-1][1] + 1, call.block, call.offset, call.only_here)
            self.expect(task, [*self._places.get(task, ()), place])

    def submit(
        self, dispatcher: Dispatcher, function: Function, tasks: Sequence[Task], listener: Listener
    ) -> None:
        """Submit tasks to a dispatcher, and record the outcomes that are expected. The dispatcher
        is told the run's name, so that commands find the calls by it.
        """
        submitter = tasks[0].options.submitter
        if submitter not in self._submitters:
            self._submitters.add(submitter)
            dispatcher.note_run(self.name, str(self._file.path), submitter)
        if self.left_at:
            for task in tasks:
                for item, stop, block, offset, _ in self._places.get(task.id, ()):
                    self._file.add_handed((task.id, item, stop, block, offset), self.left_at)
        dispatcher.submit(function, tasks, _OutcomeRecorder(listener, self._record))

    def _record(self, event: CallsFinished) -> None:
        """Record the outcome of calls, in the I/O thread. Cancelled calls have no outcome, and a
        failure that comes from another call is not theirs.
        """
        take = self._places.pop if event.last else self._places.get
        places = take(event.task, ())
        if event.recalled or event.path or isinstance(event.error, Cancelled):
            return
        name_arguments(event)
        for item, last, block, offset, only_here in places:
            start, stop = max(item, event.start), min(last, event.stop)
            if start < stop and not (only_here and type(event.payload) is PayloadAtWorker):
                at = offset + start - item
                place = block, at, at + stop - start, start - event.start
                self._file.add_result(place, event.payload, event.error, raised=event.raised)

    def begin(self) -> int:
        """Begin another map; return the number of its first call."""
        return self._file.begin()

    def function(self, f: Callable[..., Any], function: Function) -> RunFunction:
        """Return the record of a function in the run."""
        if self._options.places is not None:
            return ResubmittedFunction(self, self._options.places)
        modules = own_modules()
        if time.monotonic() > modules.due:
            modules.check()
        # Imported code, which the pickle only names, may have changed.
        if self._generation != modules.generation:
            self._generation = modules.generation
            self._current.clear()
        found = self._current.get(function.digest)
        if found is None:
            key = CallKeys().of_function(
                f, self._depends, self._options.ignore, prepared_by=self._prepared_by
            )
            found = self._functions.get(key.digest)
            if found is None:
                found = self._functions[key.digest] = RunFunction(self, key, function.payload)
            self._current[function.digest] = found
        return found

    def check_ignored(self, f: Callable[..., Any], function: Function) -> None:
        """Check, at a function's first call, that it has the parameters that `ignore=` names.

        Raises:
            ConfigurationError: it has not; the text names one.
        """
        if self._options.ignore and function.digest not in self._current:
            check_ignored(f, self._options.ignore)

    def log_counts(self) -> None:
        """Log how many calls were known, and why others were not."""
        for one in list(self._functions.values()):
            one.log_counts()

    def close(self) -> None:
        """Write the remaining rows, and release the run for others. May be called twice."""
        if self._finalizer.alive:
            self.log_counts()
            self._release()
            self._finalizer.detach()


class RunCall(Struct, eq=False):
    """A call that a named run was asked for: its number in the run, its outcome if that is known
    (its one value, or how it failed), and its place in the file (`block` is 0 if it has none yet).
    With `only_here`, see `RecordPlace`.
    """

    run_function: RunFunction
    form: int
    key: bytes
    number: int
    found: Sequence[Any] | CallsFinished | None = None
    block: int = 0
    offset: int = 0
    only_here: bool = False


def _row_of(one: tuple[int, int, RunCall]) -> tuple[int, int, int, bool]:
    """Return the same for calls of a task whose places in the file are consecutive."""
    task, item, call = one
    return task, call.block, call.offset - item, call.only_here


class _OutcomeRecorder:
    """Passes on the events of a listener; `record` is called first with each outcome."""

    __slots__ = ("_record", "_settled", "abandoned", "began", "daemon", "noted", "restarted")

    def __init__(self, listener: Listener, record: Callable[[CallsFinished], None]) -> None:
        self.daemon = listener.daemon
        self.began, self.noted = listener.began, listener.noted
        self.restarted = listener.restarted
        self.abandoned, self._settled = listener.abandoned, listener.settled
        self._record = record

    def settled(self, event: CallsFinished) -> None:
        self._record(event)
        self._settled(event)


def _release_elsewhere(release_file: Callable[[], object]) -> None:
    if threading.main_thread().is_alive():
        threading.Thread(target=release_file).start()
    else:  # the interpreter ends
        release_file()


class RunFunction:
    """The calls of one function in a named run: the known ones, and those that are made now."""

    def __init__(self, run: OpenRun, key: FunctionKey, payload: Payload) -> None:
        self._key = key
        self._file, options = run._file, run._options
        since = 0.0 if options.max_age is None else time.time() - options.max_age
        self._known = KnownCalls(
            self._file,
            key,
            resume=options.resume,
            retry_failed=options.retry_failed,
            since=since,
        )
        self.are_plain = self._known.are_plain
        """Says of calls whether their keys follow from their arguments' pickles alone."""
        if self._known.made_by and options.resume is True:
            log.warning(
                '%s, %s: the results were made by %s; the calls are made again (resume="anyway" '
                "takes the results that any Python can read)",
                self._file.what,
                key.name,
                self._pythons(),
            )
        self._number = self._file.function(key, payload)
        by_name = f"{key.name}\0{key.parts.get('itself')}".encode()
        self.identity = by_name if options.resume == "anyway" else key.digest
        """The name of this function in the keys of calls that need its results."""
        self._lock = threading.Lock()
        self._taken = self._made = self._unreadable = self._told = 0
        self._sample: tuple[Any, int] | None = None
        """One of the calls that are handed in, and its form, if earlier ones may be unlike it."""

    @property
    def pickled(self) -> int:
        """The size, in bytes, of the calls that were looked up last, as far as it is known."""
        return self._known.pickled

    def keys_of(self, calls: Sequence[Any], form: int) -> list[bytes] | None:
        """Return the keys of calls; None if one waits for other results or cannot be pickled."""
        self._note(calls, form)
        try:
            return self._known.keys_of(calls, form)
        except Exception:  # a user's own code may raise anything when it is pickled
            return None

    def take(self, calls: Sequence[Any], form: int, first: int) -> list[Piece] | None:
        """Look up calls, of which the first is number `first` of the run. Return pieces, known and
        unknown; None if the calls have no keys.
        """
        self._note(calls, form)
        with self._lock:
            pieces = self._known.take_block(calls, form)
            if pieces is None:
                keys = self.keys_of(calls, form)
                pieces = None if keys is None else self._known.take_keys(keys)
            return None if pieces is None else self._ordered(pieces, first)

    def _note(self, calls: Sequence[Any], form: int) -> None:
        if self._sample is None and calls and self._known.earlier and not self._told:
            self._sample = calls[0], form

    def take_keys(self, keys: Sequence[bytes], first: int) -> list[Piece]:
        """Look up calls by their keys, like `take`."""
        with self._lock:
            return self._ordered(self._known.take_keys(keys), first)

    def _ordered(self, pieces: list[Piece], first: int) -> list[Piece]:
        """Record the numbers of known calls in the run's order."""
        for piece in pieces:
            if piece.block:
                stop = piece.offset + piece.stop - piece.start
                self._file.add_order(first + piece.start, piece.block, piece.offset, stop)
        return pieces

    def outcome(self, piece: Piece) -> Sequence[Any] | CallsFinished | None:
        """Return the values of known calls, or how they failed; None if they must be made, or if
        their results cannot be rebuilt here.
        """
        count = piece.stop - piece.start
        if piece.row:
            try:
                values, raised, error = self._known.outcome(piece)
                self._taken += count
                if raised is None and error is None:
                    return values
                return CallsFinished(
                    task=0,
                    start=piece.start,
                    stop=piece.stop,
                    payload=raised,
                    raised=raised is not None,
                    error=error,
                    exitcode=1,
                )
            except (JournalError, KeyboardInterrupt):
                raise
            except Exception as error:
                self._unreadable += count
                log.debug("a result of %s cannot be rebuilt: %s", self._key.name, error)
        self._made += count
        return None

    def new_block(
        self,
        calls: Sequence[Any],
        form: int,
        first: int,
        arguments: Payload | None,
        keys: Sequence[bytes] | None,
    ) -> int:
        """Record calls that are made for the first time; return the number of their block.

        arguments: the calls as they travel, if they are one task.
        keys: their keys; None for plain calls, whose keys follow from the arguments.
        """
        numbers = range(first, first + len(calls))
        if keys is None:
            whole = arguments is not None and len(arguments) == 1
            if whole and arguments is not None and size_of(arguments) <= MOST_ARGUMENTS:
                return self.add_block(form, numbers, arguments, None)
            keys = self._known.keys_of(calls, form)
        return self.add_block(form, numbers, arguments, b"".join(keys))

    def add_block(
        self, form: int, numbers: Sequence[int], arguments: Payload | None, keys: bytes | None
    ) -> int:
        """Record a block of calls with these numbers and keys, like `new_block`. `keys` is None if
        they follow from the arguments.
        """
        digest = b"" if keys is not None or arguments is None else digest_of(arguments[0], form)
        calls = StoredBlock(self._number, form, len(numbers), digest, keys)
        block = self._file.add_block(calls, arguments)
        start = 0
        while start < len(numbers):
            first = numbers[start]
            stop = _end_of_row(numbers, start)
            self._file.add_order(first, block, start, stop)
            start = stop
        return block

    def log_counts(self) -> None:
        """Log how many calls were known, and why others were not, unless that was logged."""
        taken, made = self._taken, self._made
        if taken + made == self._told:
            return
        self._told = taken + made
        known, reasons = self._known, [*self._reasons()]
        explained = known.made_by or known.failed or known.is_old
        none = not taken and made == known.earlier and not explained
        if none and not reasons:
            reasons = [self._difference()]
        self._sample = None
        why = "; ".join(reasons)
        log.log(
            logging.WARNING if none else logging.INFO,
            "%s, %s: %s taken from the journal, %d new%s",
            self._file.what,
            self._key.name,
            plural(taken, "result"),
            made,
            f": {why}" if why and made else "",
        )

    def _difference(self) -> str:
        """Return how the calls differ from as many that the run has."""
        if self._known.has_no_results:
            return "the run has as many calls, and no result of any"
        found = ""
        if self._known.is_other:
            found = "the arguments of the partial, or the object that is called, differ"
        elif self._sample is not None:
            try:
                found = self._known.difference(*self._sample)
            except Exception as error:  # such as a class that this process does not have
                log.debug("arguments of %s cannot be read: %s", self._key.name, error)
        return f"the run has as many calls, and {found or 'their arguments had other pickles'}"

    def _pythons(self) -> str:
        return f"Python {self._known.made_by}, and this is Python {PYTHON}"

    def _reasons(self) -> Iterator[str]:
        """Yield the reasons why calls are made again."""
        known, name = self._known, self._key.name
        if known.made_by:
            yield f"{name} was made by {self._pythons()}"
        elif known.changes:
            others = [one for one in known.changes if one not in (name, "itself")]
            by = f" ({', '.join(others)})" if others else ""
            yield f"{name} changed since{by}"
        if known.is_old:
            yield "some are older than max_age="
        if known.failed:
            yield f"{known.failed} had failed"
        if self._unreadable:
            yield f"{self._unreadable} cannot be rebuilt here"


def _end_of_row(numbers: Sequence[int], start: int) -> int:
    """Return the end of the consecutive numbers that begin at this index."""
    if numbers[-1] - numbers[start] == len(numbers) - 1 - start:
        return len(numbers)
    stop = start + 1
    while numbers[stop] == numbers[stop - 1] + 1:
        stop += 1
    return stop


class ResubmittedFunction(RunFunction):
    """Calls made again from their record in the run's file, each with its place in the run."""

    pickled = 0

    def __init__(self, run: OpenRun, places: Sequence[tuple[int, int]]) -> None:
        self.are_plain = is_plain
        self._file, self._places = run._file, places

    def take(self, calls: Sequence[Any], form: int, first: int) -> list[Piece]:
        """Return the places of these calls. None of them has an outcome."""
        pieces: list[Piece] = []
        for at, (block, offset) in enumerate(self._places[first : first + len(calls)]):
            last = pieces[-1] if pieces else Piece(0, 0)
            if (block, offset) == (last.block, last.offset + at - last.start):
                pieces[-1] = Piece(last.start, at + 1, block, last.offset)
            else:
                pieces.append(Piece(at, at + 1, block, offset))
        return pieces

    def outcome(self, piece: Piece) -> None:
        """Return None: the calls are to be made, whatever their record says."""

    def log_counts(self) -> None:
        """Do nothing: the user asked for exactly these calls."""
