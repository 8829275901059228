"""What calls find of their caller's interpreter, beside its environment: the warning filters, the
context of `decimal` and the recursion limit.

It travels as bytes that runners alone read. Other state of an interpreter stays behind: see
docs/environment.md.
"""

from __future__ import annotations

import functools
import pickle
import sys
import warnings
from typing import Any, TypeAlias

from gridengine.errors import PicklingError
from gridengine.serialize import pickling

Context: TypeAlias = tuple[int, str, int, int, int, int, tuple[str, ...]]
"""Precision, rounding, least and largest exponent, capitals, clamp, and the names of the signals
that raise.
"""
DEFAULT: Context = (
    28,
    "ROUND_HALF_EVEN",
    -999999,
    999999,
    1,
    0,
    ("InvalidOperation", "DivisionByZero", "Overflow"),
)
"""That of a Python that has just been started."""


def present_state() -> bytes:
    """Return that of this thread now; the same object as long as nothing of it changes."""
    decimal = sys.modules.get("decimal")
    # What takes a context apart is written in C; its signals that are set (`flags`) stay here.
    context: Any = decimal and decimal.getcontext().__reduce__()[1]
    numbers, traps = (context[:6], tuple(context[7])) if context else ((), ())
    return _pickled(sys.getrecursionlimit(), tuple(warnings.filters), numbers, traps)


@functools.lru_cache(maxsize=1)
def _pickled(limit: int, filters: Any, numbers: Any, traps: Any) -> bytes:
    context: Any = (*numbers, tuple(one.__name__ for one in traps)) if numbers else DEFAULT
    is_default = (*context[:6], set(context[6])) == (*DEFAULT[:6], set(DEFAULT[6]))
    parts = [part for part in map(_pickled_filter, filters) if part is not None]
    return pickle.dumps((limit, None if is_default else context, parts), 5)


def _pickled_filter(one: Any) -> bytes | None:
    """Return a warning filter by itself: where its category cannot be had, others hold."""
    try:
        return bytes(pickling.dump(one)[0])
    except PicklingError:
        return None


def restore(state: bytes) -> None:
    """Have this process's interpreter as a caller's was."""
    limit, context, filters = pickle.loads(state)
    if limit != sys.getrecursionlimit():
        sys.setrecursionlimit(limit)
    if context is not None or "decimal" in sys.modules:
        _set_context(context or DEFAULT)
    wanted = [one for one in map(_loaded_filter, filters) if one is not None]
    if wanted != warnings.filters:
        warnings.resetwarnings()  # which has what was looked up before be looked up again
        warnings.filters[:] = wanted  # type: ignore[index]


def _loaded_filter(part: bytes) -> Any:
    try:
        return pickle.loads(part)
    except Exception:  # its category is in a module that is not here
        return None


def _set_context(context: Context) -> None:
    import decimal

    signals = [getattr(decimal, name) for name in context[6]]
    decimal.setcontext(decimal.Context(*context[:6], flags=[], traps=signals))
