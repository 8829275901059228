"""The folder of a stand-alone dispatcher, and the files in it."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from gridengine.errors import ConfigurationError
from gridengine.settings.values import Settings, settings
from gridengine.wire.connection_file import ServerKeys

DISPATCHERS = "dispatchers"
SERVER, WORKER, CLIENT, WATCHER = "server.json", "worker.json", "client.json", "watcher.json"
"""All keys and ports, kept over restarts; and what workers, clients, and those who may only look,
connect by: each has its own keys, and no other.
"""
LAUNCHES = "launches.json"
"""What the batch system was asked for."""
JOURNAL = "journal.sqlite"
"""What clients have handed in, and what has come of it."""


class KeptKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """What a stand-alone dispatcher keeps over restarts: its number, by which its workers know it,
    and the keys and ports of the sockets for workers and for clients.
    """

    run_id: str
    workers: ServerKeys
    clients: ServerKeys


class Home(Struct, frozen=True):
    """Where a stand-alone dispatcher is at home: its folder, and what it has kept. With a journal
    `epoch` is the number of this process among those that are one dispatcher, else 0. `output`: the
    descriptors where what calls print on this machine goes; without them there is a log of it.
    """

    folder: Path
    kept: KeptKeys
    epoch: int = 0
    output: tuple[int, int] | None = None


def folder_of(name: str, settings: Settings) -> Path:
    """Return the folder of the dispatcher of this name."""
    return settings.runs / DISPATCHERS / name


def client_file(dispatcher: str) -> Path:
    """Return the connection file for clients of a dispatcher, by its name or a path.

    Raises:
        ConfigurationError: there is none.
    """
    given = Path(dispatcher)
    path = given if os.sep in dispatcher else folder_of(dispatcher, settings()) / CLIENT
    if path.is_dir():
        path /= CLIENT
    if not path.exists():
        name = path.parent.name if path.name == CLIENT else path.name
        raise ConfigurationError(
            f"no dispatcher {dispatcher!r} runs: there is no {path}",
            hint=f"start one: gridengine dispatcher start {name}",
        )
    return path
