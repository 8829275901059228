"""Sentinels (Python 3.15, PEP 661) that cannot be imported.

Only the identity of a sentinel counts. So each has a *token*, like a class that travels by value: a
process that knows the token uses the sentinel that it has, and the process that made the sentinel
gets its own back. Sentinels cannot be referred to weakly: they are known as long as the process
lives.
"""

from __future__ import annotations

import builtins
import os
import sys
from typing import Any, NamedTuple

from gridengine.serialize.classes import is_importable, known_classes
from gridengine.serialize.users_modules import add_to_main
from gridengine.threads import once

SENTINEL: type = getattr(builtins, "sentinel", type("sentinel", (), {}))
"""The type of sentinels; before Python 3.15 a type without objects."""


class _KnownSentinels(NamedTuple):
    """The known sentinels: with their tokens, by `id`; and by token."""

    tokens: dict[int, tuple[Any, bytes]]
    sentinels: dict[bytes, Any]


@once
def _known() -> _KnownSentinels:
    return _KnownSentinels({}, {})


def reduction(one: Any) -> Any:
    """Return the reduction of a sentinel."""
    if is_importable(one):
        return NotImplemented
    # Several threads may come here: the first token stays.
    _, token = _known().tokens.setdefault(id(one), (one, os.urandom(16)))
    _known().sentinels[token] = one
    return find, (token, one.__module__, one.__name__, repr(one))


def find(token: bytes, module: str, name: str, text: str) -> Any:
    """Return the sentinel of this token; if there is none, make one with this name and `repr`."""
    if token not in _known().sentinels:
        one = getattr(sys.modules["__main__"], name, None)  # the script's: stored results are read
        if not known_classes().finds_by_name or type(one) is not SENTINEL:
            one = SENTINEL(name, repr=text)
            one.__module__ = module
        one = _known().sentinels.setdefault(token, one)
        _known().tokens[id(one)] = one, token
    found = _known().sentinels[token]
    add_to_main(module, {name: found})
    return found
