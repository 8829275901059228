"""`gridengine dispatcher`: start, list and end stand-alone dispatchers. This module parses and
prints; `dispatcher_control` acts.
"""

from __future__ import annotations

import sys
from typing import Any

import click
from msgspec.structs import replace

from gridengine.cli import dispatcher_control
from gridengine.cli.completion import dispatcher_names
from gridengine.cli.console import print_json
from gridengine.cli.scheduler_options import (
    arguments_of,
    dispatcher_options,
    resource_options,
    resources_of,
)
from gridengine.dispatcher.standalone.dispatcher_folder import (
    DispatcherFolder,
    StartOptions,
    working_directory,
)
from gridengine.resources.demand import Demand
from gridengine.resources.encoding import encode_demand
from gridengine.watching.lookup import by_itself, new_or_known, standalone

EXIT_STATUS = {"running": 0, "died": 1, "ended": 3, "silent": 4}
"""The exit status by state, as in init scripts (Linux Standard Base, Init Script Actions)."""
RESOURCES = ("cores", "memory", "walltime", "gpus", "token")


@click.group(
    "dispatcher",
    short_help="Start and end stand-alone dispatchers.",
    epilog="""\b
Examples:
  gridengine dispatcher start sweeps --scheduler slurm --max-workers 200
  gridengine dispatcher list
  gridengine dispatcher status sweeps
  gridengine dispatcher stop sweeps
""",
)
def command() -> None:
    """Start, list and end stand-alone dispatchers, which serve any number of scripts and notebooks.
    A script uses one by gridengine.Client("sweeps") in the place of a scheduler.

    The exit status is as the --help of each command says.
    """


@command.command(
    short_help="Start a dispatcher in the background.",
    epilog="""\b
Examples:
  gridengine dispatcher start here --scheduler processes --max-workers 8
  gridengine dispatcher start sweeps --scheduler slurm --partition main --max-workers 200
  gridengine dispatcher start big --scheduler grid_engine --cores 16 --memory 64 --restart
  gridengine dispatcher start mine --scheduler none  (then: gridengine worker mine)
  gridengine dispatcher start sweeps --foreground      (for systemd, or a batch script)
""",
)
@click.argument("name", shell_complete=dispatcher_names)
@dispatcher_options
@resource_options
@click.option(
    "--restart",
    "restarts",
    is_flag=True,
    help="Have it started again whenever it is killed.",
)
@click.option("--foreground", is_flag=True, help="Stay, until SIGTERM or Ctrl-C.")
def start(name: str, *, foreground: bool, **given: Any) -> None:
    """Start the dispatcher NAME, and return when clients can connect to it.

    A dispatcher that was started before keeps its options, except those that are given now; with
    --scheduler it keeps none. It logs to dispatcher.log in its folder. The exit status is 1 when it
    does not start, or runs already.
    """
    folder = new_or_known(name)
    options = _options(folder, given)
    begun = dispatcher_control.start(folder, options, foreground=foreground)
    click.echo(f"dispatcher {folder.name} runs: {begun}")
    click.echo(f"its workers: {dispatcher_control.words(folder.name, options)}")
    click.echo(f'in a script: gridengine.Client("{folder.name}")')


def _options(folder: DispatcherFolder, given: dict[str, Any]) -> StartOptions:
    """Return the options for a start: the previous ones, overridden by the given ones. A given
    scheduler discards the previous options.
    """
    scheduler, restarts = given.pop("scheduler"), given.pop("restarts")
    resources = encode_demand(Demand(resources_of(**{one: given.pop(one) for one in RESOURCES})))[0]
    if scheduler:
        before = StartOptions(scheduler, directory=working_directory())
    else:
        before = dispatcher_control.previous_options(folder)
    try:
        arguments = arguments_of(before.scheduler, given)
    except click.UsageError as error:
        if scheduler:
            raise
        words = f"{error.message}, the scheduler of {folder.name}; --scheduler names another"
        raise click.UsageError(words, error.ctx) from None
    return replace(
        before,
        arguments={**before.arguments, **arguments},
        resources=list({**dict(before.resources), **dict(resources)}.items()),
        restarts=restarts or before.restarts,
    )


@command.command(
    "list",
    short_help="List the stand-alone dispatchers.",
    epilog="""\b
Examples:
  gridengine dispatcher list
  gridengine dispatcher list --json | jq '.[] | select(.state == "running") | .name'
""",
)
@click.option("--json", "as_json", is_flag=True, help="For scripts: a list of status objects.")
def list_all(*, as_json: bool) -> None:
    """Show for each dispatcher whether it runs, where, and how many calls it has.

    The exit status is 0 also when there are none.
    """
    found = [dispatcher_control.status(folder) for folder in DispatcherFolder.all()]
    if as_json:
        print_json(found)
    elif not found:
        click.echo("there are none; gridengine dispatcher start NAME starts one")
    else:
        dispatcher_control.show_all(found)


@command.command(
    short_help="Show the state of a dispatcher.",
    epilog="""\b
Examples:
  gridengine dispatcher status sweeps
  gridengine dispatcher status sweeps --json | jq .workers
  gridengine dispatcher status sweeps >/dev/null || gridengine dispatcher start sweeps
""",
)
@click.argument("name", shell_complete=dispatcher_names)
@click.option("--json", "as_json", is_flag=True, help="For scripts: an object.")
def status(name: str, *, as_json: bool) -> None:
    """Show whether the dispatcher NAME runs, where, since when, and how many calls it has.

    The exit status is 0 when it runs, 1 when it was killed (or there is none of this name), 3 when
    it has ended, 4 when it runs and does not answer.
    """
    found = dispatcher_control.status(standalone(name))
    if as_json:
        print_json(found)
    else:
        dispatcher_control.show(found)
    sys.exit(EXIT_STATUS[found["state"]])


@command.command(
    short_help="End a dispatcher.",
    epilog="""\b
Examples:
  gridengine dispatcher stop sweeps
  gridengine dispatcher stop sweeps --now
""",
)
@click.argument("name", shell_complete=dispatcher_names)
@click.option("--now", is_flag=True, help="End the calls that run, and do not wait for them.")
def stop(name: str, *, now: bool) -> None:
    """End the dispatcher NAME and its workers, once the running calls have ended; no other call
    begins. Waiting calls are given up, except those of runs with a name: they go on when the
    dispatcher is started again.

    Ctrl-C ends only the wait. The exit status is 1 when there is none of this name; it is 0 also
    when it had ended before.
    """
    click.echo(dispatcher_control.stop(by_itself(name), now=now))


@command.command(
    short_help="End a dispatcher, and start it again.",
    epilog="""\b
Examples:
  gridengine dispatcher restart sweeps
""",
)
@click.argument("name", shell_complete=dispatcher_names)
@click.option("--now", is_flag=True, help="End the calls that run, and do not wait for them.")
def restart(name: str, *, now: bool) -> None:
    """End the dispatcher NAME, and start it again with the same options, so that it reads new
    settings, for example. Its clients stay, and their calls go on. One that does not run is
    started.

    The exit status is 1 when there is none of this name, or it does not start.
    """
    folder = by_itself(name)
    click.echo(dispatcher_control.stop(folder, now=now, again=True))
    begun = dispatcher_control.start(folder, folder.options(), foreground=False)
    click.echo(f"dispatcher {folder.name} runs: {begun}")
