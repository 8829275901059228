"""Warn that several calls get copies of one generator, and draw the same random numbers.

Imported only once a function has one.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

from gridengine.errors import is_own
from gridengine.serialize.classes import is_by_value, is_importable
from gridengine.serialize.generators import hidden_place, kinds
from gridengine.serialize.recipes import GENERATORS
from gridengine.serialize.unpicklable import name_of, parts_of

MOST_LOOKED_AT = 10_000
"""The generator is looked for among this many parts of a function."""


def warn_of_copies(f: Callable[..., Any]) -> None:
    """Warn that all processes draw the same numbers from a generator that this function takes
    along. The place of the warning is the user's line that submits the calls.
    """
    while type(f).__module__.startswith("gridengine.") and hasattr(f, "_function"):
        f = f._function  # of a coroutine, of a call with an initializer, of a seeded one
    place = "a generator of random numbers"
    with contextlib.suppress(Exception):  # a user's class may do anything when its parts are read
        place = place_of_generator(f)
    _warn(f"the function {name_of(f)} takes along {place}: each process gets a copy")


def warn_of_repeated(name: str) -> None:
    """Warn likewise that calls of this function have one generator among their arguments."""
    _warn(
        f"several calls of {name} have the same generator of random numbers among their arguments: "
        "calls that do not travel together get copies"
    )


def _warn(what: str) -> None:
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and is_own(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    remedy = "give each call a stream of its own by seed=1 at the map or executor"
    warnings.warn(
        f"{what}, and all copies draw the same numbers; {remedy}, and draw from gridengine.rng()",
        stacklevel=level,
    )


def place_of_generator(f: Callable[..., Any]) -> str:
    """Return the place of the generator that a function takes along, and its type, for people."""
    todo, seen = deque[tuple[str, Any]]([("", f)]), set[int]()
    while todo and len(seen) < MOST_LOOKED_AT:
        path, one = todo.popleft()
        kind = type(one)
        if kind.__module__ in GENERATORS and kind in kinds(kind.__module__):
            if hidden_place(one) is None:
                return f"{path.removeprefix(', ')} (a {kind.__module__}.{kind.__qualname__})"
        elif id(one) not in seen and not _is_named(one):
            seen.add(id(one))
            for label, part in itertools.islice(parts_of(one), MOST_LOOKED_AT):
                step = label if label[0] in ".[" else f", its {label}"
                todo.append((path + step, part))
    return "a generator of random numbers"


def _is_named(one: Any) -> bool:
    """Return whether an object travels by its name, without its parts."""
    if isinstance(one, type):
        return not is_by_value(one)
    if isinstance(one, types.FunctionType):
        return is_importable(one)
    return isinstance(one, types.ModuleType)
