"""The slot of a call that submits nested calls. The call gives the slot back while it waits for
them, and takes it again before it goes on, so that calls may be nested to any depth.
"""

from __future__ import annotations

import enum
import queue
import threading
from collections.abc import Callable
from typing import Protocol, Self

from gridengine.wire.messages import Message, Resumes, Waits


class Releasable(Protocol):
    """A lock, or another object that wakes a waiting thread or task."""

    def release(self) -> None: ...


EXPIRED = (queue.Empty, TimeoutError, KeyboardInterrupt)
"""The exceptions that end a wait although the awaited calls have not ended."""


class _State(enum.Enum):
    """The states of a slot: the call holds it, has given it back, has asked for it again, or has
    ended.
    """

    HELD, GIVEN_BACK, ASKED_FOR, OVER = range(4)


class CallSlot:
    """The slot of one call. Several threads of the call, and tasks of its event loop, may wait at
    the same time. The call has no slot while at least one of them waits, because the others may
    wait for that one.

    Args:
        runner: the number of the call's process.
        present_run: returns the run in progress.
        send: sends a message; takes no lock.
    """

    def __init__(
        self, runner: int, present_run: Callable[[], int], send: Callable[[Message], object]
    ) -> None:
        self._runner = runner
        self._present_run = present_run
        self._send = send
        self._lock = threading.Lock()
        self._state = _State.HELD
        self._waits = 0
        self._resuming: list[Releasable] = []
        self._error: BaseException | None = None
        self.run = 0
        """The run of the call that has given back the slot."""

    def give_back(self) -> None:
        """Note that one more thread or task begins to wait for nested calls."""
        with self._lock:
            self._waits += 1
            if self._state is _State.HELD:
                self._begin()

    def _begin(self) -> None:
        self.run = self._present_run()
        if self.run:
            self._state = _State.GIVEN_BACK
            self._send(Waits(self._runner, self.run))

    def take_again(self, waiter: Releasable) -> bool:
        """Note that one thread or task has stopped waiting. Return whether it must wait for the
        release of `waiter` before it goes on.
        """
        with self._lock:
            self._waits -= 1
            if self._waits or self._state in (_State.HELD, _State.OVER):
                return False
            self._resuming.append(waiter)
            if self._state is _State.GIVEN_BACK:
                self._state = _State.ASKED_FOR
                self._send(Resumes(self._runner, self.run))
            return True

    def check(self) -> None:
        """Raise, once, the reason why the call could not have its allocation back."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def resumed(self) -> None:
        """Note that the call has a slot again."""
        with self._lock:
            if self._state is _State.ASKED_FOR:
                self._hold()

    def refuse(self, error: BaseException) -> bool:
        """Note that the dispatcher refuses: either the call may not give back its slot, or it
        cannot have its allocation back. Return True in the first case; in the second, `check`
        raises this error.
        """
        with self._lock:
            refused_to_wait = self._state is _State.GIVEN_BACK
            if not refused_to_wait:
                self._error = error
            self._hold(again=False)
            return refused_to_wait

    def _hold(self, *, again: bool = True) -> None:
        self._state = _State.HELD
        resuming, self._resuming = self._resuming, []
        if again and self._waits:
            self._begin()
        for waiter in resuming:
            waiter.release()

    def close(self) -> None:
        """Note that the call has ended: nobody waits for its slot any more."""
        with self._lock:
            self._hold(again=False)
            self._state = _State.OVER


class WithoutSlot:
    """A context in which this thread waits for nested calls, without the call's slot. If the wait
    ends before they do (`expired`, or by an exception in `EXPIRED`), the thread goes on at once,
    beside other calls, until it is given a slot: the nested calls may take long.

    Not made by `contextlib.contextmanager`, which sets attributes of exceptions that may have none.

    Raises, at its end:
        NestingError, Exception: the call goes on without its allocation; the text says why.
    """

    def __init__(self, slot: CallSlot) -> None:
        self._slot = slot
        self.expired = False

    def __enter__(self) -> Self:
        self._slot.give_back()
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        waiter = threading.Lock()
        waiter.acquire()
        expired = self.expired or (kind is not None and issubclass(kind, EXPIRED))
        if self._slot.take_again(waiter) and not expired:
            waiter.acquire()
        self._slot.check()


class NoSlot:
    """A context that does nothing, for calls and callers without a slot."""

    expired = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Do nothing."""


def without_slot(slot: CallSlot | None) -> WithoutSlot | NoSlot:
    """Return a `WithoutSlot`; or a `NoSlot` if there is no slot to give back."""
    return NoSlot() if slot is None else WithoutSlot(slot)
