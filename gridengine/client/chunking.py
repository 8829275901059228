"""How many calls travel in one task: by their number, by what they pickle to, and by the workers
there are.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from typing import Any

from gridengine.serialize.payload import SINGLE, STAR

SMALL_BLOCK, LARGE_BLOCK = 64 * 1024, 256 * 1024
"""Blocks of calls grow until their pickle is of at least this many bytes, and shrink when it is of
more than that many.
"""
TINY_BLOCK = 2 * 1024
"""A block up to this size may as well be sent again for each part of it that goes elsewhere."""
GROWTH = 8


SHARES = 4
"""Into how many blocks for each slot a map of known length is cut at least, unless they are
tiny.
"""
SMALLEST_WINDOW = 16
"""How many calls of an `imap` may be on their way, however few the slots."""


def zipped(f: Callable[..., Any], iterables: Sequence[Iterable[Any]]) -> tuple[int, Iterator[Any]]:
    """Return the form of the calls, and the calls."""
    if not iterables:
        raise TypeError(f"nothing to call {f!r} with: at least one iterable is needed")
    return (
        (SINGLE, iter(iterables[0]))
        if len(iterables) == 1
        else (STAR, zip(*iterables, strict=False))
    )


def length_of(iterables: Sequence[Iterable[Any]]) -> int | None:
    """Return how many calls there will be, when that is known."""
    sized = [each for each in iterables if isinstance(each, Sized)]
    try:
        return min(builtins.map(len, sized)) if len(sized) == len(iterables) else None
    except TypeError:  # an array without dimensions has a length that raises
        return None


def block_sizes(chunksize: int | None, total: int | None, slots: int) -> Generator[int, int, None]:
    """Yield how many calls to put into each block; is sent the size in bytes of the pickle of each.

    With a `chunksize` all are of that size; else they grow, as far as leaves some for every slot.
    """
    size = chunksize or 1
    most = LARGE_BLOCK if total is None else max(-(-total // (SHARES * slots)), 1)
    while True:
        pickled = yield size
        if chunksize is not None:
            continue
        if pickled < TINY_BLOCK:
            size *= GROWTH
        elif pickled < SMALL_BLOCK:
            size = min(GROWTH * size, most)
        elif pickled > LARGE_BLOCK:
            size = max(size // 2, 1)
