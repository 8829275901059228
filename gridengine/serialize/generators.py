"""Generators of random numbers among the parts of functions.

`random.random` and `numpy.random.normal` are methods of generators that their modules hide, and
scipy and scikit-learn refer to the same ones. A hidden generator travels by name: each process has
its own, seeded by chance. Any other generator travels as a copy, which draws the same numbers in
each process. The pickler notes it, so that `client.copied_generators` may warn.

Imported only once a generator is pickled.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

HIDDEN: Mapping[str, str] = types.MappingProxyType(
    {"random": "_inst", "numpy.random.mtrand": "_rand", "torch": "default_generator"}
)
"""The hidden generators: modules, and the names there."""
NAMES = ("Random", "RandomState", "Generator")
"""The names of types of generators in their modules."""


def hidden_place(generator: object) -> tuple[types.ModuleType, str] | None:
    """Return the module and the name of a hidden generator; None for any other."""
    for module, name in HIDDEN.items():
        home = sys.modules.get(module)
        if home is not None and vars(home).get(name) is generator:
            return home, name
    return None


def kinds(module: str) -> set[type]:
    """Return the types of generators that a module defines."""
    found = (vars(sys.modules[module]).get(name) for name in NAMES)
    return {kind for kind in found if isinstance(kind, type)}


@functools.cache
def recipes(module: str) -> Mapping[type, Callable[[Any, Any], Any]]:
    """Return the recipes for the generators that a module defines."""
    found: dict[type, Any] = dict.fromkeys(kinds(module), _reduction)
    # One that asks the operating system for each number has no state, and refuses to be pickled.
    return {**found, random.SystemRandom: lambda pickler, one: (type(one), ())}


def _reduction(pickler: Any, generator: Any) -> Any:
    """Return the name of a hidden generator; note any other."""
    place = hidden_place(generator)
    if place is not None:
        return getattr, place
    pickler.generators = [*(pickler.generators or ()), generator]
    return NotImplemented
