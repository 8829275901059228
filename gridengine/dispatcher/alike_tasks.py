"""Tasks that clients hand in together and that are alike, so that the core can keep them as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gridengine.errors import UNNUMBERED
from gridengine.serialize.payload import Buffer
from gridengine.wire.messages import TaskItem

LEAST = 8
"""So many make it worth it."""
SMALL = 4096
"""A payload of so many bytes is copied out of the message that it came in, which is let go of."""


def groups_of(items: Sequence[TaskItem]) -> Iterator[Sequence[TaskItem]]:
    """Yield these tasks in their order, those together that may be one `AlikeTasks`: of which there
    are more than one, and others.
    """
    start = place = 0
    while len(items) - place >= LEAST:
        stop = _alike_from(items, place)
        if stop - place >= LEAST:
            yield from ([one] for one in items[start:place])
            yield items[place:stop]
            start = stop
        place = stop
    yield from ([one] for one in items[start:])


def _alike_from(items: Sequence[TaskItem], start: int) -> int:
    """Return the index after the last of the tasks that are like one of them, and follow it."""
    first = expected = items[start]
    stop = start + 1
    if first.count > 1 or first.buffers != 1 or first.watched:
        return stop
    if first.after or first.kept or first.needs:
        return stop
    step = 0 if first.first == UNNUMBERED else 1
    while stop < len(items):
        expected = replace(expected, id=expected.id + 1, first=expected.first + step)
        if items[stop] != expected:
            break
        stop += 1
    return stop


def compact(buffer: Buffer) -> Buffer:
    """Return what is kept of a payload while its call waits."""
    return bytes(buffer) if len(buffer) <= SMALL else buffer
