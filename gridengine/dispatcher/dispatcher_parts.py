"""Parts of a dispatcher that not all have, or that import ZeroMQ: they are imported when they are
made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gridengine.dispatcher.clients import Clients
from gridengine.dispatcher.core.events import Event
from gridengine.dispatcher.event_queue import EventQueue
from gridengine.dispatcher.local_workers import LocalWorkers
from gridengine.schedulers.base import Scheduler
from gridengine.settings.values import Settings

if TYPE_CHECKING:
    from gridengine.dispatcher.client_actions import Action
    from gridengine.dispatcher.client_listener import ClientListener
    from gridengine.dispatcher.metrics import MetricsFile
    from gridengine.dispatcher.mixed_workers import MixedWorkers
    from gridengine.dispatcher.remote_workers import RemoteWorkers
    from gridengine.dispatcher.standalone_files import Home
    from gridengine.journal.dispatcher_file import DispatcherFile
    from gridengine.wire.server import Server


def metrics_file(settings: Settings, run_id: str, name: str) -> MetricsFile | None:
    """Return the file that a run's figures are written to, if the settings name one."""
    if not settings.metrics_file:
        return None
    from gridengine.dispatcher.metrics import MetricsFile  # few want it

    return MetricsFile(settings.metrics_file, run_id, name)


def keep_in(file: DispatcherFile, clients: Clients, wake: Callable[[], object]) -> None:
    """Have what clients hand in kept by a file, which wakes the I/O thread."""
    from gridengine.dispatcher.client_journal import Journal

    file.wake = wake
    clients.keep_in(Journal(file))


def listen(
    server: Server, clients: Clients, actions: dict[str, Action], settings: Settings
) -> ClientListener:
    """Return what takes in clients at a socket."""
    from gridengine.dispatcher.client_listener import ClientListener  # imports ZeroMQ

    return ClientListener(server, clients, actions, settings)


def open_link(
    scheduler: Scheduler,
    settings: Settings,
    run_id: str,
    queue: EventQueue[Event],
    home: Home | None,
) -> LocalWorkers | RemoteWorkers | MixedWorkers:
    """Return the way to a scheduler's workers; `home` is the folder of a stand-alone dispatcher."""
    if scheduler.local and home is not None:
        from gridengine.dispatcher.mixed_workers import MixedWorkers  # imports ZeroMQ

        return MixedWorkers(scheduler, run_id=run_id, settings=settings, wake=queue.wake, home=home)
    if scheduler.local:
        return LocalWorkers(scheduler, run_id=run_id, settings=settings, wake=queue.wake)
    from gridengine.dispatcher.remote_workers import RemoteWorkers  # imports ZeroMQ

    return RemoteWorkers(scheduler, run_id=run_id, settings=settings, wake=queue.wake, home=home)
