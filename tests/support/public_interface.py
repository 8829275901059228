"""What users may rely on, as text: `python -m tests.support.public_interface` writes it to
`docs/public-interface.txt`, and a test compares.

One line for each public name with its parameters and their defaults, for each public method and
attribute of a class, for each exception with its bases, and for each command with its options and
the exit statuses that its help gives. Annotations are left out: a wider type breaks nobody.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import gridengine
from gridengine.cli.main import main

FILE = Path(__file__).parents[2] / "docs" / "public-interface.txt"
PLAIN = bool, int, float, str, bytes, type(None), tuple


def described() -> str:
    """Return the text of the whole public interface."""
    lines = [line for name in sorted(gridengine.__all__) for line in _lines_of(name)]
    return "\n".join([*lines, "", *_commands(main, "gridengine")]) + "\n"


def _lines_of(name: str) -> Iterator[str]:
    value = getattr(gridengine, name)
    if inspect.ismodule(value) or isinstance(value, str):
        yield name
    elif not inspect.isclass(value):
        yield f"{name}{_parameters(value)}" if callable(value) else name
    elif issubclass(value, BaseException):
        yield f"{name}({', '.join(base.__name__ for base in value.__bases__)})"
    else:
        yield f"{name}{_parameters(value)}"
        yield from (f"{name}.{member}" for member in _members(value))


def _members(owner: type) -> Iterator[str]:
    for member in sorted(dir(owner)):
        value = inspect.getattr_static(owner, member)
        ours = next(one for one in owner.__mro__ if member in vars(one)).__module__
        if member.startswith("_") or not ours.startswith("gridengine"):
            continue
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        yield f"{member}{_parameters(function)}" if inspect.isfunction(function) else member


def _parameters(function: Any) -> str:
    """Return the public parameters with the defaults that have a plain form."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a class that C makes
        return "(...)"
    kept = [
        one.replace(annotation=one.empty, default=_default(one.default))
        for one in signature.parameters.values()
        if not one.name.startswith("_")
    ]
    return str(signature.replace(parameters=kept, return_annotation=signature.empty))


class Unnamed:
    """A default without a plain form."""

    def __repr__(self) -> str:
        return "..."


def _default(value: Any) -> Any:
    return value if value is inspect.Parameter.empty or isinstance(value, PLAIN) else Unnamed()


def _commands(command: click.Command, path: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _commands(found, f"{path} {name}")
    options = [one for one in command.params if not getattr(one, "hidden", False)]
    words = [" ".join([*one.opts, *one.secondary_opts]) for one in options]
    yield f"{path}: {', '.join(words)}"
    text = " ".join((command.help or "").split())
    yield from (f"{path}: {said}" for said in re.findall(r"The exit status is [^.]*\.", text))


if __name__ == "__main__":
    FILE.write_text(described())
