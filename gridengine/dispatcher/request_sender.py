"""Sends a dispatcher what a client asks for, and keeps it until that has it on disk.

Tasks that were handed in one by one travel in one message: who hands in many at once has them
written to the journal, and wait, together.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from gridengine.dispatcher.kept_requests import KeptRequests
from gridengine.dispatcher.requesting import MOST_TASKS, definitions_of
from gridengine.serialize.payload import Payload, size_of
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.messages import JOURNALED, Message, Submit

log = logging.getLogger("gridengine")

Outgoing: TypeAlias = tuple[Submit, Payload]

MOST_BYTES = 256 * 1024
"""A message is not joined with others once these have so many bytes."""


class RequestSender:
    """Sends requests. For one thread.

    Args:
        refuse: tells who asks for something that cannot be sent, and why.
    """

    def __init__(
        self,
        connection: DispatcherConnection,
        requests: KeptRequests,
        refuse: Callable[[Message, Exception], None],
    ) -> None:
        self._connection = connection
        self._requests = requests
        self._refuse = refuse

    def send_tasks(self, messages: list[Outgoing]) -> None:
        """Send tasks in one message; where it cannot be encoded, those that can, in one each."""
        if len(messages) > 1:
            message, buffers = joined(messages)
            try:
                self._connection.send(message, buffers)
            except (TypeError, ValueError):
                log.debug("tasks that cannot be sent together are sent one by one", exc_info=True)
            else:
                self._requests.add(message, buffers)
                return
        for message, buffers in messages:
            self.send(message, buffers)

    def send(self, message: Message, buffers: Payload) -> None:
        """Send a message; where tasks cannot be encoded, at least what comes with them."""
        try:
            self._connection.send(message, buffers)
        except (TypeError, ValueError) as error:  # a name may be none that can be encoded
            self._refuse(message, error)
            if isinstance(message, Submit) and message.tasks:
                for own in definitions_of(message, buffers):
                    self.send(*own)
            return
        if type(message) in JOURNALED:
            self._requests.add(message, buffers)


def take_joinable(first: Submit, coming: deque[Any]) -> list[Outgoing]:
    """Take of what comes next that which may travel with a message, and return it."""
    taken: list[Outgoing] = []
    tasks, size = len(first.tasks), 0
    while coming and size < MOST_BYTES and isinstance(coming[0], tuple):
        message, buffers = coming[0]
        if not (
            type(message) is Submit
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
