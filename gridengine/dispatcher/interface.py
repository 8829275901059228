"""What the I/O thread of a dispatcher tells its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gridengine.dispatcher.core.tasks import CallsFinished, TaskMessage, TaskStarted


class Listener(Protocol):
    """Is told what becomes of tasks, in the I/O thread: it must return at once, not raise and not
    unpickle.

    `daemon`: whether the end of the interpreter may end its tasks; if not it waits for them.
    """

    daemon: bool

    def settled(self, event: CallsFinished) -> None: ...
    def began(self, event: TaskStarted) -> None: ...
    def noted(self, event: TaskMessage) -> None: ...


@dataclass(frozen=True, slots=True)
class Counts:
    """A look at the work: calls that wait, runs under way (or batches of one submitter), workers
    that called home.
    """

    waiting: int
    running: int
    workers: int
