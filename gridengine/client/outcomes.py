"""The outcomes of calls, from what a dispatcher tells of a task: values, and errors with what only
the caller's side knows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any

from msgspec import Struct

from gridengine.client.log_relay import log_relay
from gridengine.dispatcher.core.tasks import Attempt, CallsFinished, TaskMessage, TaskStarted
from gridengine.errors import (
    UNNUMBERED,
    GridEngineError,
    OutOfMemory,
    PicklingError,
    ProtocolError,
    call_words,
    safe_repr,
)
from gridengine.resources.units import plural
from gridengine.schedulers.logs import add_log
from gridengine.serialize import pickling
from gridengine.serialize.exceptions import copy_without_traceback, note_on
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.kept_payload import KeptPayload
from gridengine.serialize.payload import Payload

log = logging.getLogger("gridengine")


class OutcomeListener:
    """A listener that wants nothing but outcomes. The end of the interpreter does not wait for its
    tasks.
    """

    __slots__ = ()
    daemon = True

    def began(self, event: TaskStarted) -> None:
        """Ignore it."""

    def noted(self, event: TaskMessage) -> None:
        """Have this process log what calls have logged."""
        if event.log:
            log_relay().take(event.payload)

    def abandoned(self) -> None:
        """Ignore it: all was handed over."""


class Outcome(Struct, frozen=True):
    """The outcome of the calls `start` to `stop`: their values, or the one error of them all."""

    start: int
    stop: int
    values: Sequence[Any]
    error: BaseException | None


CALL_OF_MANY, ONE_CALL, JOB = "call {number} of {name}", "the call of {name}", "job {name}"
"""What a call is called in the note of what it raised."""


def outcomes_of(
    event: CallsFinished, name: str, what: str = CALL_OF_MANY, first: int = 0
) -> list[Outcome]:
    """Return the outcomes of the calls of an event, one where they are alike; `first` is the number
    of the task's first call.

    What a call raised has a note of which call it was (`what`, with its number and `name`), what it
    was given and where it ran; or which failed and by which others that came here. A result that
    cannot be unpickled is a `PicklingError`, a call that was recalled before it began a
    `CancelledError`, with a note if that is for another. It may take its time: the end of a
    worker's log is read here, too.
    """
    start, stop = first + event.start, first + event.stop
    error: BaseException | None
    if event.recalled:
        error = cancelled_error(event.path, name)
    elif event.payload is None:
        error = event.error
        if error is not None and event.path:  # others have the same
            error = copy_without_traceback(error)
            note_on(error, [_way(event.path, name, "failed")])
    elif event.raised:
        error, arguments = pickling.load_raised(event.payload)
        if event.path:
            note_on(error, [_way(event.path, name, "failed", arguments)])
        else:
            add_notes(error, [what.format(name=name, number=start), arguments], event.attempts)
    else:
        return _outcomes_of_values(event.payload, start, stop)
    if isinstance(error, GridEngineError) and error.log and error.log_tail is None:
        add_log(error, error.log)
    return [Outcome(start, stop, (), error)]


def _way(path: Sequence[str], name: str, what: str, arguments: str = "") -> str:
    """Return which call failed or was cancelled first, and which for that, down to the one of this
    name.
    """
    first = f"{path[0]}, {arguments}," if arguments else path[0]
    return f"{first} {what}, and with it {', '.join([*path[1:], name])}"


def path_from(path: Sequence[str], name: str) -> tuple[str, ...]:
    """Return by which way what has come of a call of this name goes on; `path` as it has come."""
    return (*path, name) if path else (call_words(name, UNNUMBERED, 0),)


def cancelled_error(
    path: Sequence[str], name: str, kind: type[BaseException] = CancelledError
) -> BaseException:
    """Return the error of a call of this name that was cancelled; with a path for another that
    was.
    """
    error = kind()
    if path:
        note_on(error, [_way(path, name, "was cancelled")])
    return error


def _outcomes_of_values(payload: Payload, start: int, stop: int) -> list[Outcome]:
    if type(payload) is KeptPayload:
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
    """Before the exception of a call is raised: say that it ends the script, if nothing else will.
    Python prints nothing of a `SystemExit`, not even its notes.
    """
    if isinstance(error, SystemExit):
        which = next(iter(getattr(error, "__notes__", ())), "a call")
        log.warning(
            "%s: it left by sys.exit(%s), which is raised here and ends this Python unless "
            "SystemExit is caught",
            which,
            "" if error.code is None else safe_repr(error.code),
        )


def add_notes(error: BaseException, facts: list[str], attempts: Sequence[Attempt]) -> None:
    """Note on an exception that a worker sent these facts, and what only the dispatcher knows: the
    cluster job, its log, and the outcome of each attempt.
    """
    history = [f"attempt {number}: {attempt}" for number, attempt in enumerate(attempts, 1)]
    if isinstance(error, OutOfMemory) and attempts:  # its text has what the notes say of others
        error.host, error.job = attempts[-1].host, attempts[-1].job or None
        error.attempts = tuple(map(str, attempts))
        add_log(error, attempts[-1].log)
        facts, history = facts[1:], []
    elif attempts:
        facts += [f"on {attempts[-1].host}"]
        facts += [f"cluster job {attempts[-1].job}"] * bool(attempts[-1].job)
    told = ", ".join(filter(None, facts))
    note_on(error, [told] * bool(told) + history * (len(attempts) > 1))
