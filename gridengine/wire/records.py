"""Classes with slots for the fields that their bodies annotate, for modules that a first map loads.

They are like `dataclasses.dataclass(slots=True, eq=False)`, but `dataclasses` takes a tenth of the
start of a process for its import of `inspect` and its checks. `msgspec.Struct` is as quick to make,
but setting an attribute of one takes longer, which the core would feel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast, dataclass_transform

T = TypeVar("T")
_UNSET: Any = object()


class _Field(NamedTuple):
    default_factory: Callable[[], Any]


def field(*, default_factory: Callable[[], T]) -> T:
    """Return a default that is made anew for each instance."""
    return cast(T, _Field(default_factory))


@dataclass_transform(field_specifiers=(field,))
def record(made: type[T]) -> type[T]:
    """Return the class with slots for its annotated fields, and an `__init__` that sets them."""
    body = dict(vars(made))
    names = list(made.__annotations__)
    # Names that no field has: one may be called as a built-in function.
    values: dict[str, Any] = {"_UNSET": _UNSET}
    head, lines = ["self"], []
    for name in names:
        default = body.pop(name, _UNSET)
        if isinstance(default, _Field):
            values[f"_make_{name}"] = default.default_factory
            head.append(f"{name}=_UNSET")
            lines.append(f"self.{name} = _make_{name}() if {name} is _UNSET else {name}")
        else:
            values[f"_default_{name}"] = default
            head.append(name if default is _UNSET else f"{name}=_default_{name}")
            lines.append(f"self.{name} = {name}")
    exec(f"def __init__({', '.join(head)}):\n " + "\n ".join(lines), values)
    init = values["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    kind: Any = type(made)
    body |= {"__slots__": names, "__init__": init}
    return cast(type[T], kind(made.__name__, made.__bases__, body))
