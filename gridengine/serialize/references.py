"""Futures among what is handed in: where one lies, a reference to the result is pickled, and calls
get the result in its place.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from gridengine.serialize.payload import Payload, size_of

MOST_BESIDE = 64 * 1024
"""Values that were pickled together travel on together while they are of so many bytes at most."""
_KNOWN_CLASS = re.compile(b"find_class")
"""Is in a pickle that names a class which the caller alone is sure to know."""
RESULT_NAME_BYTES = 8
"""How long the name of a result is: no shared object's or function's is of that length."""


class User(Protocol):
    """A dispatcher, which knows what references stand for."""

    def release_references(self, references: list[int]) -> None: ...


class Reference:
    """Stands for a result that may not be there yet. `number` is what it travels by, and unlike any
    other. Once it is gone, those who know it are told.
    """

    __slots__ = ("__weakref__", "_users", "number")

    def __init__(self) -> None:
        self.number = new_number()
        self._users: list[weakref.ref[User]] = []
        weakref.finalize(self, _release, self.number, self._users).atexit = False

    @property
    def name(self) -> bytes:
        """What it is pickled as."""
        return self.number.to_bytes(RESULT_NAME_BYTES, "big")

    def is_known_to(self, user: User) -> bool:
        """Return whether this dispatcher knows it."""
        return any(one() is user for one in self._users)

    def add_user(self, user: User) -> None:
        """Note that a dispatcher knows it."""
        self._users.append(weakref.ref(user))

    def remove_user(self, user: User) -> None:
        """Note that it does not know it after all."""
        self._users[:] = [one for one in self._users if one() is not user]


def _release(number: int, users: list[weakref.ref[User]]) -> None:
    """Called by the collector too, at any point and in any thread: it must not wait for a lock."""
    for one in users:
        user = one()
        if user is not None:
            user.release_references([number])


@functools.cache
def _numbers() -> Iterator[int]:
    """Return numbers that no other process has."""
    return itertools.count(int.from_bytes(os.urandom(8), "big") >> 1)


def new_number() -> int:
    """Return what a result may travel by: unlike any other."""
    return next(_numbers())


Awaited: TypeAlias = Mapping[Reference, Any]
"""References, each with what gives the result."""


NOTHING: Awaited = types.MappingProxyType({})


def awaited_in(payload: Payload) -> Awaited:
    """Return what a payload refers to, until its dispatcher has been told of that."""
    return getattr(payload, "awaits", NOTHING)


def numbers(references: Iterable[Reference]) -> tuple[int, ...]:
    """Return the numbers of these references, each once."""
    return tuple(dict.fromkeys(one.number for one in references))


def can_go_on(payload: Payload, values: int) -> bool:
    """Return whether one of so many values that were pickled together for the caller may be sent on
    as it came; else the caller has to pickle it again.
    """
    is_alone = values == 1 or size_of(payload) <= MOST_BESIDE
    return is_alone and _KNOWN_CLASS.search(payload[0]) is None


class ResultHolder:
    """The base of what is not a future and yet stands for a result: calls that are given it get
    that.
    """

    __slots__ = ()

    def _find_source(self) -> tuple[Any, Any] | None:
        """Return what the result is known by, the same each time, and what gives it; None is for
        what is pickled as other objects are.
        """
        raise NotImplementedError


class _Hook:
    """What may be referred to: objects of these types, of which `find` gives a reference and what
    gives the result, or None for one that is pickled as other objects are.
    """

    def __init__(self) -> None:
        self.kinds: tuple[type, ...] = ()
        self.find: Callable[[Any], tuple[Reference, Any] | None] = lambda obj: None


@functools.cache
def hook() -> _Hook:
    return _Hook()


def refer_to(kinds: tuple[type, ...], find: Callable[[Any], tuple[Reference, Any] | None]) -> None:
    """Have objects of these types referred to, from now on; see `_Hook`."""
    hook().find, hook().kinds = find, kinds
