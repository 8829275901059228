"""The differences between a call that a named run has and a call that is handed in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from gridengine.errors import safe_repr
from gridengine.journal.call_keys import CallKeys
from gridengine.journal.key_recipes import recipe_of
from gridengine.serialize.unpicklable import arguments, name_of, parts_of

Part: TypeAlias = tuple[str, Any]
DEEPEST = 20
"""How many objects within each other are looked into."""
SHOWN = 60
"""How many characters are shown of a value."""


def difference(before: Any, now: Any, form: int) -> str:
    """Return a text that names the smallest part that differs between two calls of this form; empty
    if each has the same parts.
    """
    old_parts, new_parts = [*arguments(form, before)], [*arguments(form, now)]
    if len(old_parts) != len(new_parts):
        return f"the number of arguments differs: {len(old_parts)} before, {len(new_parts)} now"
    found = _first(old_parts, new_parts)
    if found is None:
        return ""
    path, old, new = found
    at = ""
    for _ in range(DEEPEST):
        # The old object's class may have come with it from the file: it is the same by its name.
        kind: Any = type(new)
        alike = name_of(type(old)) == name_of(kind) and recipe_of(kind) is None
        inside = _first(parts_of(old), parts_of(new)) if alike else None
        if inside is None:
            break
        step, old, new = inside
        at += step if step[0] in "[." else f", its {step}"
    where = f" at {at}" if at else ""
    shown = [safe_repr(one, most=SHOWN) for one in (old, new)]
    told = shown[0] != shown[1] and " at 0x" not in shown[1]
    values = f"{shown[0]} before, {shown[1]} now" if told else f"a {name_of(type(new))}"
    return f"{path} differs{where}: {values}"


def _first(before: Iterable[Part], now: Iterable[Part]) -> tuple[str, Any, Any] | None:
    """Return the first parts that differ, with the text for their place."""
    known = dict(before)
    for place, new in now:
        if place in known and _key(known[place]) != _key(new):
            return place, known[place], new
    return None


def _key(part: Any) -> bytes:
    try:
        return CallKeys().of_object(part)
    except Exception:  # a user's own code may raise anything when it is pickled
        return b""
