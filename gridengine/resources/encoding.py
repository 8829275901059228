"""Requests as plain data. A runner sends them for nested calls, so that its dispatcher need not
unpickle anything.
"""

from __future__ import annotations

import functools
import operator
import shlex
from collections.abc import Callable
from typing import Any

from gridengine.errors import ConfigurationError, safe_repr
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Capacity, Cores, GPUs, Memory, Token, WTime

_ARGUMENTS: dict[type[Resource], Callable[[Any], list[Any]]] = {
    Cores: lambda part: [part.N, part.c if part._listed else None],
    GPUs: lambda part: [len(part.g), part.g if part._listed else None],
    Memory: lambda part: [part.M],
    Capacity: lambda part: [part.count],
    Token: lambda part: [part.name],
    WTime: lambda part: [part.T, part.softT, part.group, part.countdown],
}
_MAKERS: dict[str, Callable[..., Resource]] = {
    **{kind.__name__: kind for kind in _ARGUMENTS},
    WTime.__name__: lambda time, soft, group, countdown: WTime(
        time, softT=soft, group=group, countdown=countdown
    ),
}


NAME = "NAME"
"""Stands for a dispatcher's name."""
_OPTIONS: dict[type[Resource], Callable[[Any], str]] = {
    Cores: lambda part: f"--cores {part.N}",
    Memory: lambda part: f"--memory {part.M:.15g}",
    GPUs: lambda part: f"--gpus {len(part.g)}",
    Token: lambda part: f"--token {shlex.quote(part.name)}",
    WTime: lambda part: "",
}


def worker_command(request: Resource) -> str:
    """Return the command that starts a worker with these resources, for the dispatcher `NAME`;
    empty when the command has no option for one of them. Such a worker stays, so a walltime needs
    no option.
    """
    if any(type(part) not in _OPTIONS for part in request):
        return ""
    words = (_OPTIONS[type(part)](part) for part in request)
    return " ".join([f"gridengine worker {NAME}", *filter(None, words)])


def encode_demand(demand: Demand) -> tuple[list[tuple[str, list[Any]]], float]:
    """Return a demand as plain data: the name and arguments of each kind, and the factor.

    Raises:
        ConfigurationError: one of the kinds is a user's own.
    """
    parts = []
    for part in demand.resources:
        arguments = _ARGUMENTS.get(type(part))
        if arguments is None:
            raise ConfigurationError(
                f"a call cannot request {safe_repr(part)} for its nested calls: "
                f"{type(part).__qualname__} is a kind of your own",
                hint="request it where the outermost calls are made, or make the nested calls with "
                "a scheduler= of their own",
            )
        parts.append((type(part).__name__, arguments(part)))
    return parts, demand.factor


def decode_demand(parts: list[tuple[str, list[Any]]], factor: float) -> Demand:
    """Return the demand that `encode_demand` encoded.

    Raises:
        TypeError, ValueError, LookupError: the data is no encoded demand.
    """
    resources = (_MAKERS[name](*arguments) for name, arguments in parts)
    return Demand(functools.reduce(operator.and_, resources, ZERO), factor)
