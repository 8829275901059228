"""What `gridengine dispatcher` does: starts dispatchers in the background, asks them, ends them."""

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
from gridengine.errors import GridEngineError
from gridengine.journal.lock_file import Holder
from gridengine.resources.encoding import decode_demand
from gridengine.resources.units import plural
from gridengine.schedulers.registry import HAND_STARTED

CLOSE_SECONDS = 30.0
"""How long a dispatcher that is told to end at once may take to."""
SILENT = "silent"
"""The state of one that runs and does not answer."""


def kept_options(folder: DispatcherFolder) -> StartOptions:
    """Return how a dispatcher was started the last time, or what the settings say for a new one."""
    if folder.options_file.exists():
        return folder.options()
    from gridengine.schedulers import default_entry

    return StartOptions(default_entry()[0].name, directory=working_directory())


def words(name: str, options: StartOptions) -> str:
    """Return what workers a dispatcher of this name has."""
    said = [f"{name}={value!r}" for name, value in options.arguments.items()]
    held = decode_demand(options.resources, 1.0).resources
    if options.scheduler == HAND_STARTED.name:
        default = f", which hold {held!r} unless they say" if options.resources else ""
        return f"those that people start: gridengine worker {name}{default}"
    return f"{options.scheduler} {' '.join([*said, *map(repr, held)])}".rstrip()


def start(folder: DispatcherFolder, options: StartOptions, *, foreground: bool) -> Holder | None:
    """Start a dispatcher, and return who runs it once clients can connect. In the foreground this
    process becomes it.

    Raises:
        GridEngineError: it does not start, or runs already; the text says why, or who runs it.
    """
    from gridengine.dispatcher.standalone import background

    background.make_scheduler(options).close()  # what is wrong with the options is told here
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
    """Have a dispatcher do, or tell, something, and return its answer.

    Raises:
        GridEngineError: it does not run, does not answer, or cannot do so.
    """
    if folder.state() is not State.RUNNING:
        raise folder.not_running()
    from gridengine.calls.remote import RemoteDispatcher

    remote = RemoteDispatcher(folder.client_file, python="")
    try:
        return remote.control(action, arguments)
    finally:
        remote.close(detach=True)  # it has no calls, so nobody is to be told what becomes of them


def status(folder: DispatcherFolder) -> dict[str, Any]:
    """Return how a dispatcher is: `name`, `state`, `scheduler`, `restarts`, `folder`, and, of one
    that runs, `pid`, `host`, `since` and `version`, `addresses`, and what it tells of its clients,
    workers and calls.
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
    """End a dispatcher, and return what came of it in words. With `again` it is about to be started
    again: its clients wait for that.

    Raises:
        GridEngineError: it does not answer; with `now` only where it runs on another machine, else
            its processes are ended.
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
    try:  # A call may run for days; who waits may go.
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
"""How many columns are shown at a terminal that is not so wide."""


def show_all(found: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each dispatcher."""
    out, rows = console(), []
    columns = _COLUMNS if out.width >= _WITH_CALLS else _COLUMNS[:_NARROW]
    for one in found:
        short = {**one, "clients": len(_processes(one["clients"]))} if "clients" in one else one
        rows.append([_shown(short, column.removeprefix(">")) for column in columns])
    out.print(table(columns, rows))


def show(found: Mapping[str, Any]) -> None:
    """Print what is known of a dispatcher, a line for each."""
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
