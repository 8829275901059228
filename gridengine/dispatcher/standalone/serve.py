"""`serve`: run a dispatcher for clients in other processes until it is told to stop."""

from __future__ import annotations

import os
import platform
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from gridengine._version import __version__
from gridengine.dispatcher.io_thread import DispatcherThread
from gridengine.dispatcher.run_directory import (
    CLIENT,
    JOURNAL,
    SERVER,
    WATCHER,
    WORKER,
    Home,
    StoredIdentity,
    new_run_id,
)
from gridengine.dispatcher.serving.client_listener import Action, ClientListener, RemoteFollower
from gridengine.dispatcher.serving.shared_journal import open_file
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.display import log
from gridengine.errors import GridEngineError, safe_repr
from gridengine.schedulers.base import Scheduler
from gridengine.settings.values import Settings
from gridengine.system.machine import started, this_machine
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ClientConnection, load_private, replace_private, to_json
from gridengine.wire.messages import ClientHello
from gridengine.wire.server import Server
from gridengine.wire.sockets import new_keys

SIGNAL_SECONDS = 1.0
"""The main thread wakes this often. Signal handlers run in this thread, and an endless wait would
miss a signal that the kernel delivers to another thread, or just before the wait.
"""
MOST_CLIENTS = 200
"""At least this many clients may be connected at a time."""


def serve(
    folder: Path,
    scheduler: Scheduler,
    settings: Settings,
    *,
    stopped: threading.Event | None = None,
    ready: Callable[[], object] = lambda: None,
    temporary: bool = False,
    output: tuple[int, int] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Run a dispatcher in this folder until `stopped` is set or a client stops it. The folder is
    made if need be.

    ready: called once clients can connect.
    temporary: the dispatcher is never started again, and its clients do not wait for that.
    output: the descriptors for the output of calls on this machine; by default a log in the folder.
    clock: the I/O thread's.

    Raises:
        ConfigurationError: the folder cannot be used, or no socket can be made.
        VersionMismatch: the journal has calls of another version of Python.
        GridEngineError: the dispatcher has failed; its journal is there for the next process.
    """
    stopped = stopped or threading.Event()
    DispatcherFolder(folder).make()
    stored = stored_identity(folder)
    journal = open_file(folder / JOURNAL, clock)
    server = Server(
        host=settings.host,
        workers=MOST_CLIENTS,
        keys=stored.clients,
        greeting=ClientHello,
        epoch=journal.epoch,
        ports=settings.port_range,
        clock=clock,
    )
    home = Home(folder, stored, journal.epoch, output)
    dispatcher = DispatcherThread(
        scheduler, settings, server=server, home=home, journal=journal, clock=clock
    )
    try:
        _introduce(dispatcher, home, server, stopped, temporary=temporary)
        ready()
        dispatcher.when_ended(stopped.set)
        while not stopped.wait(SIGNAL_SECONDS):
            pass
        if isinstance(dispatcher.failure, GridEngineError):
            raise dispatcher.failure
        if dispatcher.failure is not None:  # an error, so that the supervisor starts it again
            raise GridEngineError(f"its thread failed: {safe_repr(dispatcher.failure)}")
    finally:
        for name in (CLIENT, WATCHER, WORKER):
            (folder / name).unlink(missing_ok=True)
        dispatcher.close()


def _introduce(
    dispatcher: DispatcherThread,
    home: Home,
    server: Server,
    stopped: threading.Event,
    *,
    temporary: bool,
) -> None:
    """Let clients and watchers find the dispatcher, and ask for its actions."""
    folder, stored, listener = home.folder, home.stored, dispatcher.listener
    assert listener is not None  # because there is a server
    dispatcher.name = folder.name
    dispatcher.script = f"gridengine dispatcher start {folder.name}"
    if temporary:
        dispatcher.script = "gridengine.LocalDispatcher"
        listener.ends = True
    dispatcher.actions.update(_actions(dispatcher, listener, stopped))
    stored = replace(stored, clients=server.keys, workers=dispatcher.worker_keys or stored.workers)
    connection = _connection(folder.name, server, dispatcher.settings)
    _write_files(folder, stored, replace(connection, returns=not temporary))
    log().info("clients find this dispatcher by %s", folder / CLIENT)


def stored_identity(folder: Path) -> StoredIdentity:
    """Return the stored identity of the dispatcher of a folder, or a new one.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    path = folder / SERVER
    if path.exists():
        return load_private(path, StoredIdentity)
    return StoredIdentity(new_run_id("dispatcher-"), new_keys(), new_keys(watchers=True))


def _connection(name: str, server: Server, settings: Settings) -> ClientConnection:
    """Return the content of the file by which clients connect."""
    keys, pid = server.keys, os.getpid()
    return ClientConnection(
        name=name,
        addresses=server.addresses,
        version=__version__,
        host=socket.gethostname(),
        pid=pid,
        beat_seconds=settings.beat_seconds,
        server_key=keys.public,
        client_public=keys.peer_public,
        client_secret=keys.peer_secret,
        machine=this_machine(),
        started=started(pid),
    )


def _write_files(folder: Path, stored: StoredIdentity, connection: ClientConnection) -> None:
    """Write the identity, and the files by which clients and watchers connect."""
    keys = stored.clients
    watcher = replace(
        connection, client_public=keys.watcher_public, client_secret=keys.watcher_secret
    )
    replace_private(folder / SERVER, to_json(stored))
    replace_private(folder / CLIENT, to_json(connection))
    replace_private(folder / WATCHER, to_json(watcher))


def _actions(
    dispatcher: DispatcherThread, listener: ClientListener, stopped: threading.Event
) -> dict[str, Action]:
    """Return the actions that clients may ask for."""

    def stop(*, now: bool = False, again: bool = False) -> bool:
        if not again:
            listener.ends = True
        if now:
            stopped.set()
        else:
            dispatcher.drain(stopped.set)
        return True

    def scale(minimum: int | None = None, maximum: int | None = None) -> dict[str, int]:
        least, most = dispatcher.scale(minimum, maximum)
        return {"minimum": least, "maximum": most}

    def follow(request: str, follower: RemoteFollower) -> msgspec.Raw:
        return msgspec.Raw(dispatcher.watched(request, follower))

    def unfollow(number: int, follower: RemoteFollower) -> None:
        dispatcher.unfollow(RemoteFollower(follower.peer, number, follower.server))

    def note_fault(path: str, error: str, follower: RemoteFollower) -> None:
        listener.note_fault(follower.peer, path, error)

    return {
        "stop": Action(stop),
        "note_fault": Action(note_fault, follows=True),
        "scale": Action(scale),
        "status": Action(dispatcher.current_status, looks=True),
        "describe": Action(lambda: _description(dispatcher, listener), looks=True),
        "watch": Action(lambda request: msgspec.Raw(dispatcher.watched(request)), looks=True),
        "follow": Action(follow, looks=True, follows=True),
        "unfollow": Action(unfollow, looks=True, follows=True),
        "act": Action(lambda request: msgspec.Raw(dispatcher.watched(request, may_act=True))),
    }


def _description(dispatcher: DispatcherThread, listener: ClientListener) -> dict[str, Any]:
    """Return facts about the dispatcher and its clients, for `Client` and the command line."""
    seen = dispatcher.snapshot()
    counts = {number: asdict(one) for number, one in seen.clients.items()}
    return {
        "version": __version__,
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "workers": seen.workers,
        "waiting": seen.waiting,
        "running": seen.calls_running,
        "done": seen.done,
        "failed": seen.failed,
        "cancelled": seen.cancelled,
        "clients": [{**one, **counts.get(one["number"], {})} for one in listener.seen()],
        "left_runs": listener.left(),
    }
