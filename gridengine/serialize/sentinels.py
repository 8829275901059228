"""Sentinels (Python 3.15, PEP 661) that cannot be imported, for what counts of one is which it is.

Each has a *token*, as classes have: a process that knows the token uses the sentinel that it has,
and the one where it was made gets its own back. They are constants, and cannot be referred to
weakly: they are known as long as the process lives.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
from typing import Any, NamedTuple

from gridengine.serialize.classes import is_importable, known_classes
from gridengine.serialize.users_modules import add_to_main

SENTINEL: type = getattr(builtins, "sentinel", type("sentinel", (), {}))
"""Their type; before Python 3.15 one that nothing is of."""


class _Known(NamedTuple):
    """By its `id`: a sentinel and its token. By its token: a sentinel."""

    tokens: dict[int, tuple[Any, bytes]]
    sentinels: dict[bytes, Any]


@functools.cache
def _known() -> _Known:
    return _Known({}, {})


def reduction(one: Any) -> Any:
    """Return what a pickle has of a sentinel."""
    if is_importable(one):
        return NotImplemented
    # Several threads may come here: the first token is the one that is kept.
    _, token = _known().tokens.setdefault(id(one), (one, os.urandom(16)))
    _known().sentinels[token] = one
    return find, (token, one.__module__, one.__name__, repr(one))


def find(token: bytes, module: str, name: str, text: str) -> Any:
    """Return the sentinel that has this token; when there is none, a new one of this name and
    `repr`.
    """
    if token not in _known().sentinels:
        one = _of_the_script(name) or _new(module, name, text)
        one = _known().sentinels.setdefault(token, one)
        _known().tokens[id(one)] = one, token
    found = _known().sentinels[token]
    add_to_main(module, {name: found})
    return found


def _of_the_script(name: str) -> Any:
    """Return what the script has by this name, if what an earlier process has kept is read."""
    found = getattr(sys.modules["__main__"], name, None)
    return found if known_classes().finds_by_name and type(found) is SENTINEL else None


def _new(module: str, name: str, text: str) -> Any:
    one = SENTINEL(name, repr=text)
    one.__module__ = module
    return one
