"""Runs without a socket on this machine: they run on other machines, or have ended. The names of
their folders say what is known of them.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from gridengine.dispatcher.run_directory import CONNECTION, RUN_NAME, is_under_way
from gridengine.errors import ConfigurationError
from gridengine.settings.values import settings
from gridengine.watching.names import Known, short_id

MOST_LOOKED_AT = 20


T = TypeVar("T")


class OtherRun(Struct, frozen=True):
    """A run: its folder, its machine and process, when it began (seconds since 1970), and whether
    it is under way.
    """

    folder: str
    host: str
    pid: int
    since: float
    under_way: bool


def other_runs(known: set[str]) -> list[OtherRun]:
    """Return the last runs, the latest begun first, without those of these names. A run of another
    machine is under way if its address answers.
    """
    return [_read(one) for one in run_folders()[:MOST_LOOKED_AT] if one.name not in known]


def run_folders() -> list[Path]:
    """Return the folders of runs, the latest begun first."""
    found: list[Path] = []
    with contextlib.suppress(OSError, ConfigurationError):  # there have been none
        found = [one for one in settings().runs.iterdir() if RUN_NAME.fullmatch(one.name)]
    return sorted(found, key=lambda one: one.name, reverse=True)


def known_folder(folder: Path, thing: T) -> Known[T]:
    """Return the words that name a run, from its folder alone."""
    match, id = RUN_NAME.fullmatch(folder.name), folder.name
    assert match is not None
    own = short_id(id), match[3]
    return Known(id, thing, f"on {match[2]}", own, id=id, paths=(os.path.realpath(folder),))


def _read(folder: Path) -> OtherRun:
    match = RUN_NAME.fullmatch(folder.name)
    assert match is not None
    began = time.mktime(time.strptime(match[1], "%Y%m%d-%H%M%S"))
    file = folder / CONNECTION
    under_way = file.exists() and is_under_way(file)
    return OtherRun(str(folder), match[2] or "", int(match[3]), began, under_way)
