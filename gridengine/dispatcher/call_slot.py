"""The slot of a call that makes calls: given back while it waits for them, and taken again before
it goes on, so that calls may be inside each other to any depth.
"""

from __future__ import annotations

import enum
import queue
import threading
from collections.abc import Callable
from typing import Protocol, Self

from gridengine.wire.messages import Message, Resumes, Waits


class Releasable(Protocol):
    """What somebody waits with: a lock, or what wakes a task of an event loop."""

    def release(self) -> None: ...


EXPIRED = (queue.Empty, TimeoutError, KeyboardInterrupt)
"""What says that a wait is over though what it was for has not come."""


class _State(enum.Enum):
    HELD, GIVEN_BACK, ASKED_FOR, OVER = range(4)


class CallSlot:
    """The slot of one call. Its threads, and the tasks of its event loop, may wait in turns: it has
    none while at least one of them waits, since others may wait for that one.

    Args:
        runner: the number of the call's process.
        present_run: returns the run in progress.
        send: is given what is to be said of it; waits for no lock.
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
        """Of which run the call is that gave it back."""

    def give_back(self) -> None:
        """Note that one more thread or task begins to wait for calls that this one has made."""
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
        """Note that one waits no more; return whether it is to wait for the release of `waiter`
        before it goes on.
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
        """Raise, once, why the call has not been given what it had before."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def resumed(self) -> None:
        """Note that the call has a slot again."""
        with self._lock:
            if self._state is _State.ASKED_FOR:
                self._hold()

    def refuse(self, error: BaseException) -> bool:
        """Note that it is refused to give it back, or what it had before; return whether the
        former, and else have `check` raise this.
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
        """Note that the call has ended: nobody waits for it any more."""
        with self._lock:
            self._hold(again=False)
            self._state = _State.OVER


class WithoutSlot:
    """Within, this thread waits for calls that the call of this slot has made. Where the wait is
    over before these have ended (`expired`, or by an exception that says so), it goes on at once
    and beside others until it is given a slot: they may take long.

    Not by `contextlib.contextmanager`, which changes exceptions that may not be changed.

    Raises, at its end:
        NestingError, Exception: the call goes on without what it had; the text says why.
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
    """The same, where there is no slot to give back."""

    expired = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Do nothing."""


def without_slot(slot: CallSlot | None) -> WithoutSlot | NoSlot:
    """Return a `WithoutSlot`, or what does nothing."""
    return NoSlot() if slot is None else WithoutSlot(slot)
