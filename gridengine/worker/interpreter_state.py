"""The parts of the caller's interpreter state that its calls get, beside the environment: the
warning filters, the context of `decimal` and the recursion limit.

The state travels as bytes that only runners decode. Other state stays behind: see
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
"""The context of a fresh Python."""


def present_state() -> bytes:
    """Return this thread's state; the same object as long as the state does not change."""
    decimal = sys.modules.get("decimal")
    # `__reduce__` takes the context apart in C. Its raised signals (`flags`) do not travel.
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
    """Return a pickled warning filter. Each is pickled by itself: if a category cannot be imported,
    the other filters still hold.
    """
    try:
        return bytes(pickling.dump(one)[0])
    except PicklingError:
        return None


def restore(state: bytes) -> None:
    """Set this process's interpreter state to a caller's."""
    limit, context, filters = pickle.loads(state)
    if limit != sys.getrecursionlimit():
        sys.setrecursionlimit(limit)
    if context is not None or "decimal" in sys.modules:
        _set_context(context or DEFAULT)
    wanted = [one for one in map(_loaded_filter, filters) if one is not None]
    if wanted != warnings.filters:
        warnings.resetwarnings()  # drops the results that Python has cached for each filter
        warnings.filters[:] = wanted  # type: ignore[index]


def _loaded_filter(part: bytes) -> Any:
    try:
        return pickle.loads(part)
    except Exception:  # the filter's category is in a module that this machine does not have
        return None


def _set_context(context: Context) -> None:
    import decimal

    signals = [getattr(decimal, name) for name in context[6]]
    decimal.setcontext(decimal.Context(*context[:6], flags=[], traps=signals))
