"""Lazy imports (Python 3.15, PEP 810): objects that a module's names hold until they are used.

A lazy import travels as its path, and as a lazy import arrives. Nothing is imported for that:
neither here, nor in the other process before it is used.
"""

from __future__ import annotations

import gc
import types
from typing import Any

LAZY: type = getattr(types, "LazyImportType", type("LazyImportType", (), {}))
"""The type of lazy imports; before Python 3.15 a type without objects."""


def reduction(lazy: object) -> Any:
    """Return the reduction of a lazy import: its path, and whether it stands for the path's end
    (`from xml import dom`), not for the beginning (`import xml.dom`).
    """
    # Only one that stands for the end refers to another lazy import.
    is_member = any(type(one) is LAZY for one in gc.get_referents(lazy))
    return make, (path_of(lazy), is_member)


def path_of(lazy: object) -> str:
    """Return the path that a lazy import imports, such as `package.module` or `module.function`."""
    return repr(lazy).split("'")[1]  # nothing else has the path


def make(path: str, member: bool) -> Any:
    """Make the lazy import of a path. It imports when it is used as a global variable."""
    package, _, name = path.rpartition(".")
    statement = f"lazy from {package} import {name}" if member else f"lazy import {path}"
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(statement, names)
    return names[name if member else path.partition(".")[0]]
