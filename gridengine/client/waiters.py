"""The waiters of a future: locks that threads sleep on, tasks of event loops, callbacks, and the
functions of `concurrent.futures`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from msgspec import Struct

from gridengine.calls.interface import CallSlot, Dispatcher, Releasable, WithoutSlot
from gridengine.serialize.references import Reference
from gridengine.threads import in_pieces


class Waiters(Struct, eq=False):
    """The waiters of a future, made when somebody first waits for it.

    A thread that waits for one future sleeps on a lock. Waking it by a condition would take two
    more switches of threads, because a condition notifies while its own lock is held. The condition
    is made only for the functions of `concurrent.futures`, when they look into the future.

    reference: the dispatcher knows the result by it, when other calls wait for the result.
    acts: functions to call once the call has ended, for other dispatchers.
    """

    condition: threading.Condition | None = None
    locks: list[Releasable] = []
    registered: list[Any] = []
    callbacks: list[Callable[[Future[Any]], object]] = []
    reference: Reference | None = None
    acts: list[Callable[[], object]] = []

    def take_locks(self) -> list[Releasable]:
        """Return the locks, under the batcher's lock, to be released when that lock is free."""
        locks, self.locks = self.locks, []
        return locks


class RegisteredWaiters(list[Any]):
    """The waiters that `concurrent.futures` registers with a future of this dispatcher. Inside a
    call that submits nested calls they wait without the call's slot.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self._dispatcher = dispatcher

    def append(self, waiter: Any) -> None:
        slot = self._dispatcher.call_slot
        if slot is not None and not isinstance(waiter.event, EventWithoutSlot):
            waiter.event = EventWithoutSlot(slot)
        super().append(waiter)


class EventWithoutSlot(threading.Event):
    """An event that a call waits for without its slot."""

    def __init__(self, slot: CallSlot) -> None:
        super().__init__()
        self._slot = slot

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, for at most `timeout` seconds; return whether it is set."""
        if self.is_set() or (timeout is not None and timeout <= 0):
            return self.is_set()
        with WithoutSlot(self._slot) as wait:
            wait.expired = not in_pieces(super().wait, timeout)
        return not wait.expired


def release(locks: Sequence[Releasable]) -> None:
    """Wake the threads and tasks that sleep on these locks."""
    for lock in locks:
        lock.release()
