"""References: a future that is handed in is pickled as a reference, and calls get the result."""

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
from gridengine.threads import once

MOST_BESIDE = 64 * 1024
"""Values that were pickled together are forwarded together up to this size in bytes."""
_KNOWN_CLASS = re.compile(b"find_class")
"""Is in a pickle that names a class by its token, which only the caller is sure to know."""
RESULT_NAME_BYTES = 8
"""The length of a result's name. Names of shared objects and functions are longer."""


class NameUser(Protocol):
    """A dispatcher, whose workers may have shared objects, and which knows the results that
    references stand for.
    """

    def release(self, name: bytes) -> None: ...
    def release_references(self, references: list[int]) -> None: ...


class Reference:
    """Stands for a result that may not be there yet. It travels by its `number`, which no other
    reference has. When it is gone, the dispatchers that know it are told.
    """

    __slots__ = ("__weakref__", "_users", "number")

    def __init__(self) -> None:
        self.number = new_number()
        self._users: list[weakref.ref[NameUser]] = []
        weakref.finalize(self, _release, self.number, self._users).atexit = False

    @property
    def name(self) -> bytes:
        """The bytes by which it is pickled."""
        return self.number.to_bytes(RESULT_NAME_BYTES, "big")

    def is_known_to(self, user: NameUser) -> bool:
        """Return whether this dispatcher knows the reference."""
        return any(one() is user for one in self._users)

    def add_user(self, user: NameUser) -> None:
        """Note that a dispatcher knows the reference."""
        self._users.append(weakref.ref(user))

    def remove_user(self, user: NameUser) -> None:
        """Note that a dispatcher does not know the reference after all."""
        self._users[:] = [one for one in self._users if one() is not user]


def _release(number: int, users: list[weakref.ref[NameUser]]) -> None:
    """Tell the dispatchers that know a reference that it is gone. The garbage collector calls this
    too, at any point and in any thread: it must not wait for a lock.
    """
    for one in users:
        user = one()
        if user is not None:
            user.release_references([number])


@functools.cache
def _numbers() -> Iterator[int]:
    """Return an iterator of numbers that no other process has."""
    return itertools.count(int.from_bytes(os.urandom(8), "big") >> 1)


def new_number() -> int:
    """Return a number for a result that no other result has."""
    return next(_numbers())


Awaited: TypeAlias = Mapping[Reference, Any]
"""References, each with the source of its result."""


NOTHING: Awaited = types.MappingProxyType({})


def awaited_in(payload: Payload) -> Awaited:
    """Return the references in a payload whose dispatcher has not been told of them."""
    return getattr(payload, "awaits", NOTHING)


def numbers(references: Iterable[Reference]) -> tuple[int, ...]:
    """Return the numbers of these references, without repeats."""
    return tuple(dict.fromkeys(one.number for one in references))


def can_go_on(payload: Payload, values: int) -> bool:
    """Return whether the payload of a value can be forwarded unchanged; `values` is the number of
    values in that payload. If not, the caller has to pickle the value again.
    """
    is_alone = values == 1 or size_of(payload) <= MOST_BESIDE
    return is_alone and _KNOWN_CLASS.search(payload[0]) is None


class ResultHolder:
    """The base of objects that are not futures and yet stand for a result: calls that get such an
    object as an argument get the result.
    """

    __slots__ = ()

    def _find_source(self) -> tuple[Any, Any] | None:
        """Return the object by which the result is known, the same each time, and the source of the
        result. Return None if the object is to be pickled like any other.
        """
        raise NotImplementedError


class _Hook:
    """The types of objects that are pickled as references. `find` returns an object's reference and
    the source of its result, or None for an object that is pickled like others.
    """

    def __init__(self) -> None:
        self.kinds: tuple[type, ...] = ()
        self.find: Callable[[Any], tuple[Reference, Any] | None] = lambda obj: None


@once
def hook() -> _Hook:
    return _Hook()


def refer_to(kinds: tuple[type, ...], find: Callable[[Any], tuple[Reference, Any] | None]) -> None:
    """Pickle objects of these types as references from now on; see `_Hook`."""
    hook().find, hook().kinds = find, kinds
