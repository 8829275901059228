"""`gridengine ls`: list dispatchers."""

from __future__ import annotations

import sys
import time
from itertools import islice

from msgspec import Struct

from gridengine.cli.console import command, console, echo, json_option, print_json, table
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.dispatcher.watch_messages import Answer, Identity
from gridengine.watching.connections import answers, process_of, sockets, why_blocked
from gridengine.watching.names import short_id
from gridengine.watching.phrases import seconds
from gridengine.watching.runs_on_disk import OtherRun, ended_answers, other_runs

COLUMNS = (
    *("name", "id", ">pid", "host", ">since", ">done", ">running", ">waiting", ">failed"),
    *(">workers", ">left", "script"),
)
ENDED_COLUMNS = ("name", "id", ">pid", "host", "ended", ">took", ">done", ">failed", "script")
MOST_ENDED = 5
WITH_SCRIPT = 100
"""How wide a terminal must be for the column with the path of the script."""


class Ended(Struct, frozen=True):
    """A run that has ended: its identity, when it ended (seconds since 1970), how long it took, and
    how many of its calls were done and failed. Of a run whose process was `killed`, only its
    identity and its beginning are known.
    """

    identity: Identity
    ended: float
    elapsed_seconds: float
    done: int
    failed: int
    killed: bool = False


@command("ls", short_help="List the dispatchers that run.")
@json_option(": dispatchers (identity, status), elsewhere, silent, ended")
def ls_command(as_json: bool) -> None:
    """List your dispatchers on this machine, stand-alone ones on other machines, and scripts that
    run on other machines (from the run directory), with their progress. A dispatcher is in the
    process of a script or notebook, or stands alone. Below are the last runs that have ended: those
    that took over ten seconds, or in which a call failed, or whose process was killed.

    The exit status is 1 when none runs.

    Examples:
      gridengine ls
      gridengine ls --json | jq '.dispatchers[].status.done'
    """
    if reason := why_blocked():
        echo(f"runs on this machine cannot be watched: {reason}", err=True)
    found, silent = answers()
    if DispatcherFolder.all():
        from gridengine.watching import remote_connections as remote  # imports ZeroMQ

        more, mute = remote.answers(set(map(process_of, sockets())))
        found, silent = [*found, *more], [*silent, *mute]
    others = other_runs({one.identity.run_id for one in found})
    elsewhere = [one for one in others if one.under_way]
    ended = [_ended(one) for one in islice(ended_answers(), MOST_ENDED)]
    if as_json:
        print_json({"dispatchers": found, "elsewhere": elsewhere, "silent": silent, "ended": ended})
    else:
        _show(found, elsewhere, silent)
        if not (found or elsewhere or silent):
            last = f"; last run: {others[0].folder}" if others and not ended else ""
            echo(f"no dispatcher runs{last}")
        if ended:
            echo("\nthe last runs that have ended:")
            console().print(table(ENDED_COLUMNS, map(_ended_row, ended)))
    sys.exit(0 if found or elsewhere or silent else 1)


def _show(found: list[Answer], elsewhere: list[OtherRun], silent: list[str]) -> None:
    out = console()
    if found:
        shown = len(COLUMNS) - (out.width < WITH_SCRIPT)
        out.print(table(COLUMNS[:shown], [_row(one)[:shown] for one in found]))
    for words in silent:
        echo(words, err=True)
    for one in elsewhere:
        echo(
            f"on {one.host}, process {one.pid}, for {seconds(time.time() - one.since)}: "
            f"{one.folder}"
        )


def _row(one: Answer) -> tuple[object, ...]:
    who, status = one.identity, one.status
    counts = status.done, status.running, status.waiting, status.failed, status.worker_count
    times = seconds(status.elapsed_seconds), seconds(status.left_seconds)
    return (*_names(who), times[0], *(f"{count:,}" for count in counts), times[1], who.script)


def _names(who: Identity) -> tuple[object, ...]:
    return who.name, short_id(who.run_id), who.pid, who.host


def _ended(one: Answer) -> Ended:
    who, status = one.identity, one.status
    ended = who.since + status.elapsed_seconds
    return Ended(who, ended, status.elapsed_seconds, status.done, status.failed, one.killed)


def _ended_row(one: Ended) -> tuple[object, ...]:
    who = one.identity
    if one.killed:
        return (*_names(who), "killed", "-", "-", "-", who.script)
    ended = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.ended))
    took, done, failed = seconds(one.elapsed_seconds), f"{one.done:,}", f"{one.failed:,}"
    return (*_names(who), ended, took, done, failed, who.script)
