"""How objects are pickled that C `pickle` refuses, or would pickle by reference: a recipe for each
type. Functions, classes and exceptions are `by_value`'s own.
"""

from __future__ import annotations

import functools
import importlib
import io
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias

from gridengine.serialize import functions, lazy_imports, sentinels, shared_objects, type_parameters
from gridengine.serialize.byte_code import dump_code, load_code
from gridengine.serialize.classes import Filled
from gridengine.serialize.namespaces import MISSING, Origin, find

Reduction: TypeAlias = Any
"""A value that `object.__reduce_ex__` may return, or `NotImplemented`."""
Recipe: TypeAlias = Callable[[Any, Any], Reduction]
"""Returns the reduction of an object, for a `by_value.Pickler`."""


def _reduce_cell(pickler: Any, cell: types.CellType) -> Reduction:
    content = functions.contents_of(cell, MISSING)
    if content is MISSING:  # the variable has no value yet
        return types.CellType, ()
    return types.CellType, (), (content,), None, None, functions.fill_cell


def _reduce_module(pickler: Any, module: types.ModuleType) -> Reduction:
    if sys.modules.get(module.__name__) is not module:
        raise pickle.PicklingError(f"the module {module.__name__} cannot be imported")
    return importlib.import_module, (module.__name__,)


def _reduce_shared(pickler: Any, handle: shared_objects.Shared[Any]) -> Reduction:
    """Return the name of the handle's object. On the way to the caller, which does not know that
    name, return the object itself.
    """
    if pickler.for_caller:
        return shared_objects.identity, (handle.get(),)
    return pickler.name_shared(shared_objects.shared_object_of(handle), handle)


def _reduce_stream(pickler: Any, stream: io.TextIOWrapper) -> Reduction:
    name = next(
        (
            name
            for name in ("stdout", "stderr", "stdin")
            if stream in (getattr(sys, name), getattr(sys, f"__{name}__"))
        ),
        None,
    )
    if name is not None:
        return getattr, (sys, name)
    recipe = pickler.recipes.get(io.TextIOWrapper)
    return NotImplemented if recipe is None else recipe(pickler, stream)


def _reduce_variable(pickler: Any, variable: ContextVar[Any]) -> Reduction:
    from gridengine.serialize import context_variables  # few need it

    return context_variables.reduction(variable)


RECIPES: Mapping[type, Recipe] = types.MappingProxyType(
    {
        types.FunctionType: lambda pickler, one: pickler.reduce_function(one),
        Origin: lambda pickler, one: (find, (one.token, one.names)),
        types.CellType: _reduce_cell,
        types.CodeType: lambda pickler, code: (load_code, (dump_code(code),)),
        types.MethodType: lambda pickler, one: pickler.reduce_method(one),
        Filled: lambda pickler, one: pickler.note_filled(one),
        functions.Wanted: lambda pickler, one: pickler.reduce_wanted(one),
        functions.InText: lambda pickler, one: pickler.reduce_in_text(one),
        types.ModuleType: _reduce_module,
        types.MappingProxyType: lambda pickler, proxy: (types.MappingProxyType, (dict(proxy),)),
        io.TextIOWrapper: _reduce_stream,
        property: lambda pickler, one: (property, (one.fget, one.fset, one.fdel, one.__doc__)),
        classmethod: lambda pickler, one: (classmethod, (one.__func__,)),
        staticmethod: lambda pickler, one: (staticmethod, (one.__func__,)),
        functools.cached_property: lambda pickler, one: (
            functools.cached_property,
            (one.func,),
            {"attrname": one.attrname},
        ),
        type(functools.lru_cache(len)): lambda pickler, one: pickler.reduce_lru_cache(one),
        **type_parameters.RECIPES,
        lazy_imports.LAZY: lambda pickler, one: lazy_imports.reduction(one),
        sentinels.SENTINEL: lambda pickler, one: sentinels.reduction(one),
        ContextVar: _reduce_variable,
        shared_objects.Shared: _reduce_shared,
        shared_objects.SharedObject: lambda pickler, one: pickler.name_shared(one),
        weakref.WeakKeyDictionary: lambda pickler, one: (weakref.WeakKeyDictionary, (dict(one),)),
        weakref.WeakValueDictionary: lambda pickler, one: (
            weakref.WeakValueDictionary,
            (dict(one),),
        ),
    }
)


@functools.cache
def _dataclass_recipes() -> Mapping[type, Recipe]:
    """Return recipes that pickle the marks of `dataclasses` by name: each is a single object."""
    import dataclasses  # here: few need it, and its import would delay every start

    return {
        type(dataclasses.MISSING): lambda pickler, one: "MISSING",
        type(dataclasses.KW_ONLY): lambda pickler, one: "KW_ONLY",
        type(dataclasses._HAS_DEFAULT_FACTORY): lambda pickler, one: "_HAS_DEFAULT_FACTORY",  # type: ignore[attr-defined]
        type(dataclasses._FIELD): lambda pickler, one: one.name,  # type: ignore[attr-defined]
    }


@functools.cache
def _annotation_recipes() -> Mapping[type, Recipe]:
    return {sys.modules["annotationlib"].ForwardRef: functions.reduce_forward_reference}


def _generator_recipes(module: str) -> Mapping[type, Recipe]:
    from gridengine.serialize import generators  # few need it

    return generators.recipes(module)


GENERATORS = ("random", "numpy.random.mtrand", "numpy.random._generator", "torch._C")
"""The modules of the types of generators of random numbers."""
MORE_RECIPES: Mapping[str, Callable[[], Mapping[type, Recipe]]] = types.MappingProxyType(
    {
        "dataclasses": _dataclass_recipes,
        "annotationlib": _annotation_recipes,
        **{name: functools.partial(_generator_recipes, name) for name in GENERATORS},
    }
)
"""Recipes for the types of modules that few import, by the names of the modules."""
