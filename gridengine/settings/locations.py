"""The places of settings: the user's file, the project's file, the environment.

Kept import-light: start-up only checks whether any settings exist.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

USERS = Path("gridengine", "settings.toml")
PROJECTS = "gridengine.toml"
PREFIX = "GRIDENGINE_"


def any_said(environment: Mapping[str, str]) -> bool:
    """Return whether a file or the environment may have a setting. Usually none has, and then
    start-up skips reading them.
    """
    if any(name.startswith(PREFIX) for name in environment):
        return True
    files = (users_file(environment), projects_file(environment))
    return any(file is not None and os.path.lexists(file) for file in files)


def home_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the user's home, None for a user without one."""
    try:
        return Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    except RuntimeError:
        return None


def users_file(environment: Mapping[str, str]) -> Path | None:
    """Return the place of the user's settings, if any: `~/.config/gridengine/settings.toml`, or
    below `XDG_CONFIG_HOME`.
    """
    given, home = environment.get("XDG_CONFIG_HOME", ""), home_folder(environment)
    if given.startswith("/"):  # the XDG Base Directory Specification says to ignore other values
        return Path(given) / USERS
    return home / ".config" / USERS if home is not None else None


def projects_file(environment: Mapping[str, str]) -> Path | None:
    """Return the `gridengine.toml` of the working directory, or of the nearest folder above that
    has one.

    The search ends at a repository (a folder with `.git`) and at the home folder.
    """
    try:
        here = Path.cwd()
    except OSError:  # the working directory has been deleted
        return None
    home = home_folder(environment)
    for folder in (here, *here.parents):
        if os.path.lexists(folder / PROJECTS):
            return folder / PROJECTS
        if folder == home or os.path.lexists(folder / ".git"):
            return None
    return None
