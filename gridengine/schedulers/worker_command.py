"""The command line of a worker: which interpreter, which of its flags, which module and search
path.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_HIDING = frozenset({"-I", "-E", "-S", "-s"})
"""The flags that keep an interpreter from importing what the environment, or the user's own folder,
offers.
"""
_HIDING_PACKAGE = frozenset({"-I", "-E", "-S"})
_HERE_ONLY = frozenset({"-B", "-d", "-q", "-v"})
"""Those that change nothing of what calls do."""


def interpreter_flags() -> list[str]:
    """Return the options by which this interpreter was started, as `multiprocessing` passes them on
    (`-O`, `-W`, `-X`, ...).
    """
    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined, no-any-return]


def hiding_flags() -> list[str]:
    """Return those of them that keep an interpreter from importing what the environment offers."""
    return [flag for flag in interpreter_flags() if flag in _HIDING]


def python_command(python: str, flags: Sequence[str], module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this package; with `-P` it imports nothing from the
    working directory.
    """
    if not _HIDING_PACKAGE.intersection(flags):
        return [python, *flags, "-P", "-m", module, *arguments]
    run = f"import runpy; runpy.run_module({module!r}, None, '__main__', True)"
    return code_command(python, flags, run, *arguments)


def code_command(python: str, flags: Sequence[str], code: str, *arguments: str) -> list[str]:
    """Return the command that runs code which imports this package. It starts some milliseconds
    sooner than `python_command`, which needs `runpy`.

    Where the flags keep PYTHONPATH from being read, or site-packages from being found, the
    package's own folder is named.
    """
    if not _HIDING_PACKAGE.intersection(flags):
        return [python, *flags, "-P", "-c", code, *arguments]
    path = (
        os.pathsep.join(entry for entry in sys.path if Path(entry).is_absolute())
        if "-S" in flags
        else python_path("")
    )
    code = f"import sys; sys.path += filter(None, sys.argv.pop(1).split({os.pathsep!r})); {code}"
    return [python, *flags, "-P", "-c", code, path, *arguments]


def worker_command(python: str | Sequence[str], connection: Path, *resources: str) -> list[str]:
    """Return the argument list that starts a worker elsewhere, with those of this interpreter's
    flags that change what calls do.

    `python` is an interpreter, or the words that begin a command that acts as one. `resources`: one
    word, what the worker is to hold; none where that is what its dispatcher's other workers do.
    """
    *before, interpreter = [python] if isinstance(python, str) else python
    flags = [flag for flag in interpreter_flags() if flag[:2] not in _HERE_ONLY]
    command = python_command(interpreter, flags, "gridengine.worker", str(connection), *resources)
    return [*before, *command]


def python_path(inherited: str) -> str:
    """Return the PYTHONPATH for a worker, given the caller's own; empty when it needs none.

    Relative entries are dropped: they would mean another folder there. When this package is not
    installed but lies in a checkout, say, that folder comes last.
    """
    entries = [entry for entry in inherited.split(os.pathsep) if Path(entry).is_absolute()]
    home = Path(__file__).resolve().parents[2]
    if home.name not in ("site-packages", "dist-packages"):
        entries.append(str(home))
    return os.pathsep.join(dict.fromkeys(entries))
