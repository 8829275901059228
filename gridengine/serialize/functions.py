"""Functions taken apart, and put together where nobody can import them.

A function's global variables are filled in after it has been made, since they may lead back to it.
"""

from __future__ import annotations

import builtins
import importlib
import linecache
import os
import types
from typing import Any, TypeAlias

from gridengine.serialize import annotation_code
from gridengine.serialize.annotation_code import LAZY
from gridengine.serialize.byte_code import global_names, submodules
from gridengine.serialize.main_module import add_to_main

Source: TypeAlias = tuple[str, int, list[str]]
"""A file's name, a line number and the lines from there on."""

NAMESPACE = ("__name__", "__package__", "__file__")
"""What a function's global variables hold beside those that its code names."""
FUNCTION_PARTS = (
    "__defaults__",
    "__kwdefaults__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__type_params__",
    *(() if LAZY else ("__annotations__",)),
)


def reduction(function: types.FunctionType, namespaces: dict[int, dict[str, Any]]) -> Any:
    """Return what a pickle has of a function: its parts, with the global variables that its code
    names.

    namespaces: by the global variables of functions that are in the same pickle, what stands for
        them there: functions that share theirs here share them there.
    """
    names, code = function.__globals__, function.__code__
    namespace = namespaces.setdefault(
        id(names), {name: names[name] for name in NAMESPACE if name in names}
    )
    used = {name: names[name] for name in global_names(code) if name in names}
    parts = {name: value for name in FUNCTION_PARTS if (value := getattr(function, name, None))}
    closure = function.__closure__
    if LAZY:
        parts |= annotation_code.of_function(function)
        closure = annotation_code.closure_of(function)
    imports = list(submodules(code, used.values()))
    state = (imports, used, parts, function.__dict__, source_of(code))
    arguments = (code, namespace, function.__name__, closure)
    return make_function, arguments, state, None, None, fill_function


def make_function(
    code: types.CodeType, space: dict[str, Any], name: str, closure: tuple[Any, ...] | None
) -> types.FunctionType:
    """Return a function that has nothing yet but its code."""
    space.setdefault("__builtins__", builtins)
    return types.FunctionType(code, space, name, None, closure)


def fill_function(
    function: types.FunctionType,
    state: tuple[list[str], dict[str, Any], dict[str, Any], dict[str, Any], Source | None],
) -> None:
    """Give a function its global variables and the rest of its parts."""
    imports, used, parts, attributes, source = state
    for name in imports:
        importlib.import_module(name)
    function.__globals__.update(used)
    for name, value in parts.items():
        if name == "__annotate__":
            value = annotation_code.put_together(value, function.__globals__)
        setattr(function, name, value)
    function.__dict__.update(attributes)
    add_to_main(function.__globals__.get("__name__"), used)
    if "." not in function.__qualname__:
        add_to_main(function.__module__, {function.__qualname__: function})
    if source is not None:
        note_source(*source)


def source_of(code: types.CodeType) -> Source | None:
    """Return the lines of a function, for tracebacks where its file, perhaps a notebook's cell, is
    not at hand.
    """
    first = code.co_firstlineno
    last = max((line for _, _, line in code.co_lines() if line), default=first)
    lines = linecache.getlines(code.co_filename)[first - 1 : last]
    return (code.co_filename, first, lines) if lines else None


def note_source(filename: str, first: int, lines: list[str]) -> None:
    """Let tracebacks find these lines, unless the file is here."""
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
    """Return what is in a closure's cell; the default while the variable has no value."""
    try:
        return cell.cell_contents
    except ValueError:
        return default


def fill_cell(cell: types.CellType, state: tuple[Any]) -> None:
    """Give a closure's cell its contents."""
    cell.cell_contents = state[0]
