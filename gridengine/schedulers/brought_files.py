"""Workers whose nodes share no files with this machine: the files that the batch system's own
transfer brings to the scratch folder of a job, and the lines of the workers' script that use them.

The script itself travels as the job's program. Beside it the scratch folder gets the connection
file, the Python of the worker if `python=` names a file of this machine, and the modules of the
user's own that this process has imported. Calls run in the scratch folder.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gridengine.call_context import SCRATCH
from gridengine.errors import ConfigurationError
from gridengine.schedulers.worker_command import command_words
from gridengine.serialize.users_modules import is_own_module, parts_of

ONE_FILE = ".pyz"
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
UNPACKED = "unpacked-environment"
"""The folder into which an archive of an environment is unpacked; no module has such a name."""
NOT_BROUGHT = "its files could not be brought to its node"
"""The reason of a job's end, for systems that say no more of it."""
_NOT_SENT = frozenset({"__main__", "__mp_main__", "sitecustomize", "usercustomize"})


class BroughtFiles(NamedTuple):
    """The files that a job is brought besides the connection file and the user's modules.

    words: the words of the worker's Python there.
    files: what it is made of.
    unpacking: the shell lines that make it ready.
    """

    words: Sequence[str]
    files: Sequence[Path] = ()
    unpacking: Sequence[str] = ()

    @property
    def lines(self) -> list[str]:
        """The shell lines that begin the script, in the scratch folder. There is one log, and the
        job has no home.
        """
        return ["exec 2>&1", f'export {SCRATCH}="$PWD" HOME="$PWD"', *self.unpacking]

    def all_files(self, connection: Path, unbrought: re.Pattern[str]) -> list[Path]:
        """Return all files and folders that a job is brought now.

        Raises:
            ConfigurationError: the path of one has what matches `unbrought`: the batch system would
                misread it.
        """
        found = list(dict.fromkeys([connection, *self.files, *_own_modules()]))
        for path in found:
            if match := unbrought.search(str(path)):
                raise ConfigurationError(
                    f"{path} has {match[0]!r} in its path: the batch system cannot bring it to a "
                    "node",
                    hint="give it another name, or move it to another folder",
                )
        return found


def brought_files(python: object) -> BroughtFiles:
    """Return the files for an argument `python=`: the path of the one file or of an archive of an
    environment, which are brought; else the words of an interpreter that nodes have.

    Raises:
        TypeError, ConfigurationError: it is not given, no words, or there is no such file.
    """
    if python is None:
        # The one file says so of the process that it runs.
        python = os.environ.get("PEX", "")
        if not python.endswith(ONE_FILE):
            raise ConfigurationError(
                f"shared_files=False needs python=: nodes may not have {sys.executable}",
                hint="name the one file (`make onefile`) or an archive of an environment, as "
                "python='gridengine.pyz' or python='env.tar.gz': it is brought to each node; or "
                "the path of a Python that the nodes have",
            )
    words = command_words("python", python)
    path = Path(words[0])
    if len(words) > 1 or not path.name.endswith((ONE_FILE, *ARCHIVES)):
        return BroughtFiles(words)
    if not path.is_file():
        raise ConfigurationError(
            f"python={words[0]!r}: there is no such file to bring to the nodes"
        )
    path, name = path.absolute(), shlex.quote(path.name)
    if path.name.endswith(ONE_FILE):
        return BroughtFiles([f"./{path.name}"], [path], [f"chmod u+x {name}"])
    unpack = (
        f"mkdir {UNPACKED} && tar -xf {name} -C {UNPACKED} || "
        f'{{ echo "gridengine: the worker could not be started on $HOSTNAME:" {name} '
        '"cannot be unpacked"; exit 1; }'
    )
    return BroughtFiles([f"{UNPACKED}/bin/python"], [path], [unpack])


def _own_modules() -> Iterator[Path]:
    """Yield the files of the user's own modules that are imported in this process, and the folders
    of packages.
    """
    for name, module in list(sys.modules.items()):
        if "." in name or name in _NOT_SENT or not isinstance(module, types.ModuleType):
            continue
        if is_own_module(module):
            parts = parts_of(module)
            place = Path(next(iter(parts.get("__path__", ())), parts.get("__file__") or ""))
            # A module that was loaded under another name is found by no import.
            if place.name.partition(".")[0] == name and place.exists():
                yield place.absolute()
