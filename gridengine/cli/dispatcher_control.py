"""The actions of `gridengine dispatcher`: start dispatchers in the background, ask them,
end them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from gridengine.cli.console import console, shown, table
from gridengine.dispatcher.standalone.dispatcher_folder import (
    DispatcherFolder,
    StartOptions,
    State,
    working_directory,
)
from gridengine.display import plural
from gridengine.errors import GridEngineError
from gridengine.journal.lock_file import Holder
from gridengine.resources.demand import decode_demand
from gridengine.schedulers.registry import HAND_STARTED

CLOSE_SECONDS = 30.0
"""How long a dispatcher may take that is told to end at once."""
SILENT = "silent"
"""The state of a dispatcher that runs and does not answer."""


def previous_options(folder: DispatcherFolder) -> StartOptions:
    """Return the options of a dispatcher's last start; for a new one, the defaults from the
    settings.
    """
    if folder.options_file.exists():
        return folder.options()
    from gridengine.schedulers import default_entry

    return StartOptions(default_entry()[0].name, directory=working_directory())


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
    with contextlib.closing(lock), background.keeping_options(folder, options):
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
    if folder.state() is not State.RUNNING:
        raise folder.not_running()
    from gridengine.calls.remote import RemoteDispatcher

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
    if holder is not None:
        found |= {
            "pid": holder.pid,
            "host": holder.host,
            "since": holder.since,
            "version": holder.version,
        }
    if state is State.RUNNING:
        found["addresses"] = list(folder.addresses())
        try:
            found |= ask(folder, "describe")
            found["clients"] = [one for one in found["clients"] if not (_is_us(one) or one["gone"])]
        except GridEngineError as error:
            found |= {"state": SILENT, "error": error.message}
    return found


def _is_us(client: Mapping[str, Any]) -> bool:
    return (client["host"], client["pid"]) == (socket.gethostname(), os.getpid())


def stop(folder: DispatcherFolder, *, now: bool, again: bool = False) -> str:
    """End a dispatcher, and return the result in words. With `again` it is about to be started
    again, and its clients wait for that.

    Raises:
        GridEngineError: it does not answer. With `now`, this is raised only if it runs on another
        machine; on this one its processes are killed.
    """
    if folder.state() is not State.RUNNING:
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
        click.echo(f"\ndispatcher {folder.name} ends once its calls have", err=True)
        raise
    if not ended:
        background.end_processes(folder, CLOSE_SECONDS)
    kept = [] if again else _kept(folder)
    words = f"dispatcher {folder.name} has ended"
    if kept:
        goes_on = "or what they gave, and goes on with them once it is started again"
        words += f"; it keeps {' and '.join(kept)}, {goes_on}"
    return words


def _kept(folder: DispatcherFolder) -> list[str]:
    """Return of which runs a dispatcher keeps calls whose results nobody has."""
    from gridengine.client.calls_elsewhere import runs_at

    return [f"{plural(run.left, 'call')} of the run {run.name!r}" for run in runs_at(folder)]


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
        click.echo(f"{name:10} {_shown(found, name)}")


def _processes(clients: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return which processes the clients are: one with runs of a name is a client for each."""
    told = (
        f"{one['script'] or 'python'}: process {one['pid']} on {one['host']}" for one in clients
    )
    return list(dict.fromkeys(told))


def _shown(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if name == "since" and value is not None:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    if name == "clients" and isinstance(value, list):
        return "; ".join(_processes(value)) or "none"
    if name == "left_runs" and isinstance(value, list):
        runs = (f"{one['run']}: {plural(one['calls'], 'call')}" for one in value)
        return "; ".join(runs) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else shown(value)
