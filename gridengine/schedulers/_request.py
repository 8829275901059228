"""What a cluster is asked for: pure functions from a scheduler's arguments to the batch system's own words, and a shell script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from gridengine.errors import ConfigurationError

Resource = str | int | float | bool


def native_specification(
    *, queue: str | None, parallel_environment: str | None, native: str, resources: Mapping[str, Resource]
) -> str:
    """Return what is asked for in Grid Engine's own words (see submit(1)).

    Raises:
        TypeError, ConfigurationError: an argument is not what it must be.
    """
    words = []
    if resources:
        words.append("-l " + ",".join(f"{name}={_resource(name, value)}" for name, value in resources.items()))
    if queue is not None:
        words.append(f"-q {_word('queue', queue)}")
    if parallel_environment is not None:
        if not re.fullmatch(r"\S+ +\d+(-\d*)?", line_of_text("parallel_environment", parallel_environment)):
            raise ConfigurationError(f"parallel_environment must be a name and a number of slots, as 'smp 4', not {parallel_environment!r}")
        words.append(f"-pe {parallel_environment}")
    if not isinstance(native, str):
        raise TypeError(f"native must be a string, not {native!r}")
    return " ".join([*words, *([native.strip()] if native.strip() else [])])


def _resource(name: str, value: Resource) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    return _word(name, value, forbidden=r"[\s,'\"]")


def line_of_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    if not value.strip() or "\n" in value or "\0" in value:
        raise ConfigurationError(f"{name} must be one line of text, not {value!r}")
    return value


def _word(name: str, value: object, forbidden: str = r"[\s'\"]") -> str:
    text = line_of_text(name, value)
    if re.search(forbidden, text):
        raise ConfigurationError(f"{name}={text!r} holds a blank, a quote or a comma, which the batch system would take for its own")
    return text


def shell_lines(name: str, value: object) -> tuple[str, ...]:
    lines = (value,) if isinstance(value, str) else value
    if not isinstance(lines, Iterable):
        raise TypeError(f"{name} must be shell lines, not {value!r}")
    lines = tuple(lines)
    if not all(isinstance(line, str) for line in lines):
        raise TypeError(f"{name} must be shell lines, not {value!r}")
    return lines


def variables(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must map names to strings, not {value!r}")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"{name} must map names to strings, not {key!r} to {text!r}")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) or "\0" in text:
            raise ConfigurationError(f"{name}: {key!r}={text!r} cannot be a variable of the environment")
    return dict(value)


def launch_script(command: Sequence[str], *, prologue: Sequence[str], environment: Mapping[str, str], path: str) -> str:
    """Return the shell script that a cluster task runs.

    With a prologue it is a login shell's, since that is where `module` and the like are defined; one of its lines failing ends it.
    """
    lines = [f"#!/bin/bash{' -l' if prologue else ''}"]
    if prologue:
        lines += [
            "set -e",
            """trap 'echo "gridengine: the prologue failed with status $?; the worker was not started" >&2' EXIT""",
            *prologue,
            "trap - EXIT",
            "set +e",
        ]
    if path:
        lines.append(f"export PYTHONPATH={shlex.quote(path)}${{PYTHONPATH:+:$PYTHONPATH}}")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines.append(f"exec {shlex.join(command)}")
    return "\n".join(lines) + "\n"
