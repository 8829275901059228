"""`gridengine cancel`: end calls."""

from __future__ import annotations

import sys

import click

from gridengine.cli.completion import watched_names
from gridengine.dispatcher.watch_messages import CANCEL
from gridengine.display import plural
from gridengine.watching.lookup import connect


@click.command(
    "cancel",
    short_help="End calls of a dispatcher.",
    epilog="""\b
Examples:
  gridengine cancel sweep 190 191       two calls of the map of sweep.py
  gridengine cancel 4242 --yes          all that process 4242 has, without a question
""",
)
@click.argument("name", shell_complete=watched_names)
@click.argument("calls", nargs=-1, metavar="[CALL]...")
@click.option("--yes", is_flag=True, help="Do not ask before all calls are ended.")
def command(name: str, calls: tuple[str, ...], yes: bool) -> None:
    """End calls: those that wait never run, those that run are sent SIGTERM, and SIGKILL after the
    grace time. Without a CALL all are ended, which cannot be undone. The script sees `Cancelled`.

    NAME is whatever `gridengine ls` prints of a dispatcher. It may also be the name of a run, or
    the script or process id of a client: then only their calls are ended. CALL is a number among a
    map's calls, an id of `gridengine calls`, or a job's name. The exit status is 1 when nothing was
    ended.
    """
    with connect(name) as watched:
        answer = watched.ask(most=0)
        if not calls and not yes:
            status = answer.status
            left = plural(status.waiting + status.running, "call")
            whose = f"{left} of {answer.identity.name}"
            if watched.run:
                whose = f"calls of {watched.run} at {answer.identity.name}"
            click.confirm(f"End all {whose}?", abort=True)
        ended = watched.ask(CANCEL, words=calls).count
    none = f"no such call waits or runs; `gridengine calls {name}` lists those that run"
    others = "; the others neither wait nor run" if 0 < ended < len(calls) else ""
    click.echo(f"{plural(ended, 'call')} ended{others}" if ended else none)
    sys.exit(0 if ended else 1)
