"""What threads wait with for answers of a dispatcher in another process."""

from __future__ import annotations

import threading
from typing import Any

from gridengine.wire.messages import Message


class Question:
    """What a thread waits with for an answer; `message` is how it is asked, `told` what came."""

    def __init__(self, message: Message | None = None) -> None:
        self.message = message
        self.told: Any = None
        self._lock = threading.Lock()
        self._lock.acquire()
        self._error: BaseException | None = None

    def answer(self, error: BaseException | None = None) -> None:
        """End the waiting, once."""
        self._error = error
        self._lock.release()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the answer.

        Raises:
            GridEngineError: the answer is an error.
            TimeoutError: it is not there within so many seconds.
        """
        if not self._lock.acquire(timeout=-1 if seconds is None else seconds):
            raise TimeoutError(f"no answer within {seconds:g} s")
        if self._error is not None:
            raise self._error
