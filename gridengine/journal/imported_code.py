"""The code of modules that functions import when they run. They may never have been loaded in this
process, and are not for this: their files are found and compiled.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib.util
import logging
import sys
import tokenize
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

from gridengine.serialize.functions import codes
from gridengine.serialize.module_changes import is_own

log = logging.getLogger("gridengine")


def imported_code(
    code: types.CodeType, package: str | None
) -> Iterator[tuple[str, types.CodeType]]:
    """Yield the name and the code of each module of the user's own that this code imports, and of
    those that these import. `package` is what the imports of code within it are relative to.
    """
    waiting, seen = [(code, package)], set[str]()
    while waiting:
        for name in _imports(*waiting.pop()):
            spec = None if name in seen else _spec(name)
            seen.add(name)
            if spec is None or not spec.has_location or not is_own(str(spec.origin)):
                continue
            found = _compiled(str(spec.origin), _time_of(str(spec.origin)))
            if found is not None:
                yield name, found
                waiting.append((found, spec.parent))


def _time_of(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=4096)
def _imports(code: types.CodeType, package: str | None) -> tuple[str, ...]:
    """Return the names of the modules that this code, or code within it, may import, sorted."""
    names = set()
    for one in codes(code):
        before: list[dis.Instruction] = []
        for instruction in dis.get_instructions(one):
            if instruction.opname == "IMPORT_NAME":
                level, members = (found.argval for found in before[-2:])
                with contextlib.suppress(ImportError):  # beyond the top: it fails when it runs, too
                    name = "." * level + instruction.argval
                    whole = importlib.util.resolve_name(name, package)
                    names.add(whole)
                    names.update(f"{whole}.{member}" for member in members or ())
            elif instruction.opname != "EXTENDED_ARG":
                before = [*before[-1:], instruction]
    parts = (name.split(".") for name in names)
    return tuple(sorted({".".join(one[:end]) for one in parts for end in range(1, len(one) + 1)}))


def _spec(name: str) -> ModuleSpec | None:
    """Return where a module is; its packages are not loaded for it. None when it has no file."""
    words, path, spec = name.split("."), None, None
    for end in range(1, len(words) + 1):
        spec = _found(".".join(words[:end]), path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
        if path is None and end < len(words):
            return None
    return spec


def _found(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except Exception as error:  # it may be anybody's
            log.debug("%r has not found %s: %s", finder, name, error)
            continue
        if spec is not None:
            return spec
    return None


@functools.lru_cache(maxsize=4096)
def _compiled(path: str, changed: int) -> types.CodeType | None:
    """Return the code of a file; None when it is none of Python's that can be read."""
    try:
        with tokenize.open(path) as file:
            return compile(file.read(), Path(path).name, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None
