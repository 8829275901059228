"""Calls of a run with a name, to be made again from what is kept of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from gridengine.errors import JournalError
from gridengine.journal import stored_runs as kept_runs
from gridengine.journal.run_file import RETURNED


class CallsToMake(NamedTuple):
    """Calls of one function that follow each other: how it takes its arguments, these, and where
    each is kept, as `RunOptions.places` has it.
    """

    function: Any
    form: int
    given: list[Any]
    places: list[tuple[int, int]]


def calls_to_make(name: str, path: Path, failed_only: bool) -> list[CallsToMake]:
    """Return the calls of a run that have failed, and without `failed_only` those that have no
    outcome.

    Raises:
        JournalError: see `NamedRun.resubmit`.
    """
    groups: list[CallsToMake] = []
    with kept_runs.reading(name, path) as connection:
        meant = [
            one
            for one in kept_runs.calls(connection)
            if (one.state != RETURNED if one.row else not failed_only)
        ]
        before = None
        for number, form, call, given in kept_runs.arguments(connection, meant):
            if before != (number, form):
                before = number, form
                told, function = kept_runs.function_of(connection, number)
                groups.append(CallsToMake(function, form, [], []))
            if function is None or given is None:
                what = f"the function {told} is" if function is None else "its arguments are"
                raise JournalError(
                    f"a call of {told} cannot be made again: {what} not kept, for being large or "
                    "for referring to other calls",
                    hint="run the script again: it goes on where it was",
                )
            groups[-1].given.extend(given)
            groups[-1].places.extend((call.block, at) for at in range(call.start, call.stop))
    return groups
