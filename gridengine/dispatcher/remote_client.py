"""A user's program that is a client, as the dispatcher has it, and which of them are served."""

from __future__ import annotations

from gridengine._version import __version__
from gridengine.dispatcher.client_process import Client
from gridengine.dispatcher.client_record import ClientRecord
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.dispatcher.run_directory import python_version
from gridengine.serialize.payload import Buffer, Payload
from gridengine.wire.messages import (
    OLDEST,
    VERSION,
    ChildrenFinished,
    ClientHello,
    FinishedItem,
    Message,
)
from gridengine.wire.processes import has_ended


class RemoteClient(Client):
    """A user's program in another process.

    With a journal it has a record there: its calls outlive this process, and what has come of them
    waits for it.
    """

    connected = True
    record: ClientRecord | None = None

    @property
    def taken(self) -> int:  # type: ignore[override]
        """How many of its requests the journal has, if there is one."""
        return -1 if self.record is None else self.record.seen

    def send(self, message: Message, buffers: Payload = ()) -> bool:  # type: ignore[override]
        """Send the client a message, if it is connected; return whether it is. Who has taken its
        place is told of outcomes alone.
        """
        if self.connected and (self.peer == self.key[0] or type(message) is ChildrenFinished):
            super().send(message, buffers)
        return self.connected

    def answer(self, message: Message, buffers: Payload) -> None:
        """Send the client an answer, behind the outcomes that its record has."""
        if self.record is None:
            super().answer(message, buffers)
        else:
            self.record.answer(message, buffers)

    def finish(self, items: list[FinishedItem], buffers: list[Buffer]) -> None:
        """Send the outcomes of calls; with a journal, or keep them until they can be sent."""
        if self.record is None:
            super().finish(items, buffers)
        else:
            self.record.finish(items, buffers)

    hello: ClientHello
    heard_at = 0.0
    fault = "", ""
    """A file of its own that it cannot write what comes of its calls to, and why."""
    gone_at: float | None = None
    """Since when it is known, or taken, to be gone."""

    def settled(self, event: CallsFinished) -> None:
        """Pass on the outcome of calls, unless the dispatcher ends: it tells its clients itself."""
        if not self.closing:
            super().settled(event)

    @property
    def is_kept(self) -> bool:
        """Whether its calls go on without it."""
        return bool(self.hello.keep) and self.record is not None

    def is_dead(self) -> bool:
        """Return whether its process can be seen from here, and has ended."""
        hello = self.hello
        return has_ended(hello.machine, hello.pid, hello.started)

    def __str__(self) -> str:
        return f"client {self.number} (process {self.hello.pid} on {self.hello.host})"


def why_refused(hello: ClientHello) -> str:
    """Return why a client cannot be served, empty if it can."""
    if hello.protocol < OLDEST or hello.oldest > VERSION:
        return (
            f"the client is gridengine {hello.version} (protocols {hello.oldest} to "
            f"{hello.protocol}), its dispatcher {__version__} ({OLDEST} to {VERSION})"
        )
    if hello.python and hello.python != python_version():
        return (
            f"the client runs Python {hello.python}, and its dispatcher and workers "
            f"{python_version()}: its functions could not be loaded"
        )
    return ""
