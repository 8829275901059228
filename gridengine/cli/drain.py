"""`gridengine drain`: make workers leave a machine."""

from __future__ import annotations

import sys

import click

from gridengine.dispatcher.watch_messages import DRAIN
from gridengine.display import plural
from gridengine.errors import ClusterError
from gridengine.watching.dispatchers import connect_all


@click.command(
    "drain",
    short_help="Have workers leave a machine.",
    epilog="""\b
Examples:
  gridengine drain node7
""",
)
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
def command(hosts: tuple[str, ...]) -> None:
    """Have the workers of all your dispatchers on this machine leave these machines: the workers
    are assigned nothing more, and end when their running calls have ended. Other workers are
    requested if calls wait; the batch system may start them on the same machine, unless it is told
    not to.

    The exit status is 1 when there was none.
    """
    count, silent = 0, 0
    for watched in connect_all():
        try:
            count += watched.ask(DRAIN, words=hosts).count
        except ClusterError as error:
            silent += 1
            click.echo(str(error), err=True)
    nowhere = f"no worker is on {', '.join(hosts)}; `gridengine top` shows where they are"
    click.echo(f"{plural(count, 'worker')} will leave" if count else nowhere)
    sys.exit(0 if count and not silent else 1)
