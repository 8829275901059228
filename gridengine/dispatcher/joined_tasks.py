"""Tasks that a client has handed in one by one, in one message: who hands in many at once has them
travel, be written to the journal, and wait together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from gridengine.serialize.payload import Payload, size_of
from gridengine.wire.messages import ChildTasks

Outgoing: TypeAlias = tuple[ChildTasks, Payload]

MOST_TASKS = 1000
"""How many tasks travel in one message."""
MOST_BYTES = 256 * 1024
"""A message is not joined with others once these have so many bytes."""


def take_joinable(first: ChildTasks, coming: deque[Any]) -> list[Outgoing]:
    """Take of what comes next that which may travel with a message, and return it."""
    taken: list[Outgoing] = []
    tasks, size = len(first.tasks), 0
    while coming and size < MOST_BYTES and isinstance(coming[0], tuple):
        message, buffers = coming[0]
        if not (
            type(message) is ChildTasks
            and message.digest == first.digest
            and message.function is None
            and not message.shared
            and message.detached == first.detached
        ):
            break
        tasks += len(message.tasks)
        if tasks > MOST_TASKS:
            break
        size += size_of(buffers)
        taken.append(coming.popleft())
    return taken


def joined(messages: Sequence[Outgoing]) -> Outgoing:
    """Return such messages as one."""
    [first, _] = messages[0]
    tasks = [task for message, _ in messages for task in message.tasks]
    return replace(first, tasks=tasks), [buffer for _, buffers in messages for buffer in buffers]
