"""`gridengine calls` and `cancel`: list the calls of a dispatcher, and end some."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict

from gridengine.cli.completion import seen_names, watched_names
from gridengine.cli.console import command, console, echo, json_option, print_json, table
from gridengine.dispatcher.watch_messages import CANCEL
from gridengine.display import plural, printable
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import RunStatus, Status
from gridengine.watching.call_descriptions import arguments_of, cause_of
from gridengine.watching.dispatcher_lookup import answer_of, connect
from gridengine.watching.phrases import seconds, size
from gridengine.watching.runs_on_disk import heading

COLUMNS = (
    *("id", "call", "arguments", "state", ">time", "host", "job", ">attempts", ">memory", "why"),
)
"""The titles of the fields of a `CallRow`, without its log."""


class CallRow(Struct, frozen=True):
    """One row: a call that runs or has failed.

    memory: in bytes, 0 when unknown.
    log: the path of its worker's log, empty on this machine.
    """

    id: str
    call: str
    arguments: str
    state: str
    seconds: float | None
    host: str
    job: str
    attempts: int
    memory: int
    why: str
    log: str


@command("calls", short_help="List the calls that run or have failed.")
@click.argument("name", default="", shell_complete=seen_names)
@click.option("--failed", is_flag=True, help="Only calls that have failed: the last 200.")
@click.option("--running", is_flag=True, help="Only calls that run.")
@click.option(
    "--slow",
    is_flag=True,
    help="Only calls that run longer than most of their function's calls, longest first.",
)
@json_option()
@click.option("--csv", "as_csv", is_flag=True, help="For spreadsheets.")
def calls_command(
    name: str, failed: bool, running: bool, slow: bool, as_json: bool, as_csv: bool
) -> None:
    """List calls that run, and that have failed lately, with their arguments. Their ids name them
    for `explain`, `logs` and `cancel`.

    NAME is whatever `gridengine ls` prints of a dispatcher, or the name of a run whose calls it
    runs; also of one that has ended, if there is a report of it: see `gridengine report`. Of very
    many calls a sample is shown, and their number.

    The exit status is 1 when there is no such dispatcher or run.

    Examples:
      gridengine calls sweep --failed
      gridengine calls sweep --slow
      gridengine calls 4242 --failed --csv > failed.csv
      gridengine calls 20261123-0930 --failed       of a run that has ended
    """
    answer, runs = answer_of(name)
    status = answer.status
    if not runs:
        echo(heading(answer, name), err=True)
    rows = list(_rows(status, failed=failed, running=running, slow=slow))
    if as_json:
        print_json(rows)
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(CallRow.__struct_fields__)
        writer.writerows(asdict(one).values() for one in rows)
    else:
        console().print(table(COLUMNS, map(_shown, rows)))
        echo(
            f"{status.running:,} running, {status.waiting:,} waiting, {status.ended_words}; "
            f"{len(rows):,} shown",
            err=True,
        )


def _rows(status: Status, *, failed: bool, running: bool, slow: bool) -> Iterator[CallRow]:
    if slow:
        usual = {one.name: one.p95_seconds or 0.0 for one in status.functions}
        found = [one for one in status.runs if one.seconds > usual.get(one.function, 0.0)]
        yield from sorted(map(_running, found), key=lambda one: -(one.seconds or 0))
        return
    if running or not failed:
        yield from map(_running, status.runs)
    if failed or not running:
        yield from map(_failed, reversed(status.failures))


def _running(one: RunStatus) -> CallRow:
    state = "waits" if one.waits else "late" if one.late else "runs"
    why = one.history[-1] if one.history else ""
    return _row(one, one.call, state=state, attempts=one.attempt, memory=one.memory, why=why)


def _failed(one: FailureStatus) -> CallRow:
    call = one.call if one.calls == 1 else f"{one.call} and {one.calls - 1:,} more"
    state, why = "cancelled" if one.cancelled else "failed", cause_of(one)
    return _row(one, call, state=state, attempts=one.attempts, memory=one.peak_memory, why=why)


def _row(one: RunStatus | FailureStatus, call: str, **own: Any) -> CallRow:
    return CallRow(
        id=one.id,
        call=call,
        arguments=arguments_of(one),
        seconds=one.seconds,
        host=one.host,
        job=one.job,
        log=one.log,
        **own,
    )


def _shown(one: CallRow) -> list[object]:
    told = {**asdict(one), "seconds": seconds(one.seconds), "memory": size(one.memory)}
    return list(told.values())[: len(COLUMNS)]


@command("cancel", short_help="End calls of a dispatcher.")
@click.argument("name", shell_complete=watched_names)
@click.argument("calls", nargs=-1, metavar="[CALL]...")
@click.option("--yes", is_flag=True, help="Do not ask before all calls are ended.")
def cancel_command(name: str, calls: tuple[str, ...], yes: bool) -> None:
    """End calls: those that wait never run, those that run are sent SIGTERM, and SIGKILL after the
    grace time. Without a CALL all are ended, which cannot be undone. The script sees `Cancelled`.

    NAME is whatever `gridengine ls` prints of a dispatcher. It may also be the name of a run, or
    the script or process id of a client: then only their calls are ended. CALL is a number among a
    map's calls, an id of `gridengine calls`, or a job's name. The exit status is 1 when nothing was
    ended.

    Examples:
      gridengine cancel sweep 190 191       two calls of the map of sweep.py
      gridengine cancel 4242 --yes          all that process 4242 has, without a question
    """
    with connect(name) as watched:
        answer = watched.ask(most=0)
        if not calls and not yes:
            status = answer.status
            left = plural(status.waiting + status.running, "call")
            whose = f"{left} of {answer.identity.name}"
            if watched.run:
                whose = f"calls of {watched.run} at {answer.identity.name}"
            click.confirm(printable(f"End all {whose}?"), abort=True)
        ended = watched.ask(CANCEL, words=calls).count
    none = f"no such call waits or runs; `gridengine calls {name}` lists those that run"
    others = "; the others neither wait nor run" if 0 < ended < len(calls) else ""
    echo(f"{plural(ended, 'call')} ended{others}" if ended else none)
    sys.exit(0 if ended else 1)
