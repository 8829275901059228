"""Recognises large arrays that many calls are given, so that each is held, and sent to a worker,
once.

An array may be filled anew between two calls. So it is known by where its data lies, and by what is
there now: to compare takes a fifth of the time of a copy, and ends at the first difference.
"""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gridengine.serialize.payload import Buffer
from gridengine.serialize.shared_memory import StoredPayload, store
from gridengine.serialize.shared_objects import NAME_BYTES, Shared, SharedObject, shared_object_of

KEPT_BYTES = 256_000_000
"""So much of arrays that were used before others is kept, for calls that are yet to come; beyond it
what calls are given together.
"""
_COMPARED_BYTES = 64 * 1024
"""So much is compared at a time: it stays in the processor's cache."""


class _Known(Struct, eq=False):
    """An array that was met; `shared` is the copy that stands for it from the second time on,
    unless it `changes`.
    """

    owner: weakref.ref[Any]
    shared: Shared[Any] | None = None
    changes: bool = False


class RepeatedArrays(Struct, eq=False, weakref=True):
    """The arrays among the arguments of calls, for one thread. It holds none of them, and the copy
    of one no longer than the array itself.

    stored, named: how many bytes were copied for calls to share, and for how many the calls have a
        name, all in all.
    """

    stored: int = 0
    named: int = 0
    _known: dict[tuple[int, int], _Known] = {}

    def find(self, view: memoryview, beside: Sequence[SharedObject] = ()) -> SharedObject | None:
        """Return what stands for a buffer that was met before, else None; `beside` is what was
        found for the same calls.
        """
        owner: Any = view.obj
        interface = getattr(owner, "__array_interface__", None)  # NumPy's, who makes views anew
        key = id(owner) if interface is None else interface["data"][0], view.nbytes
        while hasattr(getattr(owner, "base", None), "__array_interface__"):
            owner = owner.base
        known = self._known.pop(key, None)
        if known is None or known.owner() is not owner:
            forget = functools.partial(_forget, weakref.ref(self), key)
            with contextlib.suppress(TypeError):  # `bytes`, say, cannot be referred to weakly
                self._known[key] = _Known(weakref.ref(owner, forget))
            return None
        self._known[key] = known  # the last, as it is the latest used
        if known.changes:
            return None
        if known.shared is None:
            known.shared = _share(view)
            self.stored += view.nbytes
            self._drop_oldest(beside)
        elif not _is_equal(shared_object_of(known.shared).payload[0], view):
            known.changes, known.shared = True, None  # and will again: it travels with each call
            return None
        self.named += view.nbytes
        return shared_object_of(known.shared)

    def _drop_oldest(self, beside: Sequence[SharedObject]) -> None:
        size = 0
        for key in reversed(list(self._known)):
            known = self._known.get(key)
            if known is not None and known.shared is not None:
                size += key[1]
                # What was used just now stays, or calls of two large arrays copied both each time.
                is_old = size > max(KEPT_BYTES, key[1])
                if is_old and shared_object_of(known.shared) not in beside:
                    known.shared = None

    def clear(self) -> None:
        """Forget all; what calls that were handed in need stays until they have ended."""
        self._known.clear()


def _forget(where: weakref.ref[RepeatedArrays], key: tuple[int, int], _: object) -> None:
    repeated = where()
    if repeated is not None:
        repeated._known.pop(key, None)


def _share(view: memoryview) -> Shared[Any]:
    stored = store([view], whole=True)
    if not isinstance(stored, StoredPayload):
        stored = [bytes(view)]
    return Shared(SharedObject(os.urandom(NAME_BYTES), stored), memoryview)


def _is_equal(kept: Buffer, view: memoryview) -> bool:
    """Return whether these bytes are the same, by the C library's `memcmp`, which `memoryview` does
    not use.
    """
    return all(
        bytes(kept[start : start + _COMPARED_BYTES]).startswith(
            view[start : start + _COMPARED_BYTES]
        )
        for start in range(0, view.nbytes, _COMPARED_BYTES)
    )
