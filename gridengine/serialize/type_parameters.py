"""Type variables, new types and aliases (`type X = ...`) that cannot be imported.

They are taken apart and made anew. The value of an alias, or the bound of a variable, is evaluated
lazily where it was written, and may lead back to the alias or variable. So it is evaluated lazily
in the other process too: the whole is made with a `Deferred`, which is filled afterwards.
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
"""The type of `type X = ...`; before Python 3.12 a type without objects."""


class Deferred:
    """Returns, when called, the value that it was filled with, or raises its evaluation's error."""

    value: Any = None
    error: Exception | None = None

    def __call__(self) -> Any:
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.value


def fill(_: object, state: tuple[Deferred, Any, Exception | None]) -> None:
    """Fill the `Deferred` that an object was made with."""
    deferred, value, error = state
    deferred.value, deferred.error = value, error


def fill_all(_: object, states: list[tuple[Deferred, Any, Exception | None]]) -> None:
    """Fill all `Deferred`s that an object was made with."""
    for state in states:
        fill(_, state)


def _state(
    deferred: Deferred, evaluate: Callable[[], Any]
) -> tuple[Deferred, Any, Exception | None]:
    try:
        return deferred, evaluate(), None
    except Exception as error:  # a name that only the type checker has
        return deferred, None, error.with_traceback(None)


_made_by: Callable[..., Any] = functools.partial
"""In a pickle it calls a constructor with keywords."""

# Variables


def _options(variable: Any) -> dict[str, Any]:
    """Return the keywords of a variable's constructor that this Python has, except the default."""
    return {
        name: True
        for name in ("covariant", "contravariant", "infer_variance")
        if getattr(variable, f"__{name}__", False)
    }


def _reduce_variable(pickler: Any, variable: Any) -> Any:
    if is_importable(variable):
        return NotImplemented
    kind, name, module = type(variable), variable.__name__, variable.__module__
    options = _options(variable)
    has_default = getattr(variable, "has_default", bool)()
    if options.get("infer_variance") and kind is typing.TypeVar and _may_be_written(name):
        parts = ["__bound__", "__constraints__", *["__default__"] * has_default]
        lazy = {one: _state(Deferred(), functools.partial(getattr, variable, one)) for one in parts}
        if any(error for _, _, error in lazy.values()) or lazy["__bound__"][1] is not None:
            parts = [one for one in parts if lazy[one][1:] not in ((None, None), ((), None))]
            made_with = {one: lazy[one][0] for one in parts}
            state = [lazy[one] for one in parts]
            return make_lazy_variable, (name, module, made_with), state, None, None, fill_all
    if has_default:
        options["default"] = variable.__default__
    constraints = getattr(variable, "__constraints__", ())
    if getattr(variable, "__bound__", None) is not None:
        options["bound"] = variable.__bound__
    return _made_by(kind, name, *constraints, **options), (), (None, {"__module__": module})


def make_lazy_variable(name: str, module: str, parts: Mapping[str, Deferred]) -> Any:
    """Make a `TypeVar` as `[T: bound]` does: bound, constraints, default are evaluated lazily."""
    heading = f": {BOUNDS[next(iter(parts))]}" if parts.keys() - {"__default__"} else ""
    default = " = __default__()" if "__default__" in parts else ""
    variable = _written(
        f"def function[{name}{heading}{default}](): ...", "function", dict(parts)
    ).__type_params__[0]
    variable.__module__ = module
    return variable


BOUNDS = {"__bound__": "__bound__()", "__constraints__": "(*__constraints__(),)"}
"""The source of a type variable's bound or constraints."""


def _may_be_written(name: str) -> bool:
    lazy = hasattr(typing, "TypeAliasType")
    return lazy and name.isidentifier() and not keyword.iskeyword(name)


def _written(source: str, name: str, names: dict[str, Any]) -> Any:
    """Run a statement that older Pythons cannot parse, with these global variables; return the
    variable `name` that it makes.
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
    """Return the source of the list of an alias's type variables, such as `[T, *Ts]`."""
    stars = {typing.TypeVar: "", typing.TypeVarTuple: "*", typing.ParamSpec: "**"}
    written = [stars[type(one)] + one.__name__ for one in parameters]
    return f"[{', '.join(written)}]" if written else ""


def _leads_to(value: Any, alias: object) -> bool:
    """Return whether the alias is a part of its value."""
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
    """Make an alias as the statement does. Its variables, if it has some, are its own."""
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
"""Types whose objects never change once they are made."""
