"""Functions and annotations that travel by value: taken apart, and put together.

A function's global variables are filled in after it has been made, since they may lead back to it.

Annotations are never evaluated here: they may name classes that only a type checker imports. Until
Python 3.13 a function or class holds the values of its annotations. From 3.14 on (PEP 649) it holds
a function that makes them on request. That function travels with the variables that it names: as
plain data that C `pickle` takes by itself, since it goes along with each function and class. A
function that stands in a class sees all attributes of that class (`__classdict__`), among them some
that no pickle can hold. It travels with the attributes that it names.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import linecache
import os
import pickle
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from gridengine.serialize import namespaces
from gridengine.serialize.byte_code import (
    class_names,
    dump_code,
    global_names,
    load_code,
    submodules,
)
from gridengine.serialize.names_in_texts import looks_up, names_of_code, names_of_text
from gridengine.serialize.namespaces import (
    MISSING_VERSION,
    Origin,
    Version,
    origin_of,
    unknown_names,
)
from gridengine.serialize.users_modules import add_to_main, share_with_main

LAZY = sys.version_info >= (3, 14)
"""Whether functions hold a function that makes their annotations, not the annotations."""
BY_NAME = (type, types.ModuleType, types.FunctionType)
TYPING = frozenset({"builtins", "types", "typing", "typing_extensions", "annotationlib"})
"""Modules of the types of the objects that annotations consist of."""
CLASS_NAMESPACE = "__classdict__"
ONLY_CLASS = (CLASS_NAMESPACE,)
ANNOTATE = "__annotate_func__"
"""The attribute of a class that holds the function which makes its annotations."""
LOOKED_UP = frozenset({ANNOTATE, "__annotations_cache__"})
"""Attributes that a class may have only because somebody has asked for its annotations."""


class Wanted(NamedTuple):
    """The value of a variable that only annotations name: `db` in `x: db.Model`. A value that
    cannot be pickled arrives as None, and the annotation cannot be evaluated there.
    """

    value: Any


class InText(NamedTuple):
    """The value of a global variable that only texts name, with its pickle. It is left out where
    that cannot be loaded. The pickle is None for what travels within the pickle of the function.
    """

    value: Any
    pickled: bytes | None


def load_in_text(pickled: bytes) -> Any:
    """Return the value of a variable that only texts name; `MISSING` if it cannot be loaded.

    Raises:
        MemoryError: there is no memory for it.
    """
    try:
        return pickle.loads(pickled)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # the value's own code may do anything
        import logging

        why = f"{type(error).__name__}: {error}"
        logging.getLogger("gridengine").info("a variable that a text names is left out: %s", why)
        return namespaces.MISSING


def annotations_of(function: types.FunctionType) -> dict[str, Any]:
    """Return a function's annotations, or the parts of the function that makes them, by the name of
    the attribute that holds them.
    """
    make = getattr(function, "__annotate__", None) if LAZY else None
    if make is not None:
        return {"__annotate__": take_annotations_apart(make)}
    return {"__annotations__": held} if (held := function.__annotations__) else {}


def is_looked_up(name: str, value: Any, others: Mapping[str, Any]) -> bool:
    """Return whether a class has this attribute of `LOOKED_UP` only because somebody has asked for
    its annotations. `others` are all attributes of the class.
    """
    if name == ANNOTATE:
        return value is None
    return not value or others.get(ANNOTATE) is not None


def take_annotations_apart(make: Any) -> Any:
    """Return the parts of a compiler-made `__annotate__` function, from which another process can
    make it again: its code, the global variables that it names, those of them that may not be
    picklable, the submodules that it reaches, and its closure (cells, and in the place of
    `__classdict__` the attributes of the class). If its code alone suffices, return only the bytes
    of the code. Return any other function, such as one that a user has written, unchanged.
    """
    if type(make) is not types.FunctionType or (code := make.__code__).co_name != "__annotate__":
        return make
    if make.__dict__ or make.__defaults__ or make.__kwdefaults__:
        return make
    dumped, global_names, class_names = _facts(code)
    found = _items(make.__globals__, global_names)
    used = {
        name: one
        for name, one in found.items()
        if isinstance(one, BY_NAME) or type(one).__module__ in TYPING
    }
    wanted = {name: Wanted(one) for name, one in found.items() if name not in used}
    closure: Any = make.__closure__
    if closure is not None:
        closure = _without_class(closure, code, class_names)
    if not found and (closure is None or closure == ({},)):
        return dumped
    return dumped, used, wanted, tuple(submodules(code, used.values())), closure


@functools.lru_cache(maxsize=4096)
def _facts(code: types.CodeType) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    return dump_code(code), global_names(code), class_names(code)


def _items(names: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    return {name: names[name] for name in wanted if name in names}


def _without_class(
    closure: tuple[types.CellType, ...], code: types.CodeType, wanted: tuple[str, ...]
) -> tuple[Any, ...]:
    """Return a closure in which the cell of the class is replaced by those attributes of the class
    that are wanted.
    """
    if code.co_freevars == ONLY_CLASS:  # the usual case, made quick
        return (_items(closure[0].cell_contents, wanted),)
    return tuple(
        _items(cell.cell_contents, wanted) if name == CLASS_NAMESPACE else cell
        for name, cell in zip(code.co_freevars, closure, strict=True)
    )


def closure_of(function: types.FunctionType) -> tuple[types.CellType, ...] | None:
    """Return the closure of a function. Of the attributes of a class around it, the closure has
    only those that the function's code names.
    """
    code, closure = function.__code__, function.__closure__
    if closure is None or CLASS_NAMESPACE not in code.co_freevars:
        return closure
    return _cells(_without_class(closure, code, class_names(code)))


def _cells(closure: tuple[Any, ...]) -> tuple[types.CellType, ...]:
    return tuple(one if type(one) is types.CellType else types.CellType(one) for one in closure)


def put_annotations_together(parts: Any, names: dict[str, Any]) -> Any:
    """Make an annotations' function of its parts. It shares these global variables; the variables
    that it names are added to them.
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
    """Return the reduction of an `annotationlib.ForwardRef`, a part of annotations that could not
    be evaluated. Of the variables around it, only those travel that it names.
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


Source: TypeAlias = tuple[str, int, list[str]]
"""A file's name, a line number and the lines from there on."""

FUNCTION_PARTS = (
    "__defaults__",
    "__kwdefaults__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__type_params__",
    *(() if LAZY else ("__annotations__",)),
)


def reduction(
    function: types.FunctionType,
    origins: dict[int, Origin],
    version_of: Callable[[Any], tuple[Version, Mapping[int, Any]]],
    in_texts: Mapping[str, InText],
) -> Any:
    """Return the reduction of a function: its parts, with the global variables that its code names,
    and those that only its texts name.

    origins: for the `id` of the global variables of each function in the same pickle, their origin.
        So functions that share global variables here share them there.
    version_of: returns the version of a value, and its parts that may change in place.
    """
    names, code = function.__globals__, function.__code__
    origin = origin_of(names, origins)
    if function in origin.reductions:  # a method, after the version of its class
        return origin.reductions[function]
    named = global_names(code)
    used = {name: names[name] for name in named if name in names}
    imports: list[Any] = list(submodules(code, used.values()))
    if in_texts:
        values = (*used.values(), *(one.value for one in in_texts.values()))
        more = submodules(code, values, names_in_texts(function))
        imports.append(tuple(one for one in more if one not in imports))
    used |= {name: one.value if one.pickled is None else one for name, one in in_texts.items()}
    parts = {name: value for name in FUNCTION_PARTS if (value := getattr(function, name, None))}
    closure = function.__closure__
    if LAZY:
        parts |= annotations_of(function)
        closure = closure_of(function)
    state: tuple[Any, ...] = imports, used, parts, function.__dict__, source_of(code)
    if origin.token:
        if any(name not in origin.versions for name in used):
            unknown = (_reached(code, names) | in_texts.keys()) - origin.versions.keys()
            origin.note({name: version_of(names[name]) for name in sorted(unknown)})
        versions: dict[str, Version] = {name: origin.versions[name] for name in used}
        versions |= dict.fromkeys(unknown_names(named, names), MISSING_VERSION)
        state = *state, versions
    arguments = (code, origin if origin.token else origin.names, function.__name__, closure)
    made = make_function, arguments, state, None, None, fill_function
    if not origin.tried or origin.tried.isdisjoint(names_in_texts(function)):
        origin.reductions[function] = made
    return made


def _reached(code: types.CodeType, names: Mapping[str, Any]) -> set[str]:
    """Return the names of the global variables that this code, or a function or class of the same
    module that it names, names.
    """
    found: set[str] = set()
    todo = [code]
    while todo:
        for name in global_names(todo.pop()):
            if name in names and name not in found:
                found.add(name)
                value = names[name]
                several = vars(value).values() if isinstance(value, type) else (value,)
                todo += [
                    one.__code__
                    for one in several
                    if type(one) is types.FunctionType and one.__globals__ is names
                ]
    return found


def names_in_texts(function: types.FunctionType) -> tuple[str, ...]:
    """Return the names in a function's texts that its code does not name, sorted. Its texts are the
    constants of its code, and those global variables, closure cells and default values of it that
    are texts.
    """
    code = function.__code__
    named = global_names(code)
    values = [function.__globals__.get(name) for name in named if not name.startswith("__")]
    values += map(contents_of, function.__closure__ or ())
    values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    found = names_of_code(code)
    for text in values:
        if type(text) is str:
            found |= names_of_text(text, looks_up(code)).difference(code.co_varnames)
    return tuple(sorted(found.difference(named)))


def make_function(
    code: types.CodeType, space: dict[str, Any], name: str, closure: tuple[Any, ...] | None
) -> types.FunctionType:
    """Make a function that has only its code; `fill_function` gives it the rest."""
    space.setdefault("__builtins__", builtins)
    return types.FunctionType(code, space, name, None, closure)


def fill_function(
    function: types.FunctionType,
    state: tuple[Any, ...],
) -> None:
    """Give a function its global variables and the rest of its parts. `state` ends with the
    versions of the variables, if functions of several payloads share them.
    """
    imports, used, parts, attributes, source, *versions = state
    for name in imports:
        if type(name) is tuple:
            from gridengine.serialize.imports_for_effect import import_all  # few need it

            import_all(name)
        else:
            importlib.import_module(name)
    variables = function.__globals__
    lost = [name for name, value in used.items() if value is namespaces.MISSING]
    for name in lost:
        del used[name]
        if versions:  # the next function assigns it, whatever its version
            versions[0][name] = None
    if versions and namespaces.fill(variables, versions[0], used):
        share_with_main(variables)
    else:
        variables.update(used)
        add_to_main(variables.get("__name__"), used)
    for name, value in parts.items():
        if name == "__annotate__":
            value = put_annotations_together(value, variables)
        setattr(function, name, value)
    function.__dict__.update(attributes)
    if "." not in function.__qualname__:
        add_to_main(function.__module__, {function.__qualname__: function})
    if source is not None:
        note_source(*source)


def source_of(code: types.CodeType) -> Source | None:
    """Return the lines of a function, for tracebacks in a process that has no access to its file,
    which may be a notebook's cell.
    """
    first = code.co_firstlineno
    lines = linecache.getlines(code.co_filename)[first - 1 : _last_line(code)]
    return (code.co_filename, first, lines) if lines else None


@functools.lru_cache(maxsize=4096)
def _last_line(code: types.CodeType) -> int:
    return max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)


def note_source(filename: str, first: int, lines: list[str]) -> None:
    """Make these lines available to tracebacks, unless the file exists on this machine."""
    entry = linecache.cache.get(filename)
    if os.access(filename, os.F_OK):
        return
    if entry is not None and (len(entry) < 4 or entry[1] is not None):
        return
    known = list(entry[2]) if entry is not None else []
    known += ["\n"] * (first - 1 + len(lines) - len(known))
    known[first - 1 : first - 1 + len(lines)] = lines
    # Without a time of change, `linecache.checkcache` keeps the entry.
    linecache.cache[filename] = (sum(map(len, known)), None, known, filename)


def contents_of(cell: types.CellType, default: object = None) -> Any:
    """Return the content of a closure's cell; the default while the variable has no value."""
    try:
        return cell.cell_contents
    except ValueError:
        return default


def fill_cell(cell: types.CellType, state: tuple[Any]) -> None:
    """Give a closure's cell its content."""
    cell.cell_contents = state[0]
