"""Functions that tests map, and dispatchers that run them in another order."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from tests.support.fake_dispatcher import FakeDispatcher


def square(x: int) -> int:
    return x * x


def add(x: int, y: int) -> int:
    return x + y


def fail_at_three(x: int) -> int:
    if x == 3:
        raise ValueError(f"no {x}")
    return x


class Tracked:
    """What has been made of this class and is still there is known."""

    alive: ClassVar[weakref.WeakSet[Tracked]] = weakref.WeakSet()

    def __init__(self) -> None:
        Tracked.alive.add(self)

    def __reduce__(self) -> Any:
        return Tracked, ()


def tracked_but_for_three(x: int) -> Tracked:
    fail_at_three(x)
    return Tracked()


def later(
    count: int, order: Callable[[list[Any]], list[Any]] = lambda entries: entries
) -> FakeDispatcher:
    """A dispatcher that runs nothing until so many tasks are there, and then all of them in the
    given order.
    """

    def on_submit(dispatcher: FakeDispatcher) -> None:
        if len(dispatcher.entries) == count:
            for entry in order(list(dispatcher.entries)):
                dispatcher.run(entry)

    return FakeDispatcher(on_submit=on_submit)


def broken(count: int) -> Iterator[int]:
    yield from range(count)
    raise LookupError("no more arguments")
