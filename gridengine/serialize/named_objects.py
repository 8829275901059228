"""Objects that travel by the name under which an importable module offers them.

These are objects that cannot be pickled by value: a logger of loguru, or a lock, session or engine
of a module beside the script. Like functions and classes of modules they travel by name: a call
finds the object of its own process. Imported only after an object was refused by value.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from gridengine.errors import PicklingError
from gridengine.serialize.by_value import Pickler, can_travel
from gridengine.serialize.payload import ATOMS
from gridengine.serialize.recipes import Recipe, Reduction

NEVER = (type, types.ModuleType, BaseException, list, tuple, dict, set, frozenset, *ATOMS)


def name_recipes(
    recipes: Mapping[type, Recipe], unchanged: Mapping[type, Recipe]
) -> dict[type, Recipe]:
    """Return recipes for the objects that modules offer. An object goes by name if `recipes` cannot
    pickle it by value. Types in `unchanged` get no new recipe.
    """
    places: dict[int, tuple[str, str]] = {}
    kinds = set[type]()
    for module, name, value in _offered():
        kind = type(value)
        if kind not in unchanged:
            if id(value) not in places or _is_home(module, kind):
                places[id(value)] = module, name
            kinds.add(kind)

    def recipe(pickler: Pickler, obj: Any) -> Reduction:
        place = places.get(id(obj))
        if place is not None and not _is_pickled(obj, recipes, pickler):
            return find_offered, (*place, _type_name(obj))
        before = recipes.get(type(obj))
        return NotImplemented if before is None else before(pickler, obj)

    return dict.fromkeys(kinds, recipe)


def _offered() -> Iterator[tuple[str, str, Any]]:
    """Yield the variables of importable modules: module, name and object."""
    for module_name, module in list(sys.modules.items()):
        own = module_name in ("__main__", "__mp_main__") or module_name.startswith("gridengine.")
        if own or getattr(module, "__spec__", None) is None:
            continue
        for name, value in list(vars(module).items()):
            if not isinstance(value, NEVER):
                yield module_name, name, value


def _is_home(module: str, kind: type) -> bool:
    return module.partition(".")[0] == kind.__module__.partition(".")[0] and module.count(".") == 0


def _is_pickled(obj: Any, recipes: Mapping[type, Recipe], pickler: Pickler) -> bool:
    nowhere: Any = types.SimpleNamespace(write=len)  # drops all that is written
    trial = Pickler(nowhere, 5, buffer_callback=lambda buffer: None)
    trial.recipes, trial.for_caller = recipes, pickler.for_caller
    return can_travel(trial, obj)


def find_offered(module: str, name: str, kind: str) -> Any:
    """Return the object that a module offers under a name.

    Raises:
        PicklingError: the module of this process offers none of this type.
    """
    found = getattr(importlib.import_module(module), name, None)
    if _type_name(found) != kind:
        raise PicklingError(
            f"{module}.{name}, which cannot be pickled and so travels by its name, is a {kind} in "
            f"the process that sent it, and here a {_type_name(found)}",
            hint="make it when the module is imported, or in an initializer",
        )
    return found


def _type_name(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"
