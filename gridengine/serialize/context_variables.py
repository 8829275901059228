"""Context variables as they travel: by the name under which a module offers one, else by a token.

A context variable has no parts that could be pickled, and code refers to it by its identity. So a
variable of a script, a notebook or a closure gets random bytes, its token, by which each process
knows its own. Its value does not travel with it. Imported only when a variable is pickled.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import os
import sys
from contextvars import ContextVar
from typing import Any, TypeAlias

from gridengine.threads import once

Place: TypeAlias = tuple[str, str] | tuple[bytes, str, tuple[Any, ...]]
"""The module and the name of a variable; or its token, its name, and its default if it has one."""


def reduction(variable: ContextVar[Any]) -> tuple[Any, ...]:
    """Return how a context variable is made, or found, in another process."""
    place = _place_of(variable)
    return (find_offered if len(place) == 2 else find_by_token), place


@once
def _tokens() -> tuple[dict[bytes, ContextVar[Any]], dict[ContextVar[Any], bytes]]:
    return {}, {}


@functools.cache
def _place_of(variable: ContextVar[Any]) -> Place:
    variables, tokens = _tokens()
    if variable not in tokens and (offered := _offered(variable)) is not None:
        return offered
    token = tokens.setdefault(variable, os.urandom(16))
    variables[token] = variable
    return token, variable.name, default_of(variable)


def default_of(variable: ContextVar[Any]) -> tuple[Any, ...]:
    """Return a variable's default value in a tuple; an empty one if it has none."""
    with contextlib.suppress(LookupError):
        return (contextvars.Context().run(variable.get),)
    return ()


def _offered(variable: ContextVar[Any]) -> tuple[str, str] | None:
    """Return the importable module with this variable, and its name there; None if none has it."""
    for module_name, module in list(sys.modules.items()):
        if module_name not in ("__main__", "__mp_main__") and getattr(module, "__spec__", None):
            for name, value in list(vars(module).items()):
                if value is variable:
                    return module_name, name
    return None


def find_offered(module: str, name: str) -> ContextVar[Any]:
    """Return the context variable that a module offers under a name."""
    found: ContextVar[Any] = getattr(importlib.import_module(module), name)
    return found


def find_by_token(token: bytes, name: str, default: tuple[Any, ...]) -> ContextVar[Any]:
    """Return this process's context variable with a token; the first time, make it."""
    variables, tokens = _tokens()
    if token not in variables:
        made: ContextVar[Any] = (
            ContextVar(name, default=default[0]) if default else ContextVar(name)
        )
        # Several threads may come here: the first variable stays.
        tokens[variables.setdefault(token, made)] = token
    return variables[token]
