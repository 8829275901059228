"""The runs that are not watched by a socket: under way on other machines, or over. What is known of
them is in the names of their folders.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from msgspec import Struct

from gridengine.dispatcher.old_runs import CONNECTION, RUN_NAME, is_under_way
from gridengine.errors import ConfigurationError
from gridengine.settings.values import settings

MOST_LOOKED_AT = 20


class OtherRun(Struct, frozen=True):
    """A run: its folder, the machine and process it is or was of, when it began, in seconds of the
    epoch, and whether it is under way.
    """

    folder: str
    host: str
    pid: int
    since: float
    under_way: bool


def other_runs(known: set[str]) -> list[OtherRun]:
    """Return the last runs but those of these names, the last begun first; that one of another
    machine is under way is seen by its address.
    """
    found: list[tuple[str, Path]] = []
    with contextlib.suppress(OSError, ConfigurationError):  # there have been none
        found = [
            (one.name, one) for one in settings().runs.iterdir() if RUN_NAME.fullmatch(one.name)
        ]
    found.sort(reverse=True)
    return [_read(folder) for name, folder in found[:MOST_LOOKED_AT] if name not in known]


def _read(folder: Path) -> OtherRun:
    match = RUN_NAME.fullmatch(folder.name)
    assert match is not None
    began = time.mktime(time.strptime(match[1], "%Y%m%d-%H%M%S"))
    file = folder / CONNECTION
    under_way = file.exists() and is_under_way(file)
    return OtherRun(str(folder), match[2] or "", int(match[3]), began, under_way)
