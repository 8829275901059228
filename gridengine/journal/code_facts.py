"""The parts of code that count in the key of a call: its instructions and constants, and the code
of the user's own modules that it imports when it runs.

Such a module may not be loaded in this process. It is not loaded for its key: its file is found and
compiled.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib.util
import sys
import tokenize
import types
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gridengine.serialize.byte_code import codes
from gridengine.serialize.users_modules import Stamp, is_own, spec_of, stamp_of

CONSTANTS_SHIFT = sys.version_info >= (3, 14)
"""Whether a docstring, which does not count, shifts the numbers of the constants."""
HAS_DOCSTRING = 0x400_0000  # of `inspect`; before Python 3.14 no flag has this value


def facts_of(code: types.CodeType) -> tuple[Any, ...]:
    """Return the facts of a code object that decide what it does. Its place in the file is left
    out, and so are the names of local variables that are not parameters.
    """
    parameters = code.co_argcount + code.co_kwonlyargcount
    does: tuple[Any, ...] = code.co_code, tuple(map(_constant, code.co_consts))
    if CONSTANTS_SHIFT:
        does = (tuple(_instructions(code)),)
    flags = code.co_flags & ~HAS_DOCSTRING
    return (
        *does,
        code.co_names,
        code.co_varnames[:parameters],
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, flags),
        getattr(code, "co_exceptiontable", b""),
    )


def _instructions(code: types.CodeType) -> Sequence[Any]:
    """Return the instructions of code, with the values of constants in place of their numbers, and
    without the line numbers of classes.
    """
    found: list[Any] = []
    for one in dis.get_instructions(code):
        if one.opname == "STORE_NAME" and one.argval == "__firstlineno__":
            found.pop()
        elif one.opcode in dis.hasconst:
            found.append((one.opname, _constant(one.argval)))
        elif one.opname != "EXTENDED_ARG":
            found.append((one.opname, one.arg))
    return found


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return facts_of(value)
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):
        return "frozenset", sorted(repr(_constant(one)) for one in value)
    return type(value).__name__, value


def imported_code(
    code: types.CodeType, package: str | None, names: Iterable[str] = ()
) -> Iterator[tuple[str, types.CodeType]]:
    """Yield the name and code of each of the user's own modules that this code imports, directly or
    through other such modules.

    package: relative imports start from it.
    names: further modules, or members of modules, that count as imported.
    """
    return own_code([*_imports(code, package), *sorted(with_packages(names))])


def own_code(names: Iterable[str]) -> Iterator[tuple[str, types.CodeType]]:
    """Yield the name and code of each of the user's own modules among these, and of those that they
    import.
    """
    waiting = deque(names)
    seen = set[str]()
    while waiting:
        name = waiting.popleft()
        spec = None if name in seen else spec_of(name)
        seen.add(name)
        if spec is None or not spec.has_location or not is_own(str(spec.origin)):
            continue
        found = _compiled(str(spec.origin), stamp_of(str(spec.origin)))
        if found is not None:
            yield name, found
            waiting += _imports(found, spec.parent)


@functools.lru_cache(maxsize=4096)
def _imports(code: types.CodeType, package: str | None) -> tuple[str, ...]:
    """Return the names of the modules that this code, or code within it, may import, sorted."""
    names = set()
    for one in codes(code):
        before: list[dis.Instruction] = []
        for instruction in dis.get_instructions(one):
            if instruction.opname == "IMPORT_NAME":
                level, members = (found.argval for found in before[-2:])
                with contextlib.suppress(ImportError):  # beyond the top: it fails at run time, too
                    name = "." * level + instruction.argval
                    whole = importlib.util.resolve_name(name, package)
                    names.add(whole)
                    names.update(f"{whole}.{member}" for member in members or ())
            elif instruction.opname != "EXTENDED_ARG":
                before = [*before[-1:], instruction]
    return tuple(sorted(with_packages(names)))


def with_packages(names: Iterable[str]) -> set[str]:
    parts = (name.split(".") for name in names)
    return {".".join(one[:end]) for one in parts for end in range(1, len(one) + 1)}


@functools.lru_cache(maxsize=4096)
def _compiled(path: str, stamp: Stamp) -> types.CodeType | None:
    """Return the code of a file; None when it is not a readable Python file."""
    try:
        with tokenize.open(path) as file:
            return compile(file.read(), Path(path).name, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None
