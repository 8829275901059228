"""The folder of a stand-alone dispatcher, and the files in it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from gridengine.settings.values import Settings
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
