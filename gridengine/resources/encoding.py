"""What calls ask for as plain data: how a process that runs calls asks for workers without sending
its dispatcher anything that would have to be unpickled.
"""

from __future__ import annotations

import functools
import operator
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


def encode_demand(demand: Demand) -> tuple[list[tuple[str, list[Any]]], float]:
    """Return what a demand is made of: the name and arguments of each kind, and the factor.

    Raises:
        ConfigurationError: a kind of it is a user's own.
    """
    parts = []
    for part in demand.resources:
        arguments = _ARGUMENTS.get(type(part))
        if arguments is None:
            raise ConfigurationError(
                f"a call cannot ask for {safe_repr(part)} for a call that it makes: "
                f"{type(part).__qualname__} is a kind of your own",
                hint="ask for it where the outermost calls are made; or give scheduler= one of "
                "the call's own",
            )
        parts.append((type(part).__name__, arguments(part)))
    return parts, demand.factor


def decode_demand(parts: list[tuple[str, list[Any]]], factor: float) -> Demand:
    """Return the demand that was made into this.

    Raises:
        TypeError, ValueError, LookupError: it was not.
    """
    resources = (_MAKERS[name](*arguments) for name, arguments in parts)
    return Demand(functools.reduce(operator.and_, resources, ZERO), factor)
