"""State that several threads share: objects that exist once in a process, and groups of objects
that are held weakly or closed. How a thread waits for others, and no Ctrl-C is lost.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import math
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


PIECE_SECONDS = 1.0
"""How long a thread sleeps at most until it runs Python code again."""


def in_pieces(wait: Callable[[float], object], seconds: float | None = None) -> bool:
    """Call `wait` with the seconds that it may take, until it returns a true value. Return whether
    it did within `seconds`.

    Python raises the exception of Ctrl-C when the main thread runs Python code again. The signal
    does not wake this thread if it has come just before the sleep, or to another thread.
    """
    until = math.inf if seconds is None else time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        if wait(max(0.0, min(left, PIECE_SECONDS))):
            return True
        if not left > PIECE_SECONDS:  # nor for a NaN
            return False


def wait_for(
    condition: threading.Condition, predicate: Callable[[], object], seconds: float | None = None
) -> bool:
    """Take a condition's lock and wait as by its `wait_for`. A Ctrl-C ends the wait, and leaves the
    lock free.
    """
    try:
        # Not the condition's own `with`: a Ctrl-C in its Python code would leave the lock taken.
        with condition._lock:  # type: ignore[attr-defined]
            return in_pieces(functools.partial(condition.wait_for, predicate), seconds)
    except RuntimeError as error:  # "release unlocked lock": it came as the condition let it go
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


def result_of(future: Future[T], seconds: float | None = None) -> T:
    """Return the result of a future of the standard library, or raise its exception.

    Raises:
        TimeoutError: there is none within `seconds`.
    """

    def wait(piece: float) -> bool:
        with contextlib.suppress(TimeoutError):
            future.exception(piece)
        return future.done()

    in_pieces(wait, seconds)
    return future.result(0)


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


@once
def raise_dropped_interrupts() -> None:
    """Have the exception of a Ctrl-C raised again that Python drops: in a finalizer, or in a
    callback of a weak reference, as each import has one. From now on Python's hook for such
    exceptions does that; all others still go to the hook that was there.
    """
    before: Callable[[Any], object] | None = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if (
            dropped.exc_type is KeyboardInterrupt
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            # Not by a call: Python looks for signals after each, and would drop this one too.
            _ = [*iter(_thread.interrupt_main, None)]
        elif before is not None:  # None: whoever set it wants to hear of none
            before(dropped)

    sys.unraisablehook = hook


class Closing:
    """An object that is closed at the end of its `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


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
