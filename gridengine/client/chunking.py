"""Decide how many calls go into one task, by the number of calls, the size of their pickles, and
the number of slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gridengine.errors import short_repr
from gridengine.schedulers.base import Scheduler
from gridengine.serialize.payload import SINGLE, STAR

SMALL_BLOCK, LARGE_BLOCK = 64 * 1024, 256 * 1024
"""Blocks of calls grow until their pickle has at least `SMALL_BLOCK` bytes, and shrink when it has
more than `LARGE_BLOCK`.
"""
TINY_BLOCK = 2 * 1024
"""A block up to this size may as well be sent again for each of its parts that goes to another
worker.
"""
GROWTH = 8
SHARES = 4
"""A map of known length is cut into at least this many blocks for each slot, unless the blocks are
tiny.
"""
SMALLEST_WINDOW = 16
"""An `imap` may always have this many calls handed over, however few the slots."""


def zipped(f: Callable[..., Any], iterables: Sequence[Iterable[Any]]) -> tuple[int, Iterator[Any]]:
    """Return the form of the calls, and an iterator over them."""
    if not iterables:
        raise TypeError(f"nothing to call {f!r} with: at least one iterable is needed")
    for one in iterables[1:]:
        if isinstance(one, Scheduler) or (isinstance(one, type) and issubclass(one, Scheduler)):
            raise TypeError(f"a scheduler is given by name, scheduler={short_repr(one)}")
    return (
        (SINGLE, iter(iterables[0]))
        if len(iterables) == 1
        else (STAR, zip(*iterables, strict=False))
    )


def argument_tuples(iterable: Iterable[Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of each call of a `starmap`.

    Raises:
        TypeError: an element is not iterable; the text says which.
    """
    for index, element in enumerate(iterable):
        try:
            arguments = iter(element)
        except TypeError:
            shown = short_repr(element)
            raise TypeError(
                f"starmap takes tuples of arguments, and element {index} of the iterable is "
                f"{shown}; for calls with one argument each use map, or ({shown},)"
            ) from None
        yield element if type(element) is tuple else tuple(arguments)


def length_of(iterables: Sequence[Iterable[Any]]) -> int | None:
    """Return how many calls there will be; None if that is unknown."""
    try:
        return min(map(len, iterables))  # type: ignore[arg-type]
    except TypeError:  # no length; an array without dimensions raises too
        return None


def next_size(size: int, pickled: int, total: int | None, slots: int) -> int:
    """Return how many calls the next block gets, after a block of `size` calls with `pickled`
    bytes. Blocks grow only so far that every slot gets some.
    """
    if pickled < TINY_BLOCK:
        return GROWTH * size
    if pickled < SMALL_BLOCK:
        most = LARGE_BLOCK if total is None else max(-(-total // (SHARES * slots)), 1)
        return min(GROWTH * size, most)
    return max(size // 2, 1) if pickled > LARGE_BLOCK else size
