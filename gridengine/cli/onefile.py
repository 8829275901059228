"""The entry of `dist/gridengine.pyz`: the command line, and a Python that has this package.

At the first start pex unpacks a virtual environment, whose interpreter runs this process.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from gridengine.errors import ConfigurationError

_OWN = ("-h", "--help", "--version")
PEX_ROOT = "PEX_ROOT"


def main() -> None:
    """Run the command line; or Python, if Python's options or a script come first. So a scheduler's
    `python=` may name the file, and `gridengine.pyz script.py` runs a script.
    """
    try:
        ensure_private(cache_folder(Path(sys.prefix)))
    except ConfigurationError as error:
        sys.exit(f"gridengine: {error}")
    if is_for_python(sys.argv[1:]):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    from gridengine.cli.main import main as command_line

    command_line(prog_name=Path(sys.argv[0]).name)


def is_for_python(arguments: Sequence[str]) -> bool:
    """Return whether an interpreter takes these arguments: `-P -m module`, `-c code`, a script."""
    first = arguments[0] if arguments else ""
    return (first.startswith("-") and first not in _OWN) or first.endswith(".py")


def cache_folder(environment: Path) -> Path:
    """Return the folder of everything that was unpacked, including this environment."""
    return next((one for one in environment.parents if one.name == "venvs"), environment).parent


def ensure_private(folder: Path) -> None:
    """Let nobody but its owner write to a folder, or anything below it.

    Raises:
        ConfigurationError: the folder is another user's (root's is fine), or cannot be changed:
        then code that is run from it could be somebody else's.
    """
    hint = f"set {PEX_ROOT} to a folder of your own"
    try:
        found = folder.stat()
        if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) != 0o700:
            folder.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(
            f"{folder}, where this file is unpacked: {error.strerror}", hint=hint
        ) from None
    if found.st_uid not in (os.getuid(), 0):
        raise ConfigurationError(
            f"{folder}, where this file is unpacked, belongs to another user", hint=hint
        )
