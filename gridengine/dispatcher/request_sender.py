"""Sends a dispatcher what a client asks for, and keeps it until that has it on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gridengine.dispatcher.joined_tasks import Outgoing, joined
from gridengine.dispatcher.kept_requests import KeptRequests
from gridengine.dispatcher.requesting import definitions_of
from gridengine.serialize.payload import Payload
from gridengine.wire.client import Client
from gridengine.wire.messages import JOURNALED, ChildTasks, Message

log = logging.getLogger("gridengine")


class RequestSender:
    """Sends requests. For one thread.

    Args:
        refuse: tells who asks for something that cannot be sent, and why.
    """

    def __init__(
        self,
        connection: Client,
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
            if isinstance(message, ChildTasks) and message.tasks:
                for own in definitions_of(message, buffers):
                    self.send(*own)
            return
        if type(message) in JOURNALED:
            self._requests.add(message, buffers)
