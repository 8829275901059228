"""How code uses modules of the user: by the names of their members, or otherwise.

`models.linear(x)` uses one member of the module `models`. Any other use (`getattr(models, name)`,
`vars(models)`, `[models]`) may reach all of the module. Such a module counts as a whole, and so
does a module that code imports by a text.

Rejected: to follow the text into `getattr` and its kin. Whoever writes `getattr` has a name that is
known when the code runs.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias

from gridengine.serialize.byte_code import GLOBAL_OPERATIONS, codes
from gridengine.serialize.users_modules import MAINS, is_own, is_own_module

Use: TypeAlias = tuple[str, ...]
"""The name of a variable outside of the code, and the attributes that are taken of it at once."""
LOADS = frozenset(
    {*GLOBAL_OPERATIONS, "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
) - {"STORE_GLOBAL", "DELETE_GLOBAL"}
MEMBERS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"})
NOTHING = frozenset({"EXTENDED_ARG", "PUSH_NULL", "PRECALL"})
"""Instructions that stand between others, depending on the version of Python."""
BY_TEXT = frozenset(
    {
        "__import__",
        "exec_module",
        "import_module",
        "load_module",
        "resolve_name",
        "run_module",
        "run_path",
        "spec_from_file_location",
    }
)
"""The names of functions that import a module that a text names."""
IMPORTERS = frozenset({"_frozen_importlib_external", "builtins", "importlib", "pkgutil", "runpy"})
"""The modules of these functions."""


class ByName(NamedTuple):
    """Stands for one of the user's own modules of which code uses members by their names alone."""

    module: types.ModuleType


class Imports(NamedTuple):
    """What code imports by texts: the names that are known, and whether there are others."""

    names: frozenset[str]
    others: bool


def is_users_module(obj: object) -> bool:
    """Return whether this is one of the user's own modules, or the script."""
    return isinstance(obj, types.ModuleType) and (obj.__name__ in MAINS or is_own_module(obj))


@functools.lru_cache(maxsize=4096)
def uses(code: types.CodeType) -> tuple[Use, ...]:
    """Return how this code, and code within it, uses the variables outside of it, sorted."""
    found = set[Use]()
    for one in codes(code):
        use: Use = ()
        for instruction in _instructions(one):
            if use and instruction.opname in MEMBERS:
                use = *use, instruction.argval
                continue
            found.add(use)
            use = (instruction.argval,) if instruction.opname in LOADS else ()
    return tuple(sorted(found - {()}))


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    return (one for one in dis.get_instructions(code) if one.opname not in NOTHING)


def by_name(name: str, value: Any, found: Iterable[Use], texts: Set[str] = frozenset()) -> Any:
    """Return the value of a variable; or `ByName` for a module of the user, if all these uses take
    its members by name and none of the texts names a member.
    """
    if not is_users_module(value) or any(use == (name,) for use in found):
        return value
    return ByName(value) if texts.isdisjoint(vars(value)) else value


def members(found: Iterable[Use], variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the members of the user's own modules that these uses reach, including members of
    modules in modules, by their paths. A module that counts as a whole is among them itself.
    """
    for name, *attributes in found:
        path, value = name, variables.get(name)
        for index, attribute in enumerate(attributes, 1):
            if not is_users_module(value):
                break
            if attribute not in vars(value):  # `__dict__`, or a name that `__getattr__` knows
                yield path, value
                break
            path, value = f"{path}.{attribute}", vars(value)[attribute]
            inside = index < len(attributes) and is_users_module(value)
            yield path, ByName(value) if inside else value


def reads_globals(found: Iterable[Use], variables: Mapping[str, Any]) -> bool:
    """Return whether code may read any global variable of its module by a text."""
    return any(
        use[-1] in ("globals", "eval", "exec") and use[0] not in variables for use in found
    ) or any(variables.get(use[0]) is one for use in found for one in (globals, eval, exec))


def imports_by_text(code: types.CodeType, variables: Mapping[str, Any]) -> Imports:
    """Return the modules that this code, or code in it, imports by texts or from `sys.modules`."""
    names, others = set[str](), False
    for one in codes(code):
        instructions = [*_instructions(one)]
        for index, instruction in enumerate(instructions):
            before = instructions[index - 1].argval if index else None
            if _imports(instruction, before, variables):
                text = _text(instructions[index + 1 :], variables)
                names.add(text)
                others = others or not text
            elif instruction.opname.startswith("STORE") and instruction.argval != before:
                is_alias = instructions[index - 1].opname == "IMPORT_FROM" and before in BY_TEXT
                others = others or is_alias
    return Imports(frozenset(names - {""}), others)


def _imports(instruction: dis.Instruction, before: Any, variables: Mapping[str, Any]) -> bool:
    """Return whether an instruction loads a function that imports by a text, or `sys.modules`.
    `before` is what the instruction before it loads.
    """
    opname, name = instruction.opname, instruction.argval
    if not opname.startswith("LOAD") or opname == "LOAD_CONST" or not isinstance(name, str):
        return False
    if name == "modules":
        return before == "sys" or (isinstance(before, str) and variables.get(before) is sys)
    if opname in LOADS and name in variables:
        one = variables[name]
        home = str(getattr(one, "__module__", None)).partition(".")[0]
        return home in IMPORTERS and getattr(one, "__name__", None) in BY_TEXT
    return name in BY_TEXT


def _text(after: Sequence[dis.Instruction], variables: Mapping[str, Any]) -> str:
    """Return the constant text that is the only argument of the call, or the only index, with which
    these instructions begin; empty if there is none.
    """
    if after[0].argval == "get":
        after = after[1:]
    text = variables.get("__name__") if after[0].argval == "__name__" else after[0].argval
    is_text = isinstance(text, str) and after[0].opname in (*LOADS, "LOAD_CONST")
    alone = len(after) > 1 and after[1].opname.startswith(("CALL", "BINARY"))
    return text if isinstance(text, str) and is_text and alone else ""


def own_modules_around() -> list[str]:
    """Return the names of the user's own modules: the loaded ones, and those that an import would
    find in the user's folders of `sys.path`.
    """
    import pkgutil  # here: few import by a text that is unknown

    names = {name for name, one in list(sys.modules.items()) if is_own_module(one)}
    folders = (folder or os.curdir for folder in sys.path)
    waiting = deque((folder, "") for folder in folders if is_own(f"{folder}{os.sep}"))
    while waiting:
        folder, package = waiting.popleft()
        for found in pkgutil.iter_modules([folder], package):
            names.add(found.name)
            if found.ispkg:
                inside = f"{folder}{os.sep}{found.name.rpartition('.')[2]}"
                waiting.append((inside, f"{found.name}."))
    return sorted(names - MAINS)
