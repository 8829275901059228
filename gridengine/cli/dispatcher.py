"""`gridengine dispatcher` and `scale`: start, list, scale and end stand-alone dispatchers."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from msgspec.structs import replace

from gridengine.cli.completion import dispatcher_names
from gridengine.cli.console import (
    Group,
    command,
    console,
    echo,
    json_option,
    print_json,
    shown,
    table,
)
from gridengine.cli.scheduler_options import (
    arguments_of,
    dispatcher_options,
    entry_for,
    resource_options,
    resources_of,
)
from gridengine.cli.tunnel import StartCommand, connect_command, tunnel_options
from gridengine.dispatcher.standalone.dispatcher_folder import (
    DispatcherFolder,
    DispatcherState,
    StartOptions,
    working_directory,
)
from gridengine.display import plural
from gridengine.errors import GridEngineError
from gridengine.journal.lock_file import Holder
from gridengine.resources.demand import Demand, decode_demand, encode_demand
from gridengine.schedulers.registry import HAND_STARTED
from gridengine.watching.dispatcher_lookup import by_itself, new_or_known, standalone

CLOSE_SECONDS = 30.0
"""How long a dispatcher may take that is told to end at once."""
SILENT = "silent"
"""The state of a dispatcher that runs and does not answer."""


def words(name: str, options: StartOptions) -> str:
    """Return a description of a dispatcher's workers."""
    said = [f"{name}={value!r}" for name, value in options.arguments.items()]
    held = decode_demand(options.resources, 1.0).resources
    if options.scheduler == HAND_STARTED.name:
        default = f", with {held!r} unless told otherwise" if options.resources else ""
        return f"started by hand: gridengine worker {name}{default}"
    return f"{options.scheduler} {' '.join([*said, *map(repr, held)])}".rstrip()


def start(folder: DispatcherFolder, options: StartOptions, *, foreground: bool) -> Holder | None:
    """Start a dispatcher. Return the process that runs it once clients can connect. In the
    foreground this process becomes the dispatcher.

    Raises:
        GridEngineError: it does not start, or runs already; the text says why, or which process
        runs it.
    """
    from gridengine.dispatcher.standalone import background

    background.make_scheduler(options).close()  # raises for wrong options, before anything starts
    folder.make()
    lock = folder.take_lock()
    with contextlib.closing(lock), background.replacing_options(folder, options):
        if foreground:
            os.set_inheritable(lock.descriptor, True)
            command = background.process_command(folder.path, background.Inherited(lock.descriptor))
            os.execv(command[0], command)
        background.start(folder, lock)
    return folder.holder()


def ask(folder: DispatcherFolder, action: str, **arguments: Any) -> Any:
    """Let a dispatcher perform an action, and return its answer.

    Raises:
        GridEngineError: it does not run, does not answer, or cannot perform the action.
    """
    if folder.state() is not DispatcherState.RUNNING:
        raise folder.not_running()
    from gridengine.calls.remote import RemoteDispatcher  # imports ZeroMQ

    remote = RemoteDispatcher(folder.client_file, python="")
    try:
        return remote.control(action, arguments)
    finally:
        remote.close(detach=True)  # this client has no calls whose outcomes it must await


def status(folder: DispatcherFolder) -> dict[str, Any]:
    """Return the state of a dispatcher: `name`, `state`, `scheduler`, `restarts`, `folder`. For a
    running one also `pid`, `host`, `since`, `version` and `addresses`, and its own report of its
    clients, workers and calls.
    """
    options, holder, state = folder.options(), folder.holder(), folder.state()
    found: dict[str, Any] = {
        "name": folder.name,
        "state": state.value,
        "scheduler": options.scheduler,
        "restarts": options.restarts,
        "folder": str(folder.path),
    }
    if (far := folder.far_machine()) is not None:
        found["ssh"] = far.ssh
    if holder is not None:
        found |= {name: getattr(holder, name) for name in ("pid", "host", "since", "version")}
    if state is DispatcherState.RUNNING:
        found["addresses"] = list(folder.addresses())
        try:
            found |= ask(folder, "describe")
            us = socket.gethostname(), os.getpid()
            others = (one for one in found["clients"] if (one["host"], one["pid"]) != us)
            found["clients"] = [one for one in others if not one["gone"]]
        except GridEngineError as error:
            found |= {"state": SILENT, "error": error.message}
    return found


def stop(folder: DispatcherFolder, *, now: bool, again: bool = False) -> str:
    """End a dispatcher, and return the result in words. With `again` it is about to be started
    again, and its clients wait for that.

    Raises:
        GridEngineError: it does not answer. With `now`, this is raised only if it runs on another
        machine; on this one its processes are killed.
    """
    state = folder.state()
    if state is DispatcherState.DISCONNECTED:
        raise folder.not_running()
    if state is not DispatcherState.RUNNING:
        return f"dispatcher {folder.name} does not run"
    from gridengine.dispatcher.standalone import background

    try:
        ask(folder, "stop", now=now, again=again)
    except GridEngineError:
        if not now:
            raise
        background.end_processes(folder, CLOSE_SECONDS)
    try:  # a call may run for days, so Ctrl-C ends only the wait
        ended = background.wait_for_end(folder, CLOSE_SECONDS if now else float("inf"))
    except KeyboardInterrupt:
        echo(f"\ndispatcher {folder.name} ends once its calls have", err=True)
        raise
    if not ended:
        background.end_processes(folder, CLOSE_SECONDS)
    from gridengine.client.outliving_calls import runs_at  # imports SQLite

    runs = [] if again else runs_at(folder)
    left = " and ".join(f"{plural(run.left, 'call')} of the run {run.name!r}" for run in runs)
    goes_on = "or their results, and goes on with them once it is started again"
    return f"dispatcher {folder.name} has ended" + (f"; it keeps {left}, {goes_on}" if left else "")


_COLUMNS = (
    *("name", "state", "scheduler", "host", ">pid", "since", ">clients", ">workers"),
    *(">waiting", ">running", ">done", ">failed"),
)
_NARROW, _WITH_CALLS = 8, 115
"""How many columns are shown at a terminal that is narrower than `_WITH_CALLS` characters."""


def show_all(found: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each dispatcher."""
    out, rows = console(), []
    columns = _COLUMNS if out.width >= _WITH_CALLS else _COLUMNS[:_NARROW]
    for one in found:
        short = {**one, "clients": len(_processes(one["clients"]))} if "clients" in one else one
        rows.append([_shown(short, column.removeprefix(">")) for column in columns])
    out.print(table(columns, rows))


def show(found: Mapping[str, Any]) -> None:
    """Print the facts about a dispatcher, a line for each."""
    for name in found:
        echo(f"{name:10} {_shown(found, name)}")


def _processes(clients: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the clients' processes. A process is a client once for each of its named runs."""
    told = (
        f"{one['script'] or 'python'}: process {one['pid']} on {one['host']}" for one in clients
    )
    return list(dict.fromkeys(told))


def _shown(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if name == "since" and value is not None:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    if isinstance(value, list):
        return _LISTED[name](value) or "none" if name in _LISTED else ", ".join(map(str, value))
    return "" if value is None else shown(value)


_LISTED: Mapping[str, Callable[[list[Any]], str]] = {
    "clients": lambda clients: "; ".join(_processes(clients)),
    "left_runs": lambda runs: "; ".join(
        f"{one['run']}: {plural(one['calls'], 'call')}" for one in runs
    ),
}
"""The fields that hold lists of objects, and how each list is shown."""
EXIT_STATUS = {"running": 0, "died": 1, "ended": 3, "silent": 4, "disconnected": 4}
"""The exit status by state, as in init scripts (Linux Standard Base, Init Script Actions)."""


@click.group("dispatcher", cls=Group, short_help="Start and end stand-alone dispatchers.")
def dispatcher_command() -> None:
    """Start, list and end stand-alone dispatchers, which serve any number of scripts and notebooks.
    A script uses one by gridengine.Client("sweeps") in the place of a scheduler.

    The exit status is as the --help of each command says.

    Examples:
      gridengine dispatcher start sweeps --scheduler slurm --max-workers 200
      gridengine dispatcher list
      gridengine dispatcher status sweeps
      gridengine dispatcher stop sweeps
    """


dispatcher_command.add_command(connect_command)


@dispatcher_command.command("start", cls=StartCommand, short_help="Start a dispatcher.")
@click.argument("name", shell_complete=dispatcher_names)
@tunnel_options
@dispatcher_options
@resource_options
@click.option(
    "--restart",
    "restarts",
    is_flag=True,
    help="Start it again whenever it is killed.",
)
@click.option("--foreground", is_flag=True, help="Stay, until SIGTERM or Ctrl-C.")
def start_command(name: str, *, foreground: bool, **given: Any) -> None:
    """Start the dispatcher NAME, and return when clients can connect to it.

    A dispatcher that was started before keeps its options, except those that are given now; with
    --scheduler it keeps none. It logs to dispatcher.log in its folder.

    With --ssh it starts on another machine, in the background. This command stays, and is the
    tunnel by which scripts here use it: see `connect`.

    The exit status is 1 when it does not start, or runs already.

    Examples:
      gridengine dispatcher start here --scheduler processes --max-workers 8
      gridengine dispatcher start sweeps --scheduler slurm --partition main --max-workers 200
      gridengine dispatcher start big --scheduler grid_engine --cores 16 --memory 64 --restart
      gridengine dispatcher start mine --scheduler none  (then: gridengine worker mine)
      gridengine dispatcher start sweeps --foreground      (for systemd, or a batch script)
      gridengine dispatcher start sweeps --ssh me@login.cluster --scheduler slurm
    """
    folder = new_or_known(name)
    folder.check_here("dispatcher", "start", name)
    options = _options(folder, given)
    begun = start(folder, options, foreground=foreground)
    echo(f"dispatcher {folder.name} runs: {begun}")
    echo(f"its workers: {words(folder.name, options)}")
    echo(f'in a script: gridengine.Client("{folder.name}")')


def _options(folder: DispatcherFolder, given: dict[str, Any]) -> StartOptions:
    """Return the options for a start: those of the last start, overridden by the given ones. Where
    a scheduler is given, those of the last start are discarded.
    """
    scheduler, restarts = given.pop("scheduler"), given.pop("restarts")
    resources = encode_demand(Demand(resources_of(given)))[0]
    if scheduler or not folder.options_file.exists():
        name = scheduler or entry_for(None).name
        before = StartOptions(name, directory=working_directory())
    else:
        before = folder.options()
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


@dispatcher_command.command("list", short_help="List the stand-alone dispatchers.")
@json_option(": a list of status objects")
def list_command(*, as_json: bool) -> None:
    """Show for each dispatcher whether it runs, where, and how many calls it has.

    The exit status is 0 also when there are none.

    Examples:
      gridengine dispatcher list
      gridengine dispatcher list --json | jq '.[] | select(.state == "running") | .name'
    """
    found = [status(folder) for folder in DispatcherFolder.all()]
    if as_json:
        print_json(found)
    elif not found:
        echo("there are none; gridengine dispatcher start NAME starts one")
    else:
        show_all(found)


@dispatcher_command.command("status", short_help="Show the state of a dispatcher.")
@click.argument("name", shell_complete=dispatcher_names)
@json_option(": an object")
def status_command(name: str, *, as_json: bool) -> None:
    """Show whether the dispatcher NAME runs, where, since when, and how many calls it has.

    The exit status is 0 when it runs, 1 when it was killed (or there is none of this name), 3 when
    it has ended, 4 when it runs and does not answer, or its tunnel is closed.

    Examples:
      gridengine dispatcher status sweeps
      gridengine dispatcher status sweeps --json | jq .workers
      gridengine dispatcher status sweeps >/dev/null || gridengine dispatcher start sweeps
    """
    found = status(standalone(name))
    if as_json:
        print_json(found)
    else:
        show(found)
    sys.exit(EXIT_STATUS[found["state"]])


@dispatcher_command.command("stop", short_help="End a dispatcher.")
@click.argument("name", shell_complete=dispatcher_names)
@click.option("--now", is_flag=True, help="End the calls that run, and do not wait for them.")
def stop_command(name: str, *, now: bool) -> None:
    """End the dispatcher NAME and its workers, once the running calls have ended; no other call
    begins. Waiting calls are given up, except those of runs with a name: they go on when the
    dispatcher is started again.

    Ctrl-C ends only the wait. The exit status is 1 when there is none of this name; it is 0 also
    when it had ended before.

    Examples:
      gridengine dispatcher stop sweeps
      gridengine dispatcher stop sweeps --now
    """
    echo(stop(by_itself(name), now=now))


@dispatcher_command.command("restart", short_help="End a dispatcher, and start it again.")
@click.argument("name", shell_complete=dispatcher_names)
@click.option("--now", is_flag=True, help="End the calls that run, and do not wait for them.")
def restart_command(name: str, *, now: bool) -> None:
    """End the dispatcher NAME, and start it again with the same options, so that it reads new
    settings, for example. Its clients stay, and their calls go on. One that does not run is
    started.

    The exit status is 1 when there is none of this name, or it does not start.

    Examples:
      gridengine dispatcher restart sweeps
    """
    folder = by_itself(name)
    folder.check_here("dispatcher", "restart", name)
    echo(stop(folder, now=now, again=True))
    begun = start(folder, folder.options(), foreground=False)
    echo(f"dispatcher {folder.name} runs: {begun}")


@command("scale", short_help="Set how many workers a dispatcher has.")
@click.argument("name", shell_complete=dispatcher_names)
@click.argument("workers", type=click.IntRange(min=0), required=False)
@click.option(
    "--auto", is_flag=True, help="Return to as many workers as its calls need, within its bounds."
)
def scale_command(name: str, workers: int | None, *, auto: bool) -> None:
    """Have the dispatcher NAME keep this many WORKERS, whether they are busy or idle.

    When it has more, idle ones leave first, and busy ones after their calls. --auto returns to the
    bounds that it was started with.

    The exit status is 1 when it does not run.

    Examples:
      gridengine scale sweeps 50
      gridengine scale sweeps 0          (none; its calls wait)
      gridengine scale sweeps --auto
    """
    if (workers is None) is not auto:
        raise click.UsageError("say a number of workers, or --auto")
    folder = by_itself(name)
    bounds = {} if workers is None else {"minimum": workers, "maximum": workers}
    told = ask(folder, "scale", **bounds)
    least, most = told["minimum"], told["maximum"]
    words = plural(most, "worker") if least == most else f"between {least} and {most} workers"
    echo(f"dispatcher {folder.name}: {words}")
