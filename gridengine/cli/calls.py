"""`gridengine calls`: list the calls of a dispatcher."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator

import click
from msgspec import Struct
from msgspec.structs import asdict

from gridengine.cli.completion import seen_names
from gridengine.cli.console import console, print_json, table
from gridengine.status.rows import FailureStatus, RunStatus, Status
from gridengine.watching.causes import cause_of
from gridengine.watching.formats import seconds, size
from gridengine.watching.pickled import call_arguments
from gridengine.watching.run_answers import answer_of, heading

COLUMNS = (
    "id",
    "call",
    "arguments",
    "state",
    ">time",
    "host",
    "job",
    ">attempts",
    ">memory",
    "why",
)


class Call(Struct, frozen=True):
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


@click.command(
    "calls",
    short_help="List the calls that run or have failed.",
    epilog="""\b
Examples:
  gridengine calls sweep --failed
  gridengine calls sweep --slow
  gridengine calls 4242 --failed --csv > failed.csv
  gridengine calls 20261123-0930 --failed       of a run that has ended
""",
)
@click.argument("name", default="", shell_complete=seen_names)
@click.option("--failed", is_flag=True, help="Only calls that have failed: the last 200.")
@click.option("--running", is_flag=True, help="Only calls that run.")
@click.option("--slow", is_flag=True, help="Only those that run longer than most, longest first.")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@click.option("--csv", "as_csv", is_flag=True, help="For spreadsheets.")
def command(
    name: str, failed: bool, running: bool, slow: bool, as_json: bool, as_csv: bool
) -> None:
    """List calls that run, and that have failed lately, with their arguments. Their ids name them
    for `explain`, `logs` and `cancel`.

    NAME is whatever `gridengine ls` prints of a dispatcher, or the name of a run whose calls it
    runs; also of one that has ended, if there is a report of it: see `gridengine report`. Of very
    many calls a sample is shown, and their number.

    The exit status is 1 when there is no such dispatcher or run.
    """
    answer, runs = answer_of(name)
    status = answer.status
    if not runs:
        click.echo(heading(answer, name), err=True)
    rows = list(_rows(status, failed=failed, running=running, slow=slow))
    if as_json:
        print_json(rows)
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(Call.__struct_fields__)
        writer.writerows(asdict(one).values() for one in rows)
    else:
        console().print(table(COLUMNS, map(_shown, rows)))
        click.echo(
            f"{status.running:,} running, {status.waiting:,} waiting, {status.done:,} done, "
            f"{status.failed:,} failed; {len(rows):,} shown",
            err=True,
        )


def _rows(status: Status, *, failed: bool, running: bool, slow: bool) -> Iterator[Call]:
    if slow:
        yield from sorted(map(_running, _slow(status)), key=lambda one: -(one.seconds or 0))
        return
    if running or not failed:
        yield from map(_running, status.runs)
    if failed or not running:
        yield from map(_failed, reversed(status.failures))


def _slow(status: Status) -> Iterable[RunStatus]:
    usual = {one.name: one.p95_seconds for one in status.functions}
    return [run for run in status.runs if run.seconds > (usual.get(run.function) or 0.0)]


def _running(one: RunStatus) -> Call:
    return Call(
        one.id,
        one.call,
        call_arguments(one.arguments, one.place, one.form),
        "waits" if one.waits else "late" if one.late else "runs",
        one.seconds,
        one.host,
        one.job,
        one.attempt,
        one.memory,
        one.history[-1] if one.history else "",
        one.log,
    )


def _failed(one: FailureStatus) -> Call:
    return Call(
        one.id,
        one.call if one.calls == 1 else f"{one.call} and {one.calls - 1:,} more",
        call_arguments(one.arguments, one.place, one.form),
        "cancelled" if one.cancelled else "failed",
        one.seconds,
        one.host,
        one.job,
        one.attempts,
        one.peak_memory,
        cause_of(one),
        one.log,
    )


def _shown(one: Call) -> tuple[object, ...]:
    return (
        one.id,
        one.call,
        one.arguments,
        one.state,
        seconds(one.seconds),
        one.host,
        one.job,
        one.attempts,
        size(one.memory),
        one.why,
    )
