"""The folder with the sockets by which this user's dispatchers on this machine are watched: nobody
else may enter it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

SOCKET = ".sock"
"""How the names of the sockets end; before it stands the process id, and something unique."""
RECORD = ".json"
"""The same of the file beside a socket that says whose it is. It outlives a process that is
killed.
"""


def runtime_folders(environment: Mapping[str, str], given: Path) -> Iterator[Path]:
    """Yield where the folder may be, the best first: the script may have another environment than
    who watches it, as in a cron job. One that is `given`, in the settings, is the only one.
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
    """Return whether this is a folder, no link, of this user's that nobody else may enter."""
    try:
        facts = folder.lstat()
    except OSError:
        return False
    mine = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()
    return mine and not stat.S_IMODE(facts.st_mode) & 0o077


def make_runtime_folder(environment: Mapping[str, str], given: Path) -> Path:
    """Return the folder, made if need be.

    Raises:
        OSError: there is none that nobody else may enter, and none can be made.
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
