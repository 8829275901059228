"""Turn a dispatcher's events into the outcomes of calls: values, and errors with notes of facts
that only the caller's side knows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any

from msgspec import Struct

from gridengine.client.log_relay import log_relay
from gridengine.display import plural
from gridengine.errors import (
    UNNUMBERED,
    GridEngineError,
    OutOfMemory,
    PicklingError,
    ProtocolError,
    call_words,
    safe_repr,
)
from gridengine.requests import CallsFinished, TaskBegan, TaskMessage
from gridengine.serialize import pickling
from gridengine.serialize.exceptions import copy_without_traceback, note_on
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import Payload, PayloadAtWorker
from gridengine.wire.messages import Attempt

log = logging.getLogger("gridengine")


class OutcomeListener:
    """A listener that needs only outcomes. The end of the interpreter does not wait for its
    tasks.
    """

    __slots__ = ()
    daemon = True

    def began(self, event: TaskBegan) -> None:
        """Do nothing."""

    def noted(self, event: TaskMessage) -> None:
        """Have this process's loggers handle the log records of calls."""
        if event.log:
            log_relay().take(event.payload)

    def abandoned(self) -> None:
        """Do nothing: the dispatcher ends these calls with the call that submitted them."""

    def restarted(self) -> None:
        """Do nothing: outcomes outlast the dispatcher's process."""


class Outcome(Struct, frozen=True):
    """The outcome of the calls `start` to `stop` (exclusive): their values, or their one error."""

    start: int
    stop: int
    values: Sequence[Any]
    error: BaseException | None


CALL_OF_MANY, ONE_CALL, JOB = "call {number} of {name}", "the call of {name}", "job {name}"
"""The names of a call in the note of its exception."""


def outcomes_of(
    event: CallsFinished, name: str, what: str = CALL_OF_MANY, first: int = 0
) -> list[Outcome]:
    """Return the outcomes of the calls of an event; one outcome covers all calls that are alike.
    `first` is the number of the task's first call.

    An exception that a call raised gets a note with the call's name (`what`, with its number and
    `name`), its arguments, and where it ran. If the failure came from another call, the note names
    that call and the path. A result that cannot be unpickled is a `PicklingError`. A recalled call
    is a `CancelledError`, with a note if a call that it needs was cancelled. This may take time,
    because it also reads the end of a worker's log.
    """
    start, stop = first + event.start, first + event.stop
    error: BaseException | None
    if event.recalled:
        error = cancelled_error(event.path, name)
    elif event.payload is None:
        error = event.error
        if error is not None and event.path:  # a copy, because other calls share the error
            error = copy_without_traceback(error)
            vars(error).update(pickled_call=None)  # who pickles the error sends no arguments along
            note_on(error, [_way(event.path, name, "failed")])
        else:
            name_arguments(event)
    elif event.raised:
        from gridengine.client.left_behind import note_on_left_behind  # for errors alone

        error, arguments = pickling.load_raised(event.payload)
        note_on_left_behind(error)
        if event.path:
            note_on(error, [_way(event.path, name, "failed", arguments)])
        else:
            add_notes(error, [what.format(name=name, number=start), arguments], event.attempts)
    else:
        return _outcomes_of_values(event.payload, start, stop)
    if isinstance(error, GridEngineError) and error.log and error.log_tail is None:
        _add_log(error, error.log)
    return [Outcome(start, stop, (), error)]


def _add_log(error: GridEngineError, path: str) -> None:
    from gridengine.schedulers.logs import add_log  # here: few errors have a log

    add_log(error, path)


def name_arguments(event: CallsFinished) -> None:
    """Have the error of a single call name the call's arguments."""
    error = event.error
    if error is None:
        return
    call, error.pickled_call = error.pickled_call, None
    if call is not None and (event.start, event.stop) == (call[1], call[1] + 1):
        from gridengine.watching import call_descriptions as words  # few calls fail so

        error.arguments = words.call_arguments(*call, most=words.MOST_IN_ERRORS) or None


def _way(path: Sequence[str], name: str, what: str, arguments: str = "") -> str:
    """Return a sentence such as "f(3) failed, and with it g, h": the first call, then each call
    that failed or was cancelled because of it, down to the call `name`.
    """
    first = f"{path[0]}, {arguments}," if arguments else path[0]
    return f"{first} {what}, and with it {', '.join([*path[1:], name])}"


def path_from(path: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the path by which the outcome of a call of this name reaches the calls that need it;
    `path` is the path to the call itself.
    """
    return (*path, name) if path else (call_words(name, UNNUMBERED, 0),)


def cancelled_error(
    path: Sequence[str], name: str, kind: type[BaseException] = CancelledError
) -> BaseException:
    """Return the error of a cancelled call; with a path, a call that it needs was cancelled."""
    error = kind()
    if path:
        note_on(error, [_way(path, name, "was cancelled")])
    return error


def _outcomes_of_values(payload: Payload, start: int, stop: int) -> list[Outcome]:
    """Return the outcomes of successful calls. Values that cannot be unpickled are errors."""
    if type(payload) is PayloadAtWorker:
        try:
            payload = payload.fetch()
        except Exception as error:
            return [Outcome(start, stop, (), error)]
    try:
        values, complete = pickling.load_values(payload)
    except PicklingError as error:
        return [Outcome(start, stop, (), error)]
    if not isinstance(values, list) or len(values) != stop - start:
        is_list = isinstance(values, list)
        count = plural(len(values), "result") if is_list else f"a {type(values).__name__}"
        wrong = ProtocolError(
            f"the worker answered {plural(stop - start, 'call')} with {count}",
            hint="report this as a fault of gridengine",
        )
        return [Outcome(start, stop, (), wrong)]
    if complete:
        return [Outcome(start, stop, values, None)]
    return [
        Outcome(index, index + 1, (), value.error)
        if type(value) is Unloadable
        else Outcome(index, index + 1, [value], None)
        for index, value in enumerate(values, start)
    ]


def warn_of_exit(error: BaseException) -> None:
    """Log, before a call's exception is raised, that it ends the script: Python prints nothing for
    a `SystemExit`, not even its notes.
    """
    if isinstance(error, SystemExit):
        which = next(iter(getattr(error, "__notes__", ())), "a call")
        log.warning(
            "%s: it called sys.exit(%s); SystemExit is raised here too, and ends this Python "
            "unless it is caught",
            which,
            "" if error.code is None else safe_repr(error.code),
        )


def add_notes(error: BaseException, facts: list[str], attempts: Sequence[Attempt]) -> None:
    """Add notes to an exception that a worker sent: these facts, and those that only the dispatcher
    knows, which are the cluster job, its log, and the outcome of each attempt.
    """
    history = [f"attempt {number}: {attempt}" for number, attempt in enumerate(attempts, 1)]
    # Its text has the facts that others have in notes.
    if isinstance(error, OutOfMemory) and attempts:
        error.host, error.job = attempts[-1].host, attempts[-1].job or None
        error.attempts = tuple(map(str, attempts))
        _add_log(error, attempts[-1].log)
        facts, history = facts[1:], []
    elif attempts:
        facts += [f"on {attempts[-1].host}"]
        facts += [f"cluster job {attempts[-1].job}"] * bool(attempts[-1].job)
    told = ", ".join(filter(None, facts))
    note_on(error, [told] * bool(told) + history * (len(attempts) > 1))
