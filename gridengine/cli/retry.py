"""`gridengine retry`: run calls of a named run again."""

from __future__ import annotations

import sys
from typing import Any

import click

from gridengine.api.named_runs import run_named
from gridengine.cli.completion import dispatcher_names, run_names
from gridengine.cli.scheduler_options import arguments_of, scheduler_options
from gridengine.client.calls_elsewhere import dispatchers_with
from gridengine.display import plural
from gridengine.errors import short_repr
from gridengine.schedulers.base import Scheduler

MOST_TOLD = 10


@click.command(
    "retry",
    short_help="Run calls of a run with a name again.",
    epilog="""\b
Examples:
  gridengine retry sweep --failed
  gridengine retry sweep --failed --scheduler slurm --max-workers 20 --yes
  gridengine retry sweep --dispatcher sweeps      calls without a result, too
""",
)
@click.argument("name", shell_complete=run_names)
@click.option("--failed", is_flag=True, help="Only calls that have failed.")
@click.option(
    "--dispatcher",
    metavar="NAME",
    shell_complete=dispatcher_names,
    help="Have a stand-alone dispatcher run them.",
)
@scheduler_options
@click.option("--journal", help="Where the run is, if not in the run directory.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(
    name: str, failed: bool, dispatcher: str | None, journal: str | None, yes: bool, **given: Any
) -> None:
    """Run failed calls of the run NAME again, and without --failed also those that have no result.
    The run stores the new outcomes in the place of the old ones. Whatever the calls write elsewhere
    they write again, which cannot be undone; so you are asked first.

    NAME is whatever `gridengine runs` prints of it, or `gridengine ls` of the dispatcher that runs
    its calls. A script that waits for its calls has already seen their failures: it must end first,
    or retry by itself (retries=).

    The exit status is 1 when a call fails again, or when the run cannot be used.
    """
    run = run_named(name, journal=journal)
    name = run.name
    count = run.failed if failed else run.failed + run.left
    if not count:
        click.echo(f"{name}: nothing has failed{'' if failed else ', and nothing is left'}")
        return
    for folder in [] if failed else dispatchers_with(name, run.path):
        if folder.name != dispatcher:
            words = "has calls of it without a result, and makes them too while it runs"
            click.echo(f"the dispatcher {folder.name} {words}", err=True)
    if dispatcher and any(given.values()):
        raise click.UsageError("either --dispatcher, or options of a scheduler")
    if not yes:
        click.confirm(f"Run {plural(count, 'call')} of {name} again?", abort=True)
    with _scheduler(dispatcher, given) as scheduler:
        results = run.resubmit(failed_only=failed, scheduler=scheduler)
    errors = [one for one in results if isinstance(one, BaseException)]
    click.echo(f"{name}: {plural(len(results) - len(errors), 'call')} done, {len(errors)} failed")
    for error in errors[:MOST_TOLD]:
        click.echo(f"  {short_repr(error)}", err=True)
    sys.exit(1 if errors else 0)


def _scheduler(dispatcher: str | None, given: dict[str, Any]) -> Scheduler:
    if dispatcher:
        from gridengine.api.client import Client

        return Client(dispatcher)
    from gridengine.schedulers import default_entry
    from gridengine.schedulers.registry import entry_of

    name = given.pop("scheduler") or default_entry()[0].name
    return entry_of(name).make(**arguments_of(name, given))
