"""`gridengine ls`: list dispatchers."""

from __future__ import annotations

import sys
import time
from itertools import islice

from gridengine.cli.console import command, console, echo, json_option, print_json, table
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.dispatcher.watch_messages import Identity, WatchAnswer
from gridengine.watching.connections import answers, process_of, sockets, why_blocked
from gridengine.watching.names import short_id
from gridengine.watching.phrases import seconds
from gridengine.watching.runs_on_disk import OtherRun, ended_answers, other_runs

COLUMNS = (
    *("name", "id", ">pid", "host", ">since", ">done", ">running", ">waiting", ">failed"),
    *("?>cancelled", ">workers", ">left", "script"),
)
ENDED_COLUMNS = (
    *("name", "id", ">pid", "host", "ended", ">took", ">done", ">failed", "?>cancelled", "script"),
)
MOST_ENDED = 5
WITH_SCRIPT = 100
"""How wide a terminal must be for the column with the path of the script."""


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
    ended = list(islice(ended_answers(), MOST_ENDED))
    if as_json:
        told = [_ended(one) for one in ended]
        print_json({"dispatchers": found, "elsewhere": elsewhere, "silent": silent, "ended": told})
    else:
        _show(found, elsewhere, silent)
        if not (found or elsewhere or silent):
            last = f"; last run: {others[0].folder}" if others and not ended else ""
            echo(f"no dispatcher runs{last}")
        if ended:
            echo("\nthe last runs that have ended:")
            console().print(table(ENDED_COLUMNS, map(_ended_row, ended)))
    sys.exit(0 if found or elsewhere or silent else 1)


def _show(found: list[WatchAnswer], elsewhere: list[OtherRun], silent: list[str]) -> None:
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


def _row(one: WatchAnswer) -> tuple[object, ...]:
    who, status = one.identity, one.status
    counts = status.done, status.running, status.waiting, status.failed
    told = *(f"{count:,}" for count in counts), _cancelled(status.cancelled)
    times = seconds(status.elapsed_seconds), seconds(status.left_seconds)
    return (*_names(who), times[0], *told, f"{status.worker_count:,}", times[1], who.script)


def _cancelled(count: int) -> str:
    return f"{count:,}" if count else ""


def _names(who: Identity) -> tuple[object, ...]:
    return who.name, short_id(who.run_id), who.pid, who.host


def _ended(one: WatchAnswer) -> dict[str, object]:
    """Return what is told of a run that has ended: `ended` is in seconds since 1970. Of a run whose
    process was killed, only its identity and its beginning are known.
    """
    status = one.status
    return {
        "identity": one.identity,
        "ended": one.identity.since + status.elapsed_seconds,
        "elapsed_seconds": status.elapsed_seconds,
        "done": status.done,
        "failed": status.failed,
        "cancelled": status.cancelled,
        "killed": one.killed,
    }


def _ended_row(one: WatchAnswer) -> tuple[object, ...]:
    who, status = one.identity, one.status
    if one.killed:
        return (*_names(who), "killed", "-", "-", "-", "", who.script)
    ended = time.localtime(who.since + status.elapsed_seconds)
    words = time.strftime("%Y-%m-%d %H:%M", ended), seconds(status.elapsed_seconds)
    counts = f"{status.done:,}", f"{status.failed:,}", _cancelled(status.cancelled)
    return (*_names(who), *words, *counts, who.script)
