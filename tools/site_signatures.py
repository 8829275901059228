"""An extension of griffe: the reference shows signatures as `inspect.signature` does.

griffe reads the source, in which a function may have `**keywords: Unpack[...]`. The signature that
`inspect` shows has each of these keywords, with its default.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

from griffe import Extension, Function, Parameter, ParameterKind

sys.path.insert(0, str(Path(__file__).parents[1]))  # this package, not one that is installed


class Signatures(Extension):
    """Writes out the keywords that an `Unpack` stands for."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """Complete the signature of a function, and those of its overloads."""
        if not any(unpacked(one) for one in func.parameters):
            return
        found: Any = importlib.import_module(func.module.canonical_path)
        for name in func.canonical_path.removeprefix(f"{found.__name__}.").split("."):
            found = getattr(found, name)
        shown = inspect.signature(found).parameters
        for one in (func, *(func.overloads or ())):
            complete(one, shown)


def unpacked(parameter: Parameter) -> bool:
    """Return whether a parameter stands for the keywords of a `TypedDict`."""
    return parameter.kind is ParameterKind.var_keyword and "Unpack[" in str(parameter.annotation)


def complete(function: Function, shown: Any) -> None:
    """Put the parameters that `inspect` shows into the place of those that stand for them."""
    for parameter in [one for one in function.parameters if unpacked(one)]:
        del function.parameters[parameter.name]
        for name, one in shown.items():
            if name not in function.parameters:
                function.parameters[name] = Parameter(
                    name,
                    annotation=one.annotation,
                    kind=ParameterKind[one.kind.name.lower()],
                    default=None if one.default is one.empty else repr(one.default),
                )
