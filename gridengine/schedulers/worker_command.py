"""The command line that starts a worker, and the shell script of a cluster task around it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from gridengine.call_context import BEGAN, EXPORTED, KEPT, SITE
from gridengine.errors import ConfigurationError

_HIDING = frozenset({"-I", "-E", "-S", "-s"})
"""Flags by which an interpreter ignores the environment's modules, or the user's own folder."""
_HIDING_PACKAGE = frozenset({"-I", "-E", "-S"})
_HERE_ONLY = frozenset({"-B", "-d", "-q", "-v"})
"""Flags that change nothing for calls."""


def interpreter_flags() -> list[str]:
    """Return this interpreter's flags, as `multiprocessing` passes them on (`-O`, `-W`, `-X`)."""
    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined, no-any-return]


def hiding_flags() -> list[str]:
    """Return the flags by which this interpreter ignores modules of the environment or the user."""
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
    sooner than `python_command`, which needs `runpy`. If the flags hide PYTHONPATH or
    site-packages, the package's folder is an argument.
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
    """Return the command that starts a worker elsewhere, with this interpreter's flags that matter
    to calls.

    python: an interpreter, or the words of a command that acts as one.
    resources: one word with the resources of the worker (default: as the dispatcher's other
    workers).
    """
    *before, interpreter = [python] if isinstance(python, str) else python
    flags = [flag for flag in interpreter_flags() if flag[:2] not in _HERE_ONLY]
    command = python_command(interpreter, flags, "gridengine.worker", str(connection), *resources)
    return [*before, *command]


def python_path(inherited: str) -> str:
    """Return the PYTHONPATH for a worker, given the caller's; empty if it needs none.

    Relative entries are dropped: the worker runs in another folder. The folder of this package
    comes last, unless the package is installed.
    """
    entries = [entry for entry in inherited.split(os.pathsep) if Path(entry).is_absolute()]
    home = Path(__file__).resolve().parents[2]
    if home.name not in ("site-packages", "dist-packages"):
        entries.append(str(home))
    return os.pathsep.join(dict.fromkeys(entries))


LIBRARIES = "LD_LIBRARY_PATH"
NOTE_VARIABLES = """gridengine_env=$(type -P env)  # the prologue may take its folder from PATH
declare -A gridengine_before
while IFS= read -rd '' gridengine_entry; do
    gridengine_before[${gridengine_entry%%=*}]=$gridengine_entry
done < <("$gridengine_env" -0)"""
FIND_CHANGED = """while IFS= read -rd '' gridengine_entry; do
    gridengine_name=${gridengine_entry%%=*}
    if [[ ${gridengine_before[$gridengine_name]-} == "$gridengine_entry" ]]; then
        unset 'gridengine_before[$gridengine_name]'  # unset expands it: not twice
    else
        gridengine_before[$gridengine_name]=
    fi
done < <("$gridengine_env" -0)"""
"""Leaves in that array the variables that the prologue has set, changed or removed."""


def line_of_text(name: str, value: object) -> str:
    """Return an argument; raise a TypeError or ConfigurationError unless it is a line of text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    if not value.strip() or "\n" in value or "\0" in value:
        raise ConfigurationError(f"{name} must be one line of text, not {value!r}")
    return value


def command_words(name: str, value: object) -> tuple[str, ...]:
    """Return an argument that must be one word of a command line, or several, each a line."""
    is_one = isinstance(value, str) or not isinstance(value, Sequence) or not value
    several: Iterable[object] = (value,) if is_one else cast(Iterable[object], value)
    return tuple(line_of_text(name, word) for word in several)


CONTAINERS = "apptainer", "singularity"


def container_words(name: str, value: object) -> tuple[str, ...]:
    """Return the words of the command that runs another one in an image, which is the last word.

    value: an image, or all words of the command, such as ("apptainer", "exec", "--nv",
        "image.sif"). The path of an image is made absolute: cluster tasks begin in another folder.
    """
    words = command_words(name, value)
    if isinstance(value, str):
        words = "apptainer", "exec", value
    *before, image = words
    if len(before) < 2 or Path(before[0]).name not in CONTAINERS or "exec" not in before:
        raise ConfigurationError(
            f"{name} must be an image, or the words of a command of apptainer that ends with one, "
            f"as ['apptainer', 'exec', '--nv', 'image.sif'], not {value!r}",
            hint="for other containers give all words by python=, and bind the run directory there",
        )
    return *before, image if "://" in image else str(Path(image).absolute())


def in_container(words: Sequence[str], *folders: Path) -> list[str]:
    """Return the words before a command that is to run in a container which sees these folders.

    Raises:
        ConfigurationError: a folder has a name that apptainer cannot bind.
    """
    *before, image = words
    for folder in folders:
        if {":", ","} & {*str(folder)}:
            raise ConfigurationError(
                f"{folder} has a colon or comma in its name: {before[0]} cannot bind it",
                hint="set GRIDENGINE_RUN_DIRECTORY to another folder",
            )
        before += ["--bind", str(folder)]
    return [*before, image]


def job_name(text: str) -> str:
    """Return a job name that any batch system takes: Grid Engine's begin with a letter, and have no
    blanks nor any of `/:@\\*?` (submit(1), -N); Slurm separates names by commas.
    """
    own = re.sub(r"[^A-Za-z0-9_.-]+", "-", text.rpartition("<locals>.")[2]).strip("-.")[:40]
    return own if own[:1].isalpha() else f"gridengine-{own}".strip("-")


def shell_lines(name: str, value: Any) -> tuple[str, ...]:
    """Return an argument; raise a TypeError unless it is one shell line, or several."""
    is_one = isinstance(value, str) or not isinstance(value, Iterable)
    lines: tuple[Any, ...] = (value,) if is_one else tuple(value)
    if not all(isinstance(line, str) for line in lines):
        raise TypeError(f"{name} must be shell lines, not {value!r}")
    return lines


def environment_variables(name: str, value: object) -> dict[str, str]:
    """Return an argument; raise a TypeError or ConfigurationError unless it maps variables."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must map names to strings, not {value!r}")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"{name} must map names to strings, not {key!r} to {text!r}")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) or "\0" in text:
            raise ConfigurationError(
                f"{name}: {key!r}={text!r} cannot be a variable of the environment"
            )
    return dict(value)


def launch_script(
    command: Sequence[str],
    *,
    prologue: Sequence[str] = (),
    environment: Mapping[str, str] | None = MappingProxyType({}),
    path: str = "",
    caller: Mapping[str, str] = MappingProxyType({}),
    first: str = "",
    more: str = "",
) -> str:
    """Return the shell script that a cluster task runs.

    With a prologue the shell is a login shell, which defines `module` and the like; if a line of
    the prologue fails, so does the script. Failures are printed with the name of the host, which
    the batch system tells too late.

    path: the PYTHONPATH.
    caller: the environment of the submitting process. It travels with the calls. The script itself
        has only the variables that the dynamic linker needs when Python starts, and the names by
        which the worker tells its own variables from the caller's. With `environment` None all
        variables are those of the batch system.
    first: shell lines that are run before everything else.
    more: further words of the command, for the shell.
    """
    libraries = caller.get(LIBRARIES, "") if environment is not None else ""
    lines = [
        f"#!/bin/bash{' -l' if prologue else ''}",
        # before the prologue, which may take its time
        f"read -r {BEGAN} _ < /proc/uptime; export {BEGAN}",
        *filter(None, [first, libraries and f"export {LIBRARIES}={shlex.quote(libraries)}"]),
    ]
    if prologue:
        lines += [
            NOTE_VARIABLES,
            "set -e",
            """trap 'echo "gridengine: the prologue failed with status $? on $HOSTNAME; """
            """the worker was not started" >&2' EXIT""",
            *prologue,
            "trap - EXIT",
            "set +e",
            FIND_CHANGED,
        ]
    if path:
        lines.append(f"export PYTHONPATH={shlex.quote(path)}${{PYTHONPATH:+:$PYTHONPATH}}")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
    kept = SITE if environment is None else "=".join(environment)
    changed = '$(printf "=%s" "${!gridengine_before[@]}")' if prologue else ""
    lines += [
        f"export {KEPT}={shlex.quote(kept)}{changed}",
        f"export {EXPORTED}={shlex.quote('='.join(filter(str.isascii, caller)))}",
        "shopt -s execfail",
        f"exec {shlex.join(command)}{more and f' {more}'}",
        "status=$?",
        'echo "gridengine: the worker could not be started on $HOSTNAME" >&2',
        "exit $status",
    ]
    return "\n".join(lines) + "\n"
