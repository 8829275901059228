"""The private folder with the sockets by which this user's dispatchers on this machine are
watched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

SOCKET = ".sock"
"""The suffix of the sockets' names; the process id and a unique text stand before it."""
RECORD = ".json"
"""The suffix of the file beside a socket that tells whose it is; it outlives a killed process."""


def runtime_folders(environment: Mapping[str, str], given: Path) -> Iterator[Path]:
    """Yield the places where the folder may be, best first. A watcher may have another environment
    than the script, as in a cron job, and therefore looks in all of them. A folder `given` in the
    settings is the only one.
    """
    if given != Path():
        yield given.expanduser()
        return
    user, said = os.getuid(), environment.get("XDG_RUNTIME_DIR", "")
    places = [Path(said)] if said.startswith("/") else []
    for place in dict.fromkeys((*places, Path(f"/run/user/{user}"))):
        if is_private(place):
            yield place / "gridengine"
    yield Path(f"/tmp/gridengine-{user}")


def is_private(folder: Path) -> bool:
    """Return whether this is a folder, not a link, that belongs to this user and that nobody else
    may enter.
    """
    try:
        facts = folder.lstat()
    except OSError:
        return False
    mine = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()
    return mine and not stat.S_IMODE(facts.st_mode) & 0o077


def make_runtime_folder(environment: Mapping[str, str], given: Path) -> Path:
    """Return the folder; make it if it is missing.

    Raises:
        OSError: no private folder exists, and none can be made.
    """
    for folder in runtime_folders(environment, given):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        except OSError:
            continue
        if is_private(folder):
            return folder
    whose = "nor any other" if given == Path() else "and the setting watch_directory names it"
    raise OSError(f"{folder} cannot be a folder of this user's alone (mode 0700), {whose}")
