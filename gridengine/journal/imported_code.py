"""Find the code of modules that functions import when they run. Such a module may not be loaded in
this process, and is not loaded for this: its file is found and compiled.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib.util
import tokenize
import types
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from gridengine.serialize.byte_code import codes
from gridengine.serialize.users_modules import is_own, spec_of


def imported_code(
    code: types.CodeType, package: str | None, names: Iterable[str] = ()
) -> Iterator[tuple[str, types.CodeType]]:
    """Yield the name and code of each of the user's own modules that this code imports, directly or
    by other such modules. `package` is the package that relative imports start from. `names` are
    imported as well; each is a module or a member of one.
    """
    waiting = deque([*_imports(code, package), *sorted(_with_packages(names))])
    seen = set[str]()
    while waiting:
        name = waiting.popleft()
        spec = None if name in seen else spec_of(name)
        seen.add(name)
        if spec is None or not spec.has_location or not is_own(str(spec.origin)):
            continue
        found = _compiled(str(spec.origin), _time_of(str(spec.origin)))
        if found is not None:
            yield name, found
            waiting += _imports(found, spec.parent)


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
                with contextlib.suppress(ImportError):  # beyond the top: it fails at run time, too
                    name = "." * level + instruction.argval
                    whole = importlib.util.resolve_name(name, package)
                    names.add(whole)
                    names.update(f"{whole}.{member}" for member in members or ())
            elif instruction.opname != "EXTENDED_ARG":
                before = [*before[-1:], instruction]
    return tuple(sorted(_with_packages(names)))


def _with_packages(names: Iterable[str]) -> set[str]:
    parts = (name.split(".") for name in names)
    return {".".join(one[:end]) for one in parts for end in range(1, len(one) + 1)}


@functools.lru_cache(maxsize=4096)
def _compiled(path: str, changed: int) -> types.CodeType | None:
    """Return the code of a file; None when it is no readable Python file."""
    try:
        with tokenize.open(path) as file:
            return compile(file.read(), Path(path).name, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None
