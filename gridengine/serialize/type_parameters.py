"""Type variables, new types and aliases (`type X = ...`) that no other process can import, taken
apart and made anew.

What is evaluated lazily where it was written (an alias's value, a bound) may lead back to what it
belongs to. So there it is evaluated lazily as well: the whole is made with a `Deferred`, which is
filled afterwards.
"""

from __future__ import annotations

import functools
import keyword
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gridengine.serialize.classes import is_importable

Alias: type = getattr(typing, "TypeAliasType", type("TypeAliasType", (), {}))
"""The type of `type X = ...`; before Python 3.12 one that nothing is of."""


class Deferred:
    """Gives, when called, what it was filled with, or raises what kept that from being
    evaluated.
    """

    value: Any = None
    error: Exception | None = None

    def __call__(self) -> Any:
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.value


def fill(_: object, state: tuple[Deferred, Any, Exception | None]) -> None:
    """Fill what a thing was made with."""
    deferred, value, error = state
    deferred.value, deferred.error = value, error


def _state(
    deferred: Deferred, evaluate: Callable[[], Any]
) -> tuple[Deferred, Any, Exception | None]:
    try:
        return deferred, evaluate(), None
    except Exception as error:  # a name that is there for the type checker alone
        return deferred, None, error.with_traceback(None)


_made_by: Callable[..., Any] = functools.partial
"""What a pickle has of a call with keywords."""

# Variables


def _options(variable: Any) -> dict[str, Any]:
    """Return the keywords of a variable's constructor, as far as this Python has them."""
    options: dict[str, Any] = {
        name: True
        for name in ("covariant", "contravariant", "infer_variance")
        if getattr(variable, f"__{name}__", False)
    }
    if getattr(variable, "has_default", bool)():
        options["default"] = variable.__default__
    return options


def _reduce_variable(pickler: Any, variable: Any) -> Any:
    if is_importable(variable):
        return NotImplemented
    kind, name, module = type(variable), variable.__name__, variable.__module__
    options = _options(variable)
    constraints = getattr(variable, "__constraints__", ())
    if (
        not constraints
        and options.get("infer_variance")
        and kind is typing.TypeVar
        and _may_be_written(name)
    ):
        deferred = Deferred()
        state = _state(deferred, lambda: variable.__bound__)
        if state[1:] != (None, None):
            return make_bound_variable, (name, module, options, deferred), state, None, None, fill
    if getattr(variable, "__bound__", None) is not None:
        options["bound"] = variable.__bound__
    return _made_by(kind, name, *constraints, **options), (), (None, {"__module__": module})


def make_bound_variable(name: str, module: str, options: Mapping[str, Any], bound: Deferred) -> Any:
    """Return a `TypeVar` as `[T: bound]` makes it, whose bound is evaluated when it is asked
    for.
    """
    default = " = __default__" if "default" in options else ""
    names = {"__bound__": bound, "__default__": options.get("default")}
    variable = _written(
        f"def function[{name}: __bound__(){default}](): ...", "function", names
    ).__type_params__[0]
    variable.__module__ = module
    return variable


def _may_be_written(name: str) -> bool:
    lazy = hasattr(typing, "TypeAliasType")
    return lazy and name.isidentifier() and not keyword.iskeyword(name)


def _written(source: str, name: str, names: dict[str, Any]) -> Any:
    """Return what this statement, which older Pythons cannot parse, makes of these names and calls
    by that one.
    """
    exec(source, names)
    return names[name]


# New types


def _reduce_new_type(pickler: Any, new: Any) -> Any:
    if is_importable(new):
        return NotImplemented
    names = {"__qualname__": new.__qualname__, "__module__": new.__module__}
    return _made_by(typing.NewType, new.__name__, new.__supertype__), (), (None, names)


# Aliases


def _reduce_alias(pickler: Any, alias: Any) -> Any:
    if is_importable(alias):
        return NotImplemented
    deferred = Deferred()
    state = _state(deferred, lambda: alias.__value__)
    name, parameters = alias.__name__, alias.__type_params__
    if not _may_be_written(name) or (
        parameters and state[2] is None and not _leads_to(state[1], alias)
    ):
        return _made_by(Alias, name, state[1], type_params=parameters), ()
    return (
        make_alias,
        (name, alias.__module__ or "__main__", _headings(parameters), deferred),
        state,
        None,
        None,
        fill,
    )


def _headings(parameters: tuple[Any, ...]) -> str:
    """Return how the variables of an alias are written."""
    stars = {typing.TypeVar: "", typing.TypeVarTuple: "*", typing.ParamSpec: "**"}
    written = [stars[type(one)] + one.__name__ for one in parameters]
    return f"[{', '.join(written)}]" if written else ""


def _leads_to(value: Any, alias: object) -> bool:
    """Return whether the alias is among the parts of what is to be its value."""
    todo, seen = [value], set[int]()
    while todo:
        one = todo.pop()
        if one is alias or getattr(one, "__origin__", None) is alias:
            return True
        if id(one) in seen:
            continue
        seen.add(id(one))
        todo += one if isinstance(one, (list, tuple)) else getattr(one, "__args__", ())
        if isinstance(one, Alias):
            todo.append(_state(Deferred(), lambda one=one: one.__value__)[1])  # type: ignore[misc]
    return False


def make_alias(name: str, module: str, headings: str, value: Deferred) -> Any:
    """Return an alias as the statement makes it; its variables, if it has some, are its own."""
    return _written(
        f"type {name}{headings} = __value__()", name, {"__name__": module, "__value__": value}
    )


RECIPES: Mapping[type, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        typing.TypeVar: _reduce_variable,
        typing.ParamSpec: _reduce_variable,
        typing.TypeVarTuple: _reduce_variable,
        typing.ParamSpecArgs: lambda pickler, part: (getattr, (part.__origin__, "args")),
        typing.ParamSpecKwargs: lambda pickler, part: (getattr, (part.__origin__, "kwargs")),
        typing.NewType: _reduce_new_type,
        Alias: _reduce_alias,
    }
)
FIXED: tuple[type, ...] = tuple(RECIPES)
"""What never changes once it is made."""
