"""Names that a module imports lazily (Python 3.15, PEP 810), until they are used: objects that say
what is to be imported.

They travel as what they say. Nothing is imported for that: neither here, nor where they arrive
before they are used.
"""

from __future__ import annotations

import gc
import types
from typing import Any

LAZY: type = getattr(types, "LazyImportType", type("LazyImportType", (), {}))
"""The type of such an object; before Python 3.15 one that nothing is of."""


def reduction(lazy: object) -> Any:
    """Return what a pickle has of it."""
    return make, (path_of(lazy), is_member(lazy))


def path_of(lazy: object) -> str:
    """Return what it imports, as `package.module` or `module.function`."""
    return repr(lazy).split("'")[1]  # nothing else says it


def is_member(lazy: object) -> bool:
    """Return whether it stands for the end of its path (`from xml import dom`), not for the
    beginning (`import xml.dom`): then it holds what it is a member of.
    """
    return any(type(one) is LAZY for one in gc.get_referents(lazy))


def make(path: str, member: bool) -> Any:
    """Return what imports this when it is used as a global variable."""
    package, _, name = path.rpartition(".")
    statement = f"lazy from {package} import {name}" if member else f"lazy import {path}"
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(statement, names)
    return names[name if member else path.partition(".")[0]]
