"""What handling an event has left to do, in the order in which it is done."""

from __future__ import annotations

from gridengine.dispatcher.core.calls import OpenTask
from gridengine.dispatcher.core.model import SlotGroup, TaskQueue, Worker
from gridengine.dispatcher.core.tasks import CallsFinished


class Agenda:
    """The work that an event has caused and that has not been done yet.

    Handlers add to it; `StateMachine.handle` works it off, from the first attribute to the last,
    and begins again while new work came. Between two events all is empty, but for `room_freed` and
    `reorder`: these wait until a queue asks the packer for something. Each entry is there once,
    however often an event adds it.
    """

    __slots__ = (
        "begun",
        "changed_queues",
        "freed_slots",
        "linked",
        "orphans",
        "reorder",
        "returning",
        "room_freed",
        "scale",
    )

    def __init__(self) -> None:
        self.returning: dict[bytes, Worker] = {}
        """Workers on which a call that waits for its slot may get it back now."""
        self.orphans: list[int] = []
        """Tasks whose parent call has ended: they are cancelled."""
        self.linked: list[tuple[OpenTask, CallsFinished]] = []
        """Outcomes of calls that others depend on, or that depend on others."""
        self.begun: dict[TaskQueue, OpenTask] = {}
        """Queues that got a call whose last input has come, each with one such call."""
        self.freed_slots: dict[SlotGroup, None] = {}
        """Slot groups in which a batch has ended."""
        self.changed_queues: dict[TaskQueue, None] = {}
        """Queues with other calls or slots than before: calls are assigned from them."""
        self.room_freed = False
        """Whether the packer may find room where it found none before."""
        self.reorder = False
        """Whether the packer's requests are out of order."""
        self.scale = False
        """Whether to compare the number of workers with the number that is needed."""

    @property
    def is_done(self) -> bool:
        """Whether an event may end here."""
        return not (
            self.returning
            or self.orphans
            or self.linked
            or self.begun
            or self.freed_slots
            or self.changed_queues
            or self.scale
        )
