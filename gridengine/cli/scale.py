"""`gridengine scale`: fix how many workers a dispatcher has."""

from __future__ import annotations

import click

from gridengine.cli import dispatcher_control
from gridengine.cli.completion import dispatcher_names
from gridengine.display import plural
from gridengine.watching.lookup import by_itself


@click.command(
    "scale",
    short_help="Set how many workers a dispatcher has.",
    epilog="""\b
Examples:
  gridengine scale sweeps 50
  gridengine scale sweeps 0          (none; its calls wait)
  gridengine scale sweeps --auto
""",
)
@click.argument("name", shell_complete=dispatcher_names)
@click.argument("workers", type=click.IntRange(min=0), required=False)
@click.option(
    "--auto", is_flag=True, help="Return to as many as its calls need, within its bounds."
)
def command(name: str, workers: int | None, *, auto: bool) -> None:
    """Have the dispatcher NAME keep this many WORKERS, whether they are busy or idle.

    When it has more, idle ones leave first, and busy ones after their calls. --auto returns to the
    bounds that it was started with.

    The exit status is 1 when it does not run.
    """
    if (workers is None) is not auto:
        raise click.UsageError("say a number of workers, or --auto")
    folder = by_itself(name)
    bounds = {} if workers is None else {"minimum": workers, "maximum": workers}
    told = dispatcher_control.ask(folder, "scale", **bounds)
    least, most = told["minimum"], told["maximum"]
    words = plural(most, "worker") if least == most else f"between {least} and {most} workers"
    click.echo(f"dispatcher {folder.name}: {words}")
