"""The shell script that a cluster task runs, and the arguments of schedulers that go into it: pure
functions.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from gridengine.errors import ConfigurationError
from gridengine.worker.environment import BEGAN, EXPORTED, KEPT, SITE

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
"""What is left in that array are the variables that the prologue has set, changed or removed."""


def line_of_text(name: str, value: object) -> str:
    """Return an argument that is one line of text.

    Raises:
        TypeError, ConfigurationError: it is not; the error names the argument and the value.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    if not value.strip() or "\n" in value or "\0" in value:
        raise ConfigurationError(f"{name} must be one line of text, not {value!r}")
    return value


def words(name: str, value: object) -> tuple[str, ...]:
    """Return an argument that is one word of a command line, or several.

    Raises:
        TypeError, ConfigurationError: it is not, or has none.
    """
    is_one = isinstance(value, str) or not isinstance(value, Sequence) or not value
    several: Iterable[object] = (value,) if is_one else cast(Iterable[object], value)
    return tuple(line_of_text(name, word) for word in several)


def job_name(text: str) -> str:
    """Return a name that any batch system takes for a job: Grid Engine's begin with a letter, and
    hold neither blanks nor any of `/:@\\*?` (submit(1), -N); Slurm's lists of names have commas.
    """
    own = re.sub(r"[^A-Za-z0-9_.-]+", "-", text.rpartition("<locals>.")[2]).strip("-.")[:40]
    return own if own[:1].isalpha() else f"gridengine-{own}".strip("-")


def shell_lines(name: str, value: Any) -> tuple[str, ...]:
    """Return the lines of an argument that is one, or several.

    Raises:
        TypeError: it is not.
    """
    is_one = isinstance(value, str) or not isinstance(value, Iterable)
    lines: tuple[Any, ...] = (value,) if is_one else tuple(value)
    if not all(isinstance(line, str) for line in lines):
        raise TypeError(f"{name} must be shell lines, not {value!r}")
    return lines


def variables(name: str, value: object) -> dict[str, str]:
    """Return an argument that maps the names of environment variables to their values.

    Raises:
        TypeError, ConfigurationError: it does not.
    """
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

    `path` is the PYTHONPATH; `first` what is run before all else; `more` further words of the
    command, as the shell has them. With a prologue it is a login
    shell's, since that is where `module` and the like are defined; one of its lines failing ends
    it. What fails is told with the host's name: no record of the batch system's has it in time.

    `caller` is the submitting process's environment. It travels with the calls; here is only what
    the dynamic linker looks at when Python starts, and what tells the worker which variables are
    whose. With `environment` None all are what the batch system gives.
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
