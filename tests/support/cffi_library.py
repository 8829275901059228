"""An object that says it is a module, as the libraries of cffi in `sys.modules` do."""

from __future__ import annotations

from types import ModuleType


class CffiLibrary:
    """Its type is no module's, but `isinstance` believes its `__class__`."""

    __class__ = ModuleType  # type: ignore[assignment]
