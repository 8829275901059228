"""Whether this machine has any sign of a batch system. Most machines have none, and then nothing is
imported for one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gridengine.settings.locations import any_said
from gridengine.settings.systems import SYSTEMS
from gridengine.system import usable_processors

if TYPE_CHECKING:
    from gridengine.schedulers.allocation import Allocation


def why_no_grid_engine(environment: Mapping[str, str]) -> str:
    """Return the reason why no DRMAA can be used here; empty if one may be usable."""
    if library_paths(environment):
        return ""
    unset = "" if environment.get("SGE_ROOT") else " (SGE_ROOT is not set)"
    return (
        f"no DRMAA library was found{unset}; the setting drmaa_library or DRMAA_LIBRARY_PATH "
        "may say where it is"
    )


def library_paths(environment: Mapping[str, str], given: str = "") -> list[str]:
    """Return where a DRMAA library may be, the likeliest path first.

    The candidates are the given path, the one of the setting or of DRMAA_LIBRARY_PATH; else Grid
    Engine's own library, Debian's, and the linker's. Without SGE_ROOT, Grid Engine's libraries are
    useless: they end the process that opens a session.
    """
    named = (
        given or read_setting("drmaa_library", environment) or environment.get("DRMAA_LIBRARY_PATH")
    )
    if named:
        return [named]
    root = environment.get("SGE_ROOT")
    places = (
        [*sorted(Path(root, "lib").glob("*/")), Path("/usr/lib/gridengine-drmaa/lib")]
        if root
        else []
    )
    found = [
        str(file)
        for place in places
        for name in ("libdrmaa.so", "libdrmaa.so.1.0")
        if (file := place / name).is_file()
    ]
    return found + _linked(environment)


def read_setting(name: str, environment: Mapping[str, str]) -> str:
    """Return the value of a setting, empty by default. Settings are only read where there may be
    some: most processes have none, and start sooner.
    """
    if not any_said(environment):
        return ""
    from gridengine.settings.values import settings

    return str(getattr(settings(), name))


def _linked(environment: Mapping[str, str]) -> list[str]:
    """Return the linker's DRMAA library, if its cache (ldconfig(8)) has one: asking takes 20 ms."""
    cache = Path("/etc/ld.so.cache")
    if (
        not environment.get("LD_LIBRARY_PATH")
        and cache.is_file()
        and b"libdrmaa." not in cache.read_bytes()
    ):
        return []
    from ctypes.util import find_library

    found = find_library("drmaa")
    return [found] if found else []


def why_no_command(command: str, environment: Mapping[str, str]) -> str:
    """Return why the batch system with this command cannot be used here; empty if it may be."""
    import shutil  # here: it takes 3 ms, and is not needed if the user names a scheduler

    found = shutil.which(command, path=environment.get("PATH", os.defpath))
    return "" if found else missing(command)


def missing(command: str) -> str:
    return f"{command} is not installed here, or not on the PATH"


JOBS = tuple(one.job[0] for one in SYSTEMS)
"""A variable that the jobs of each batch system have."""


def this_allocation() -> Allocation | None:
    """Return the batch job that this process runs in; None if there is none."""
    if not any(name in os.environ for name in JOBS):
        return None  # as in most processes, which import nothing for it
    import socket

    from gridengine.schedulers.allocation import allocation_here

    return allocation_here(os.environ, socket.gethostname())


def usable_cores() -> int:
    """Return how many cores this process may use, but no more than its job has."""
    cores = usable_processors()
    allocation = this_allocation()
    return cores if allocation is None else min(cores, allocation.cores)
