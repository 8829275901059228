"""State that several threads share: objects that exist once in a process, and groups of objects
that are held weakly.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function whose calls all return one object, which the first of them makes. With
    `functools.cache` alone, two threads that call it first would get an object each.
    """
    lock, made = threading.RLock(), list[T]()  # reentrant: the garbage collector may call it too

    def find() -> T:
        with lock:
            if not made:
                made.append(make())
            return made[0]

    return functools.cache(functools.wraps(make)(find))  # later calls run no Python code


class LiveObjects(Generic[T]):
    """Objects that are alive. Other threads may add some during an iteration, unlike with a
    `WeakSet`.
    """

    def __init__(self) -> None:
        self._objects: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()

    def add(self, one: T) -> None:
        self._objects[id(one)] = one

    def discard(self, one: T) -> None:
        self._objects.pop(id(one), None)

    def clear(self) -> None:
        self._objects.clear()

    def __contains__(self, one: object) -> bool:
        return id(one) in self._objects

    def __iter__(self) -> Iterator[T]:
        return (one for ref in self._objects.valuerefs() if (one := ref()) is not None)
