"""Annotations as they travel: never evaluated.

Until Python 3.13 a function or class holds their values. From 3.14 on (PEP 649) it holds a function
that makes them when somebody asks. They may name what only a type checker imports, so nobody asks
here. That function is sent, with the variables that it names: as `Parts`, plain data that C
`pickle` takes by itself, for it goes along with each function and class.

A function that stands in a class sees all attributes of that (`__classdict__`), among them some
that no pickle can hold. It travels with those that it names.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from gridengine.serialize.byte_code import (
    class_names,
    dump_code,
    global_names,
    load_code,
    submodules,
)

Parts: TypeAlias = (
    bytes
    | tuple[bytes, dict[str, Any], dict[str, "Wanted"], tuple[str, ...], tuple[Any, ...] | None]
)
"""The code of a function that makes annotations, the global variables that it names, those of them
that may not be picklable, the submodules that it reaches, and its closure: cells, and in the place
of `__classdict__` the attributes.
"""
LAZY = sys.version_info >= (3, 14)
"""Whether functions hold what makes their annotations, not the annotations."""
BY_NAME = (type, types.ModuleType, types.FunctionType)
TYPING = frozenset({"builtins", "types", "typing", "typing_extensions", "annotationlib"})
"""The modules of the types of objects that annotations are made of."""
CLASS_NAMESPACE = "__classdict__"
ONLY_CLASS = (CLASS_NAMESPACE,)
ANNOTATE = "__annotate_func__"
"""What makes the annotations of a class, as it is called among the attributes of that."""
LOOKED_UP = frozenset({ANNOTATE, "__annotations_cache__"})
"""Attributes that a class may have only since somebody has asked for its annotations."""


class Wanted(NamedTuple):
    """The value of a variable that only annotations name: `db` in `x: db.Model`. When it cannot be
    pickled it stays behind, and the annotation cannot be evaluated there. It arrives as itself, or
    as None.
    """

    value: Any


def of_function(function: types.FunctionType) -> dict[str, Any]:
    """Return what makes a function's annotations, else the annotations, by its name among the
    function's attributes.
    """
    make = getattr(function, "__annotate__", None) if LAZY else None
    if make is not None:
        return {"__annotate__": take_apart(make)}
    return {"__annotations__": held} if (held := function.__annotations__) else {}


def is_looked_up(name: str, value: Any, others: Mapping[str, Any]) -> bool:
    """Return whether a class has this attribute of `LOOKED_UP`, beside others, only since somebody
    has asked for its annotations.
    """
    if name == ANNOTATE:
        return value is None
    return not value or others.get(ANNOTATE) is not None


def take_apart(make: Any) -> Any:
    """Return the parts of a function that the compiler has made of annotations; the bytes of its
    code alone where that suffices. What somebody has written is returned as it is.
    """
    if type(make) is not types.FunctionType or (code := make.__code__).co_name != "__annotate__":
        return make
    if make.__dict__ or make.__defaults__ or make.__kwdefaults__:
        return make
    dumped, global_names, class_names = _facts(code)
    found = _items(make.__globals__, global_names)
    used = {name: one for name, one in found.items() if _is_of_annotations(one)}
    wanted = {name: Wanted(one) for name, one in found.items() if name not in used}
    closure: Any = make.__closure__
    if closure is not None:
        closure = _without_class(closure, code, class_names)
    if not found and (closure is None or closure == ({},)):
        return dumped
    return dumped, used, wanted, tuple(submodules(code, used.values())), closure


def _is_of_annotations(value: Any) -> bool:
    kind = type(value)
    return isinstance(value, BY_NAME) or kind.__module__ in TYPING


@functools.lru_cache(maxsize=4096)
def _facts(code: types.CodeType) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    return dump_code(code), global_names(code), class_names(code)


def _items(names: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    return {name: names[name] for name in wanted if name in names}


def _without_class(
    closure: tuple[types.CellType, ...], code: types.CodeType, wanted: tuple[str, ...]
) -> tuple[Any, ...]:
    """Return a closure with the attributes that are wanted of the class, in place of its cell."""
    if code.co_freevars == ONLY_CLASS:  # it is so of most
        return (_items(closure[0].cell_contents, wanted),)
    return tuple(
        _items(cell.cell_contents, wanted) if name == CLASS_NAMESPACE else cell
        for name, cell in zip(code.co_freevars, closure, strict=True)
    )


def closure_of(function: types.FunctionType) -> tuple[types.CellType, ...] | None:
    """Return the closure of a function; with of a class's attributes those alone that its code
    names.
    """
    code, closure = function.__code__, function.__closure__
    if closure is None or CLASS_NAMESPACE not in code.co_freevars:
        return closure
    return _cells(_without_class(closure, code, class_names(code)))


def _cells(closure: tuple[Any, ...]) -> tuple[types.CellType, ...]:
    return tuple(one if type(one) is types.CellType else types.CellType(one) for one in closure)


def put_together(parts: Any, names: dict[str, Any]) -> Any:
    """Return the function of these parts, with these global variables, to which those that it names
    are added.
    """
    if type(parts) is bytes:
        parts = parts, {}, {}, (), ({},)
    if type(parts) is not tuple:
        return parts
    dumped, used, wanted, imports, closure = parts
    for name in imports:
        importlib.import_module(name)
    names.update(used)
    names.update({name: one for name, one in wanted.items() if one is not None})
    code = load_code(dumped)
    cells = _cells(closure) if closure is not None and code.co_freevars else None
    return types.FunctionType(code, names, "__annotate__", None, cells)


def reduce_forward_reference(_: object, reference: Any) -> Any:
    """Return what a pickle has of an `annotationlib.ForwardRef`, a part of annotations that could
    not be evaluated: of the variables around it those that it names.
    """
    arguments = {
        "module": reference.__forward_module__,
        "owner": reference.__owner__,
        "is_argument": reference.__forward_is_argument__,
        "is_class": reference.__forward_is_class__,
    }
    names, cells, extra = reference.__globals__, reference.__cell__, reference.__extra_names__
    if names is not None:
        names = _items(names, reference.__forward_code__.co_names)
    if isinstance(cells, dict):
        cells = {name: cell for name, cell in cells.items() if name != CLASS_NAMESPACE}
    state = {"__globals__": names, "__cell__": cells, "__extra_names__": extra}
    kind: Callable[..., Any] = type(reference)
    make = functools.partial(kind, reference.__forward_arg__, **arguments)
    return make, (), (None, state)
